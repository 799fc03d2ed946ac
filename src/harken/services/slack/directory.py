"""Before the reading: which channels a query means, and which people. Both are asked for page by page, and kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harken.clock import Clock
from harken.errors import NeedsAttention, RetryLater
from harken.kit.fields import text_of
from harken.services.slack.api import Answer, Slack, micros, stamp
from harken.services.slack.cursor import Found, Listing, Naming, Place, Room, found_in, rooms_of

if TYPE_CHECKING:
    from harken.services.slack import Query

__all__ = [
    "FORGOTTEN",
    "LIST_PAGE",
    "Directory",
    "Names",
    "absent",
    "kinds",
    "label",
    "matching",
    "meant",
    "name_of",
    "picked",
    "turned",
    "unclear",
    "user_id",
    "wanted_name",
]


AGE = 3600.0

MOST = 5000

PER_CALL = 30

"""So many users are looked up for one page, so that it stays within its time."""

UNKNOWN = frozenset({"user_not_found", "user_not_visible", "users_not_found"})

_ID = re.compile(r"[UW](?=[A-Z0-9]*[0-9]|[A-Z0-9]{8})[A-Z0-9]+")


def user_id(written: str) -> str | None:
    """The id, if one was written: U123, or <@U123> as it was copied. What begins with @ is a name."""
    bare = written.removeprefix("<@").removesuffix(">").partition("|")[0]
    return bare if _ID.fullmatch(bare) else None


def wanted_name(written: str) -> str:
    return written.strip().removeprefix("@").strip().casefold()


def name_of(member: Mapping[str, Any]) -> str:
    """What people call them: the display name, else the real name, else the handle."""
    paths = ("profile.display_name", "profile.real_name", "real_name", "name")
    return next((found for path in paths if (found := text_of(member, path))), "")


def matching(members: Iterable[Mapping[str, Any]], written: str) -> list[str]:
    """The ids of those who go by this name (handle, display name or real name) and are still there."""
    wanted = wanted_name(written)
    paths = ("name", "profile.display_name", "real_name", "profile.real_name")
    return [
        found
        for member in members
        if (found := text_of(member, "id"))
        and member.get("deleted") is not True
        and wanted in {(text_of(member, path) or "").casefold() for path in paths}
    ]


def unclear(written: str, ids: Sequence[str]) -> str:
    """Why this name cannot be used, in a sentence; empty when it can."""
    if len(ids) == 1:
        return ""
    if ids:
        return f"{written} is the name of {len(ids)} people ({', '.join(ids)}). Write the id of the one you mean"
    return f"nobody is called {written}. Write the handle, the display name, or the member id from their profile"


class Names:
    """Names by id. What was looked up is kept for an hour."""

    def __init__(self, slack: Slack, clock: Clock) -> None:
        self._slack = slack
        self._clock = clock
        self._known: dict[str, tuple[str, float]] = {}

    def __call__(self, id: str) -> str:
        """The name, or the id of somebody who is not known."""
        return self._known.get(id, (id, 0.0))[0]

    def learn(self, member: Mapping[str, Any]) -> None:
        id = text_of(member, "id")
        if id:
            self._known[id] = (name_of(member) or id, self._clock.time() + AGE)

    async def look_up(self, ids: Iterable[str]) -> bool:
        """Ask for those that are not known; False while more are left than one page has time for."""
        now = self._clock.time()
        missing = [id for id in dict.fromkeys(ids) if self._known.get(id, ("", 0.0))[1] <= now]
        if missing and len(self._known) > MOST:
            self._known = {id: entry for id, entry in self._known.items() if entry[1] > now and id not in missing}
        for id in missing[:PER_CALL]:
            answer = await self._slack.call("users.info", {"user": id}, allow=UNKNOWN)
            user = answer.body.get("user")
            self.learn({**(user if isinstance(user, dict) else {}), "id": id})
        return len(missing) <= PER_CALL


LIST_PAGE = 999

"""Slack's largest: lists of channels and people are long, and may be asked for only 20 times a minute."""

NEW_CHANNELS, NEW_NAMES = 600, 86_400

"""Seconds after which channels are listed again: to find new ones, or only for their names."""

FORGOTTEN = frozenset({"invalid_cursor"})

LONGEST_PAUSE = 120


def kinds(dms: bool) -> str:
    return "public_channel,private_channel" + (",im,mpim" if dms else "")


def label(room: Room | Found, id: str) -> str:
    return f"#{room.name}" if room.name and not room.kind else id


def picked(found: Mapping[str, Found], written: Sequence[str]) -> dict[str, Found]:
    """Those that were asked for by name or id, and direct messages; without any names, those that the bot is in."""
    if not written:
        return {id: one for id, one in found.items() if one.member}
    return {id: one for id, one in found.items() if one.kind or any(_is(name, id, one) for name in written)}


