"""The actions mark_read and mark_unread. Doing one twice changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from harken.kit import ParamsModel
from harken.source import Act, Call

__all__ = ["ACTIONS"]


class MarkParams(ParamsModel):
    """Which mail. Not called `id`, because every step has an `id` of its own."""

    message: str = Field(min_length=1, max_length=200, description="the id of the mail, as its event has it")


async def mark_read(call: Call) -> Mapping[str, Any]:
    return await _mark(call, unread=False)


async def mark_unread(call: Call) -> Mapping[str, Any]:
    return await _mark(call, unread=True)


async def _mark(call: Call, *, unread: bool) -> Mapping[str, Any]:
    # imported late: the google plugin offers these actions, and gmail.api imports google
    from harken.services.gmail.api import Gmail

    done = await Gmail(call.account, call.host).mark(call.params.message, unread=unread)
    # a deleted mail counts as read
    return {**done, "gone": False} if done else {"id": call.params.message, "unread": False, "gone": True}


ACTIONS = {
    "mark_read": Act(params=MarkParams, run=mark_read),
    "mark_unread": Act(params=MarkParams, run=mark_unread),
}
