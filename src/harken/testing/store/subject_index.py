"""The contract of events that are found by the name of what they are about."""

from __future__ import annotations

from typing import Any

import msgspec

from harken.event import Event
from harken.store import Store
from harken.testing.store.world import Given, Reopen, StoreWorld, definitions, feed

__all__ = ["ObjectsContract", "index_all"]

DAY = 86_400.0
OTHER_FEED = feed("second", identity="once")


async def index_all(store: Store) -> int:
    done = 0
    while some := await store.index_objects():
        done += some
    return done


async def shows(given: Given, *events: tuple[str, str], feed: str = "inbox") -> None:
    """Commit an event for each subject and key."""
    entries = [
        msgspec.structs.replace(
            given.entry(f"{feed} {subject} {key}"),
            event=Event(subject=subject, key=key, type="t", data={"id": subject}),
            memory_id="",
        )
        for subject, key in events
    ]
    revision = given.opened.feeds[feed].revision
    for begin in range(0, len(entries), 200):
        await given.commit(*entries[begin : begin + 200], feed=feed, revision=revision)


async def keys(given: Given, name: str, **options: Any) -> list[str]:
    return [event.key for event in await given.store.events_about("inbox", name, **options)]


FILLING = [(f"n{number}", f"n{number}@open") for number in range(1000)]


class ObjectsContract(StoreWorld):
    async def test_events_are_found_by_subject_and_what_stands_before_its_time(self, given: Given) -> None:
        await shows(
            given, ("acme/shop#12@7", "acme/shop#12@7@open"), ("INC-1", "INC-1@open"), ("INC-10", "INC-10@open")
        )
        assert await keys(given, "acme/shop#12") == ["acme/shop#12@7@open"]
        assert await keys(given, "acme/shop#12@7") == ["acme/shop#12@7@open"]
        assert await keys(given, "acme/shop") == []
        assert await keys(given, "INC-1") == ["INC-1@open"]
        assert await keys(given, "INC") == []

    async def test_events_are_found_by_what_stands_before_the_mark_in_their_key(self, given: Given) -> None:
        await shows(given, ("10023:h9", "TEAM-3#h9"), ("10024:h1", "TEAM-31#h1"))
        assert await keys(given, "TEAM-3") == ["TEAM-3#h9"]

    async def test_old_events_are_found_as_new_ones_are(self, given: Given) -> None:
        """The same answers, whether housekeeping has been there never, once, or just now."""
        names = ("acme/shop#12", "10023:h9", "TEAM-3", "INC-1", "INC-1@x", "n7", "nobody")
        await shows(given, ("acme/shop#12@7", "acme/shop#12@7@open"), ("10023:h9", "TEAM-3#h9"), ("INC-1@x", "INC-1"))
        await shows(given, *FILLING)
        before = {name: await keys(given, name) for name in names}
        assert [len(found) for found in before.values()] == [1, 1, 1, 1, 1, 1, 0]
        assert await index_all(given.store) == 1000
        assert {name: await keys(given, name) for name in names} == before
        await shows(given, *((subject, f"{key}#2") for subject, key in FILLING))
        await index_all(given.store)
        await shows(given, ("n7", "n7@open#3"))
        assert await keys(given, "n7") == ["n7@open#3", "n7@open#2", "n7@open"]
        assert {name: await keys(given, name) for name in names[:5]} == {name: before[name] for name in names[:5]}

    async def test_the_newest_come_first_and_no_more_than_wanted(self, given: Given) -> None:
        await shows(given, *(("S", f"S@{number}") for number in range(1200)))
        assert await keys(given, "S", limit=3) == ["S@1199", "S@1198", "S@1197"]
        await index_all(given.store)
        assert await keys(given, "S", limit=3) == ["S@1199", "S@1198", "S@1197"]
        found = await keys(given, "S", limit=2000)
        assert found == [f"S@{number}" for number in reversed(range(1200))]

    async def test_other_feeds_have_their_own(self, given: Given) -> None:
        await given.open(definitions(feeds=(*given_feeds(), OTHER_FEED), generation="g2"))
        await given.refresh()
        await shows(given, ("S", "S@1"), feed="second")
        await shows(given, *FILLING)
        assert await keys(given, "S") == []
        await index_all(given.store)
        assert await keys(given, "S") == []
        [event] = await given.store.events_about("second", "S")
        assert (event.feed, event.key) == ("second", "S@1")

    async def test_nothing_is_written_until_a_slice_is_complete(self, given: Given) -> None:
        await shows(given, *FILLING[:900])
        assert await given.store.index_objects() == 0
        assert await keys(given, "n1") == ["n1@open"]

    async def test_indexing_goes_on_after_a_crash(self, given: Given, reopen: Reopen) -> None:
        await shows(given, *FILLING, ("S", "S@1"), *FILLING)
        assert await given.store.index_objects() == 1000
        given.store = await reopen(given.store)
        assert await index_all(given.store) == 1000
        assert await keys(given, "S") == ["S@1"]
        assert len(await keys(given, "n500")) == 2

    async def test_deleted_events_are_not_found_and_later_ones_are(self, given: Given) -> None:
        await shows(given, *FILLING, ("S", "S@1"), *FILLING)
        await index_all(given.store)
        given.clock.advance(2 * DAY)
        while await given.store.prune(events=DAY, ticks=DAY, runs=DAY, pushed=DAY, audit=DAY):
            pass
        await given.renew()
        assert await keys(given, "S") == []
        await shows(given, ("S", "S@2"), *FILLING, *FILLING)
        await index_all(given.store)
        assert await keys(given, "S") == ["S@2"]
        assert await given.store.check() == []

    async def test_hostile_names_are_looked_for_and_not_found(self, given: Given) -> None:
        await shows(given, *FILLING, ("a@" * 50, "#" * 50))
        await index_all(given.store)
        for name in ("@", "#", "a@" * 500, "\0", "%", "*", "\ud800"):
            assert await keys(given, name) in ([], ["#" * 50])
        assert await keys(given, "a") == ["#" * 50]


def given_feeds() -> tuple[Any, ...]:
    return tuple(definitions().feeds)