def absent(found: Mapping[str, Found], written: Iterable[str]) -> list[str]:
    return [name for name in written if not any(_is(name, id, one) for id, one in found.items())]


def meant(found: Mapping[str, Found], written: str) -> tuple[str, Found]:
    """The channel of this name or id, which is there."""
    return next((id, one) for id, one in found.items() if _is(written, id, one))


def turned(answer: Answer, page: str) -> str:
    """The next page; RetryLater if it is the one that was just read."""
    following = answer.next_page
    if following and following == page:
        raise RetryLater(f"Slack gave the same page of {answer.method} again")
    return following


def _is(written: str, id: str, one: Found) -> bool:
    return written == id or written.removeprefix("#").casefold() == one.name.casefold() != ""


class Directory:
    """Fills in what a place has to know before channels can be read."""

    def __init__(self, query: Query, slack: Slack, clock: Clock) -> None:
        self._query = query
        self._slack = slack
        self._clock = clock
        self._written = [written for written in query.mentions if user_id(written) is None]

    def people(self, place: Place) -> frozenset[str]:
        """The ids of all who are mentioned."""
        return frozenset(user_id(written) or place.people[written] for written in self._query.mentions)

    def lacks_people(self, place: Place) -> bool:
        return any(written not in place.people for written in self._written)

    def lacks_channels(self, place: Place) -> bool:
        """Whether channels are to be listed now: before the first of them is read, and once a read."""
        reading = place.reading
        if reading and (reading.listed or reading.pages or reading.room > min(place.rooms, default="")):
            return False
        fixed = self._query.channels and not self._query.include_dms
        return place.stale or place.listing is not None or self._old(place.listed, NEW_NAMES if fixed else NEW_CHANNELS)

    async def search(self, place: Place) -> Place:
        """Look through one page of people. All pages are read, since a name may be there twice."""
        naming = place.naming
        if naming is None or self._old(naming.seen, LONGEST_PAUSE):
            naming = Naming(seen="", page="")
        answer = await self._page("users.list", {}, naming.page)
        if answer.error:
            return msgspec.structs.replace(place, naming=None)
        members = answer.rows("members")
        found = {name: [*naming.found.get(name, ()), *matching(members, name)] for name in self._written}
        following = turned(answer, naming.page)
        if following:
            return msgspec.structs.replace(place, naming=Naming(seen=self._now(), page=following, found=found))
        wrong = [sentence for name, ids in found.items() if (sentence := unclear(name, ids))]
        if wrong:
            raise NeedsAttention("; ".join(wrong), fix="Correct mentions: in the query")
        people = {name: ids[0] for name, ids in found.items()}
        return msgspec.structs.replace(place, naming=None, people=people)

    async def list(self, place: Place) -> Place:
        """Take one page of the channels. What the last one completes is read from now on."""
        listing, now = place.listing, self._now()
        if listing is None or self._old(listing.seen, LONGEST_PAUSE):
            listing = Listing(began=now, seen=now, page="")
        asked = {"types": kinds(self._query.include_dms), "exclude_archived": "true"}
        answer = await self._page("conversations.list", asked, listing.page)
        if answer.error:
            return msgspec.structs.replace(place, listing=None)
        shown = picked(found_in(answer.rows("channels")), self._query.channels)
        listing = Listing(
            began=listing.began if listing.page else min(answer.server_time or now, now, key=micros),
            seen=now,
            page=turned(answer, listing.page),
            found={**listing.found, **shown},
        )
        if listing.page:
            return msgspec.structs.replace(place, listing=listing)
        await self._check(listing)
        return _listed(place, listing)

    async def _page(self, method: str, asked: Mapping[str, str], page: str) -> Answer:
        where: dict[str, str | int] = {"limit": LIST_PAGE, **({"cursor": page} if page else {})}
        return await self._slack.call(method, {**asked, **where}, allow=FORGOTTEN if page else ())

    async def _check(self, listing: Listing) -> None:
        missing = absent(listing.found, self._query.channels)
        if listing.found and not missing:
            return
        what = f"there is no channel {', '.join(missing)} that the bot can see" if missing else "the bot has no channel"
        bot = (await self._slack.who()).name
        raise NeedsAttention(what, fix=f"Correct channels: in the query, or in Slack: /invite @{bot}")

    def _now(self) -> str:
        return stamp(self._clock.now())

    def _old(self, text: str, seconds: int) -> bool:
        return not text or not 0 <= micros(self._now()) - micros(text) < seconds * 1_000_000


def _listed(place: Place, listing: Listing) -> Place:
    assert place.reading is not None
    rooms = rooms_of(place, listing.found, place.reading.since)
    reading = msgspec.structs.replace(place.reading, room=min(rooms), listed=True)
    return msgspec.structs.replace(place, rooms=rooms, listed=listing.began, stale=False, listing=None, reading=reading)
