"""The action mark_read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from harken.errors import NeedsAttention
from harken.kit import ParamsModel
from harken.services.imap.api import ImapConnection, run_session
from harken.services.imap.query import folder_name
from harken.source import Call

__all__ = ["MarkParams", "mark_read"]


class MarkParams(ParamsModel):
    """Which mail of which folder."""

    uid: int = Field(ge=1, description="the uid of the mail, as its event has it")
    uid_validity: int = Field(0, ge=0, description="of its event: refused if the folder numbers its mails anew")
    folder: str = Field("INBOX", description="the folder it is in")

    @field_validator("folder")
    @classmethod
    def _is_folder(cls, value: str) -> str:
        folder_name(value)
        return value


async def mark_read(call: Call) -> Mapping[str, Any]:
    """Mark a mail as read. It is no error if it is read already, or deleted."""
    params: MarkParams = call.params

    def mark(connection: ImapConnection) -> None:
        folder = connection.examine(folder_name(params.folder), writing=True)
        if params.uid_validity not in (0, folder.validity):
            fix = "Nothing was marked: this uid belongs to another mail now"
            raise NeedsAttention("the server numbers its mails anew since this mail was read", fix=fix)
        connection.mark_seen(params.uid)

    await run_session(call.account, call.host.allow_private, mark)
    return {"uid": params.uid, "folder": params.folder}
