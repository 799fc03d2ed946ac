"""The event bank of a trigger, and stars."""

from __future__ import annotations

import pytest

from harken.errors import Malformed, NotFound
from tests.operate.operator_world import Office

DAY = 86_400.0


async def pruned(office: Office, keep: int) -> None:
    while await office.store.bank_events(keep):
        pass
    while await office.store.prune(events=DAY, ticks=DAY, runs=DAY, pushed=DAY, audit=DAY):
        pass


async def test_the_last_of_each_outcome_are_there_after_retention(office: Office) -> None:
    for n in range(4):
        await office.shows(office.incident(f"HIGH-{n}"), office.incident(f"LOW-{n}", urgency="low"))
    bank = await office.ask("triggers.bank", name="oncall", limit=2)
    assert [row["key"] for row in bank["fired"]] == ["HIGH-3", "HIGH-2"]
    assert [row["key"] for row in bank["filtered"]] == ["LOW-3", "LOW-2"]
    assert (bank["error"], bank["starred"], bank["keep"]) == ([], [], 200)
    for one in await office.store.claim("w", 100, 60):
        await office.store.cancel(one.id)
    assert {verdict["trigger"] for row in bank["filtered"] for verdict in row["verdicts"]} == {"oncall"}
    assert all("data" not in row for row in bank["fired"])


async def test_a_star_keeps_an_event_and_is_shown_with_its_note(office: Office) -> None:
    await office.shows(office.incident("A", urgency="low"), office.incident("B", urgency="low"))
    await office.ask("events.star", id=1, trigger="oncall", note="the odd one")
    assert (await office.ask("events.show", id=1))["starred"] is True
    for run in (await office.store.runs()).items:
        await office.store.cancel(run.id)
    office.clock.advance(3 * DAY)
    await pruned(office, 0)
    [row] = (await office.ask("triggers.bank", name="oncall"))["starred"]
    assert (row["key"], row["star"]["note"], row["star"]["by"]) == ("A", "the odd one", "operator")
    assert (await office.ask("triggers.bank", name="digest"))["starred"] == []
    await office.ask("events.unstar", id=1)
    await pruned(office, 0)
    assert (await office.store.events()).items == []


async def test_what_is_wrong_is_said(office: Office) -> None:
    with pytest.raises(NotFound, match="no event 7"):
        await office.ask("events.star", id=7)
    with pytest.raises(NotFound, match="is not starred"):
        await office.ask("events.unstar", id=7)
    with pytest.raises(NotFound, match="no trigger nope"):
        await office.ask("triggers.bank", name="nope")
    with pytest.raises(Malformed, match="limit must be"):
        await office.ask("triggers.bank", name="oncall", limit=201)


async def test_a_person_who_is_forgotten_has_no_star_left(office: Office) -> None:
    await office.shows(office.incident("ana@example.com", urgency="low"))
    await office.ask("events.star", id=1, note="from ana@example.com")
    await office.ask("events.forget", subject="ana@example.com", yes=True)
    assert await office.store.documents("starred") == []
