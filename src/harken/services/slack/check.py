"""Who a token belongs to, and whether the channels and people of a query exist."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from harken.errors import RetryLater
from harken.kit.values_from_payload import text_of
from harken.services.slack.api import CONFIGURE, Account, Slack
from harken.services.slack.cursor import ListedChannel, listed_channels
from harken.services.slack.directory import (
    LIST_PAGE,
    UNKNOWN_USER,
    channel_label,
    conversation_types,
    find_channel,
    following_page,
    ids_by_name,
    missing_channels,
    name_of,
    name_problem,
    select_channels,
)
from harken.services.slack.query import Query, user_id
from harken.source import Checked, Host

__all__ = ["channels_of", "check", "whoami"]

MOST_PAGES = 100


async def whoami(account: Account, host: Host) -> Mapping[str, Any]:
    """The bot, its workspace, and the scopes of its token."""
    slack = Slack(account, host)
    me = await slack.me()
    # a token without users:read can still say who it is
    profile = await slack.call("users.info", {"user": me.user_id}, allow={*UNKNOWN_USER, "missing_scope"})
    return {
        "id": me.user_id,
        "name": me.name,
        "bot_id": me.bot_id,
        "team": me.team,
        "team_id": me.team_id,
        "url": me.url,
        "time_zone": text_of(profile.body, "user.tz") or "",
        "scopes": me.scopes,
    }


async def check(query: Query, account: Account, host: Host) -> Checked:
    """Look up every channel and person of the query, and whether the bot is in the channels and may read them."""
    slack = Slack(account, host)
    found: dict[str, str] = {}
    rows = await _list_channels(slack, query.include_dms)
    seen = listed_channels(rows)
    unknown = _missing_scopes(rows, select_channels(seen, query.channels), (await slack.me()).scopes)
    await _check_channels(query, slack, seen, found, unknown)
    ids = [written for written in query.mentions if user_id(written)]
    names = [written for written in query.mentions if not user_id(written)]
    for written in ids:
        await _check_id(written, slack, found, unknown)
    if names:
        members = await _all_pages(slack, "users.list", "members")
        for written in names:
            _check_name(written, members, found, unknown)
    return Checked(found=found, unknown=unknown)


async def channels_of(slack: Slack, dms: bool = False) -> dict[str, ListedChannel]:
    """Every channel that the bot can see."""
    return listed_channels(await _list_channels(slack, dms))


async def _list_channels(slack: Slack, dms: bool) -> list[dict[str, Any]]:
    return await _all_pages(
        slack, "conversations.list", "channels", types=conversation_types(dms), exclude_archived="true"
    )


def _missing_scopes(rows: list[dict[str, Any]], read: Container[object], scopes: str) -> list[str]:
    """A sentence for each scope that reading these channels needs and the token lacks. Empty `scopes`: unknown."""
    needed = {"users:read"} | {f"{_family(row)}:history" for row in rows if row.get("id") in read}
    lacking = needed - {scope.strip() for scope in scopes.split(",")} if scopes else ()
    fix = f"Add it under OAuth & Permissions, install the app again, then: {CONFIGURE}"
    return [f"the token lacks the scope {scope}. {fix}" for scope in sorted(lacking)]


def _family(row: Mapping[str, Any]) -> str:
    """What Slack calls this kind of channel in its scopes."""
    if row.get("is_im") is True or row.get("is_mpim") is True:
        return "im" if row.get("is_im") is True else "mpim"
    return "groups" if row.get("is_private") is True else "channels"


async def _check_channels(
    query: Query, slack: Slack, seen: Mapping[str, ListedChannel], found: dict[str, str], unknown: list[str]
) -> None:
    me = await slack.me()
    missing = missing_channels(seen, query.channels)
    for written in missing:
        fix = f"A private channel shows itself after /invite @{me.name}; direct messages need include_dms"
        unknown.append(f"there is no channel {written} that the bot can see. {fix}")
    for written in [written for written in query.channels if written not in missing]:
        id, one = find_channel(seen, written)
        if one.member:
            found[written] = f"{channel_label(one, id)} ({id})"
        else:
            unknown.append(f"the bot is not in {channel_label(one, id)} ({id}). Invite it there: /invite @{me.name}")


async def _check_id(written: str, slack: Slack, found: dict[str, str], unknown: list[str]) -> None:
    answer = await slack.call("users.info", {"user": user_id(written) or written}, allow=UNKNOWN_USER)
    user = answer.body.get("user")
    if answer.error or not isinstance(user, dict):
        unknown.append(f"there is no user {written}. Copy the member id from their profile")
    else:
        found[written] = f"{name_of(user)} ({user_id(written)})"


def _check_name(written: str, members: list[dict[str, Any]], found: dict[str, str], unknown: list[str]) -> None:
    ids = ids_by_name(members, written)
    wrong = name_problem(written, ids)
    if wrong:
        unknown.append(wrong)
    else:
        member = next(member for member in members if member.get("id") == ids[0])
        found[written] = f"{name_of(member)} ({ids[0]})"


async def _all_pages(slack: Slack, method: str, name: str, **params: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    page = ""
    for _ in range(MOST_PAGES):
        answer = await slack.call(method, {**params, "limit": LIST_PAGE, **({"cursor": page} if page else {})})
        rows += answer.rows(name)
        page = following_page(answer, page)
        if not page:
            return rows
    raise RetryLater(f"Slack's {method} has more than {MOST_PAGES} pages")
