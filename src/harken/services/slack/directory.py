"""Resolves names: which channels and people a query means, and what users are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from harken.clock import Clock
from harken.errors import NeedsAttention, RetryLater
from harken.kit.values_from_payload import text_of
from harken.services.slack.api import Answer, Slack, micros, to_timestamp
from harken.services.slack.cursor import (
    Channel,
    ListedChannel,
    Listing,
    PeopleSearch,
    Place,
    listed_channels,
    merge_channels,
)
from harken.services.slack.query import Query, normalized_name, user_id

__all__ = [
    "LIST_PAGE",
    "LOST_CURSOR",
    "UNKNOWN_USER",
    "Directory",
    "Names",
    "channel_label",
    "conversation_types",
    "find_channel",
    "following_page",
    "ids_by_name",
    "missing_channels",
    "name_of",
    "name_problem",
    "select_channels",
]

LIST_PAGE = 999
"""Slack's maximum: lists of channels and people are long, and may be requested only 20 times a minute."""
NEW_CHANNELS, NEW_NAMES = 600, 86_400
"""Seconds after which channels are listed again: to find new ones, or only for their names."""
LOST_CURSOR = frozenset({"invalid_cursor"})
LONGEST_PAUSE = 120

NAME_SECONDS = 3600.0
MOST_NAMES = 5000
LOOKUPS_PER_PAGE = 30
"""Users that one poll looks up, so that it stays within its time limit."""
UNKNOWN_USER = frozenset({"user_not_found", "user_not_visible", "users_not_found"})


class Directory:
    """Resolves the names in a query, one page per poll, before channels can be read."""

    def __init__(self, query: Query, slack: Slack, clock: Clock) -> None:
        self._query = query
        self._slack = slack
        self._clock = clock
        self._names = [written for written in query.mentions if user_id(written) is None]

    def people(self, place: Place) -> frozenset[str]:
        """The ids of all people in `mentions`."""
        return frozenset(user_id(written) or place.people[written] for written in self._query.mentions)

    def needs_people(self, place: Place) -> bool:
        return any(written not in place.people for written in self._names)

    def needs_channels(self, place: Place) -> bool:
        """Whether to list the channels now: only at the beginning of a read, and at most once in it."""
        reading = place.reading
        if reading and (reading.listed or reading.pages or reading.channel > min(place.channels, default="")):
            return False
        fixed = self._query.channels and not self._query.include_dms
        return place.stale or place.listing is not None or self._old(place.listed, NEW_NAMES if fixed else NEW_CHANNELS)

    async def search_people(self, place: Place) -> Place:
        """Search one page of users. All pages are needed, because a name is not unique."""
        naming = place.naming
        if naming is None or self._old(naming.seen, LONGEST_PAUSE):
            naming = PeopleSearch(seen="", page="")
        answer = await self._page("users.list", {}, naming.page)
        if answer.error:
            return msgspec.structs.replace(place, naming=None)
        members = answer.rows("members")
        found = {name: [*naming.found.get(name, ()), *ids_by_name(members, name)] for name in self._names}
        following = following_page(answer, naming.page)
        if following:
            return msgspec.structs.replace(place, naming=PeopleSearch(seen=self._now(), page=following, found=found))
        wrong = [sentence for name, ids in found.items() if (sentence := name_problem(name, ids))]
        if wrong:
            raise NeedsAttention("; ".join(wrong), fix="Correct mentions: in the query")
        people = {name: ids[0] for name, ids in found.items()}
        return msgspec.structs.replace(place, naming=None, people=people)

    async def list_channels(self, place: Place) -> Place:
        """Read one page of the channels. After the last page, the place has the new list of channels."""
        listing, now = place.listing, self._now()
        if listing is None or self._old(listing.seen, LONGEST_PAUSE):
            listing = Listing(began=now, seen=now, page="")
        params = {"types": conversation_types(self._query.include_dms), "exclude_archived": "true"}
        answer = await self._page("conversations.list", params, listing.page)
        if answer.error:
            return msgspec.structs.replace(place, listing=None)
        shown = select_channels(listed_channels(answer.rows("channels")), self._query.channels)
        listing = Listing(
            began=listing.began if listing.page else min(answer.server_time or now, now, key=micros),
            seen=now,
            page=following_page(answer, listing.page),
            found={**listing.found, **shown},
        )
        if listing.page:
            return msgspec.structs.replace(place, listing=listing)
        await self._check(listing)
        return _use_listing(place, listing)

    async def _page(self, method: str, params: Mapping[str, str], page: str) -> Answer:
        paging: dict[str, str | int] = {"limit": LIST_PAGE, **({"cursor": page} if page else {})}
        return await self._slack.call(method, {**params, **paging}, allow=LOST_CURSOR if page else ())

    async def _check(self, listing: Listing) -> None:
        missing = missing_channels(listing.found, self._query.channels)
        if listing.found and not missing:
            return
        what = f"there is no channel {', '.join(missing)} that the bot can see" if missing else "the bot has no channel"
        bot = (await self._slack.me()).name
        raise NeedsAttention(what, fix=f"Correct channels: in the query, or in Slack: /invite @{bot}")

    def _now(self) -> str:
        return to_timestamp(self._clock.now())

    def _old(self, text: str, seconds: int) -> bool:
        return not text or not 0 <= micros(self._now()) - micros(text) < seconds * 1_000_000


