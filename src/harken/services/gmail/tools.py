"""Tools for agents on a mailbox. Answers are small, because a model reads all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from harken.errors import NotFound
from harken.kit import ParamsModel
from harken.kit.message_text import cut
from harken.kit.values_from_payload import text_of
from harken.services.gmail.api import Gmail
from harken.services.gmail.event import event_of
from harken.source import Call, Tool

__all__ = ["TOOLS"]

MOST_COUNTED = 2_000
LONGEST_BODY = 8_000
_FIELDS = ("id", "thread_id", "from", "sender", "to", "subject", "date", "snippet", "labels")


class CountParams(ParamsModel):
    """What to count."""

    query: str = Field("in:inbox", max_length=1_000, description="a Gmail search; unread mail in it is counted")


class SearchParams(ParamsModel):
    """What to look for."""

    query: str = Field(max_length=1_000, description="a Gmail search, such as: from:ana is:unread newer_than:2d")
    limit: int = Field(10, ge=1, le=50, description="the most mails to show, newest first")


class MessageParams(ParamsModel):
    """Which mail."""

    id: str = Field(min_length=1, max_length=200, description="the id of a mail, from gmail_search")


class LabelParams(ParamsModel):
    """No parameters."""


async def count_unread(call: Call) -> Mapping[str, Any]:
    """Count by listing: Gmail's own number is an estimate."""
    gmail, count, page = Gmail(call.account, call.host), 0, ""
    query = f"is:unread ({call.params.query})" if call.params.query.strip() else "is:unread"
    while True:
        listing = await gmail.search(query, page)
        count, page = count + len(listing.ids), listing.following
        if not page or count >= MOST_COUNTED:
            return {"unread": count, "or_more": bool(page)}


async def search(call: Call) -> Mapping[str, Any]:
    gmail = Gmail(call.account, call.host)
    listing = await gmail.search(call.params.query, most=call.params.limit)
    fetched = await gmail.get_all(listing.ids[: call.params.limit], texts=False)
    return {"messages": [_short(id, message) for id, message in fetched], "more": bool(listing.following)}


async def message_get(call: Call) -> Mapping[str, Any]:
    message = await Gmail(call.account, call.host).get(call.params.id)
    if message is None:
        raise _no_such_mail()
    data = event_of(call.params.id, message, {}, {}).data
    shown = _short(call.params.id, message)
    return {**shown, "attachments": data["attachments"], "body": cut(data["body"], LONGEST_BODY, len)}


async def mark_read(call: Call) -> Mapping[str, Any]:
    return await _mark(call, unread=False)


async def mark_unread(call: Call) -> Mapping[str, Any]:
    return await _mark(call, unread=True)


async def _mark(call: Call, *, unread: bool) -> Mapping[str, Any]:
    done = await Gmail(call.account, call.host).mark(call.params.id, unread=unread)
    if done is None:
        raise _no_such_mail()
    return done


def _no_such_mail() -> NotFound:
    return NotFound("there is no mail with this id", fix="Ids come from gmail_search")


async def labels_list(call: Call) -> Mapping[str, Any]:
    rows = await Gmail(call.account, call.host).labels()
    return {"labels": [{"id": text_of(row, "id"), "name": text_of(row, "name")} for row in rows]}


def _short(id: str, message: Mapping[str, Any]) -> dict[str, Any]:
    data = event_of(id, message, {}, {}).data
    return {name: cut(value, 500, len) if isinstance(value := data[name], str) else value for name in _FIELDS}


TOOLS = {
    "gmail_count_unread": Tool(summary="Count unread mail", params=CountParams, run=count_unread),
    "gmail_search": Tool(summary="Find mail, newest first", params=SearchParams, run=search),
    "gmail_message_get": Tool(summary="Read one mail", params=MessageParams, run=message_get),
    "gmail_mark_read": Tool(summary="Mark a mail as read", params=MessageParams, run=mark_read, writes=True),
    "gmail_mark_unread": Tool(summary="Mark a mail as unread", params=MessageParams, run=mark_unread, writes=True),
    "gmail_labels_list": Tool(summary="List the labels", params=LabelParams, run=labels_list),
}
