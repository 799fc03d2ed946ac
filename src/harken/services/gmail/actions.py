"""What a step may do with a mail. Both can be done twice without harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from harken.source import Act, Call

__all__ = ["ACTIONS", "Marked"]


class Marked(BaseModel):
    """Which mail. A step has an `id` of its own, so this one has another name."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    message: str = Field(min_length=1, max_length=200, description="the id of the mail, as its event has it")


async def mark_read(call: Call) -> Mapping[str, Any]:
    return await _marked(call, unread=False)


async def mark_unread(call: Call) -> Mapping[str, Any]:
    return await _marked(call, unread=True)


async def _marked(call: Call, *, unread: bool) -> Mapping[str, Any]:
    # here, because the account's own service offers these actions, and Gmail needs that service
    from harken.services.gmail.api import Gmail

    done = await Gmail(call.account, call.host).mark(call.params.message, unread=unread)
    # whoever deleted it meanwhile has read it
    return {**done, "gone": False} if done else {"id": call.params.message, "unread": False, "gone": True}


ACTIONS = {
    "mark_read": Act(params=Marked, run=mark_read),
    "mark_unread": Act(params=Marked, run=mark_unread),
}