def _use_listing(place: Place, listing: Listing) -> Place:
    assert place.reading is not None
    channels = merge_channels(place, listing.found, place.reading.since)
    reading = msgspec.structs.replace(place.reading, channel=min(channels), listed=True)
    return msgspec.structs.replace(
        place, channels=channels, listed=listing.began, stale=False, listing=None, reading=reading
    )


class Names:
    """User names by id, cached for an hour."""

    def __init__(self, slack: Slack, clock: Clock) -> None:
        self._slack = slack
        self._clock = clock
        self._known: dict[str, tuple[str, float]] = {}

    def __call__(self, id: str) -> str:
        """The name, or the id if the name is unknown."""
        return self._known.get(id, (id, 0.0))[0]

    def learn(self, member: Mapping[str, Any]) -> None:
        id = text_of(member, "id")
        if id:
            self._known[id] = (name_of(member) or id, self._clock.time() + NAME_SECONDS)

    async def look_up(self, ids: Iterable[str]) -> bool:
        """Fetch unknown names. False if some are still missing: call again in the next poll."""
        now = self._clock.time()
        missing = [id for id in dict.fromkeys(ids) if self._known.get(id, ("", 0.0))[1] <= now]
        if missing and len(self._known) > MOST_NAMES:
            self._known = {id: entry for id, entry in self._known.items() if entry[1] > now and id not in missing}
        for id in missing[:LOOKUPS_PER_PAGE]:
            answer = await self._slack.call("users.info", {"user": id}, allow=UNKNOWN_USER)
            user = answer.body.get("user")
            self.learn({**(user if isinstance(user, dict) else {}), "id": id})
        return len(missing) <= LOOKUPS_PER_PAGE


def conversation_types(dms: bool) -> str:
    return "public_channel,private_channel" + (",im,mpim" if dms else "")


def channel_label(channel: Channel | ListedChannel, id: str) -> str:
    return f"#{channel.name}" if channel.name and not channel.kind else id


def select_channels(found: Mapping[str, ListedChannel], written: Sequence[str]) -> dict[str, ListedChannel]:
    """The channels with a written name or id, and direct messages; if none is written, those that the bot is in."""
    if not written:
        return {id: one for id, one in found.items() if one.member}
    return {id: one for id, one in found.items() if one.kind or any(_is_called(name, id, one) for name in written)}


def missing_channels(found: Mapping[str, ListedChannel], written: Iterable[str]) -> list[str]:
    return [name for name in written if not any(_is_called(name, id, one) for id, one in found.items())]


def find_channel(found: Mapping[str, ListedChannel], written: str) -> tuple[str, ListedChannel]:
    """The id and channel for a written name or id, which must exist."""
    return next((id, one) for id, one in found.items() if _is_called(written, id, one))


def following_page(answer: Answer, page: str) -> str:
    """The cursor of the next page; RetryLater if it is that of the page just read, which would never end."""
    following = answer.next_page
    if following and following == page:
        raise RetryLater(f"Slack returned the same page of {answer.method} twice")
    return following


def _is_called(written: str, id: str, one: ListedChannel) -> bool:
    return written == id or written.removeprefix("#").casefold() == one.name.casefold() != ""


def name_of(member: Mapping[str, Any]) -> str:
    """The display name, else the real name, else the handle."""
    paths = ("profile.display_name", "profile.real_name", "real_name", "name")
    return next((found for path in paths if (found := text_of(member, path))), "")


def ids_by_name(members: Iterable[Mapping[str, Any]], written: str) -> list[str]:
    """The ids of active members with this handle, display name or real name."""
    wanted = normalized_name(written)
    paths = ("name", "profile.display_name", "real_name", "profile.real_name")
    return [
        found
        for member in members
        if (found := text_of(member, "id"))
        and member.get("deleted") is not True
        and wanted in {(text_of(member, path) or "").casefold() for path in paths}
    ]


def name_problem(written: str, ids: Sequence[str]) -> str:
    """Why this name cannot be used, in a sentence; empty when it can."""
    if len(ids) == 1:
        return ""
    if ids:
        return f"{written} is the name of {len(ids)} people ({', '.join(ids)}). Write the id of the one you mean"
    return f"nobody is called {written}. Write the handle, the display name, or the member id from their profile"
