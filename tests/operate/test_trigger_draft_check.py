"""A draft of a trigger is checked and tried by what checks and fires triggers, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from harken.backends.sqlite import SqliteStore
from harken.errors import Forbidden, Malformed
from harken.event import Event
from harken.operate.principal import Principal
from harken.testing import HandClock, VirtualClock, virtual
from harken.testing.fakes import Listing
from tests.operate.operator_world import POLLED, Office, opened, trigger
from tests.system.hostile.world import House

STEPS = {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]}
BY_HAND: dict[str, Any] = {"name": "mine", "provider": "api", "config": None, "workflow": STEPS}
CLAUSES = (
    'event.urgency == "high"',
    "event.size <= 5",
    "event.size in [1, 5, 7.5]",
    "event.open",
    "!has(event.closed_at)",
    'event.labels.exists(l, l == "bug")',
    "size(event.labels) > 1",
    'timestamp(event.at) >= timestamp("2026-01-05T00:00:00Z")',
    'event.who.name.startsWith("a")',
    'meta.type == "json.item"',
    "event.note == null",
    'event.urgency == "low" ? event.open : event.size > 2.5',
)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with opened(tmp_path) as found:
        yield found


def odd_event(random: Random, number: int, office: Office) -> Event:
    """Any of the types that JSON has, at every field, or nothing."""
    anything = [None, True, False, 0, 1, 5, 6, 7.5, -1, "high", "low", "", "7", [], ["bug"], ["bug", "x"], {}, {"a": 1}]
    data: dict[str, Any] = {"id": f"I{number}"}
    for name in ("urgency", "size", "open", "closed_at", "labels", "at", "who", "note"):
        if random.random() < 0.85:
            data[name] = random.choice(anything)
    if random.random() < 0.7:
        data |= {"urgency": random.choice(["high", "low"]), "size": random.choice([1, 3, 5, 9]), "open": True}
        data |= {"labels": random.choice([["bug"], ["bug", "ui"], []]), "who": {"name": random.choice(["ana", "bob"])}}
        data |= {"at": random.choice(["2026-01-05T09:00:00Z", "2020-01-01T00:00:00+01:00", "soon"]), "note": None}
    kind = random.choice(["json.item", "json.item", "json.other"])
    return Event(subject=f"I{number}", type=kind, data=data, occurred_at=office.clock.now())


async def test_each_clause_says_what_the_engine_decided_on_a_thousand_recorded_events(tmp_path: Path) -> None:
    clock = HandClock()
    store = SqliteStore.at(tmp_path / "harken.db", clock, inline=True)
    office = Office(store, clock, tmp_path)
    alone = [trigger(f"clause-{at}", condition=clause) for at, clause in enumerate(CLAUSES)]
    pairs = [(0, 1), (1, 3), (5, 6, 8), (4, 9, 10), (11, 2), (7, 3)]
    joined = [
        trigger(f"both-{n}", condition=" && ".join(f"({CLAUSES[at]})" for at in pair)) for n, pair in enumerate(pairs)
    ]
    office.operator.loaded = office.loaded = replace(office.loaded, triggers=(*alone, *joined))
    await store.open(office.loaded.definitions())
    clock.advance(60)
    random = Random(17)
    for page in range(10):
        await office.shows(*(odd_event(random, page * 100 + n, office) for n in range(100)))
        clock.advance(60)
    events = (await office.ask("events.list", feed=POLLED.name, limit=500))["items"]
    assert len(events) == 500
    recorded = {
        event.id: {verdict.trigger: verdict.outcome for verdict in event.verdicts}
        for event in (await store.events(feed=POLLED.name, limit=1000)).items
    }
    assert len(recorded) == 1000
    says = {"fired": "true", "filtered": "false", "error": "error"}
    seen: set[str] = set()
    for number, pair in enumerate(pairs):
        condition = " && ".join(f"({CLAUSES[at]})" for at in pair)
        draft = await office.ask("triggers.draft", **BY_HAND, condition=condition, events_of=POLLED.name, limit=1000)
        assert [one["clause"] for one in draft["clauses"]] == [CLAUSES[at] for at in pair]
        assert draft["dry_run"]["events"] == 1000
        for row in draft["dry_run"]["shown"]:
            verdicts = recorded[row["id"]]
            assert row["clauses"] == [says[verdicts[f"clause-{at}"]] for at in pair], row
            assert row["outcome"] == verdicts[f"both-{number}"], row
            seen.update(row["clauses"])
        for position, one in enumerate(draft["clauses"]):
            passed = sum(row["clauses"][position] == "true" for row in draft["dry_run"]["shown"])
            assert one["passed"] == passed and one["passed"] + one["failed"] + one["errors"] == 1000
    assert seen == {"true", "false", "error"}
    await store.close()


async def test_a_draft_counts_per_hour_what_came_and_what_it_lets_through(office: Office) -> None:
    for hour in range(3):
        await office.shows(
            *(
                Event(subject=f"{hour}-{n}", type="json.item", data={"n": n}, occurred_at=office.clock.now())
                for n in range(hour + 1)
            )
        )
        office.clock.advance(3600)
    draft = await office.ask("triggers.draft", **BY_HAND, condition="event.n == 0", events_of="oncall", hours=5)
    counted = [(row["events"], row["would_fire"]) for row in draft["hours"]]
    assert counted == [(0, 0), (1, 1), (2, 1), (3, 1), (0, 0)]


async def test_whatever_is_wrong_is_told_at_its_field_in_the_words_of_the_check(office: Office) -> None:
    config = {"integration": "json", "query": {"url": 3, "nope": 1}}
    options = {"quiet_hours": {"start": "22:00"}}
    wrong = {"name": "mine", "provider": "poll", "config": config, "options": options, "workflow": {"steps": []}}
    draft = await office.ask("triggers.draft", **wrong, condition="event.x ==")
    assert not draft["ok"] and draft["dry_run"] is None
    paths = {".".join(map(str, one["path"])): one["message"] for one in draft["problems"]}
    assert paths["trigger.poll.query.url"] == "must be text, not a number"
    assert paths["trigger.poll.query.nope"] == "there is no such setting"
    assert paths["trigger.quiet_hours.end"] == "is missing"
    assert paths["trigger.condition"].startswith("1:11: Syntax error")


@pytest.mark.parametrize(
    ("given", "path", "message"),
    [
        ({**BY_HAND, "provider": "polls"}, ["provider"], "'polls' is not a kind of trigger"),
        ({**BY_HAND, "workflow": 3}, ["workflow"], "workflow: is neither a name nor steps"),
        ({**BY_HAND, "workflow": "nope"}, ["workflow"], "there is no workflow 'nope' in the files"),
        ({**BY_HAND, "name": ""}, ["name"], "it has no name yet"),
        ({**BY_HAND, "name": "oncall"}, ["name"], "the name oncall is taken by"),
        ({**BY_HAND, "yaml": "trigger: [1"}, [], "not YAML"),
        ({**BY_HAND, "yaml": "- 1"}, [], "it is no workflow file"),
        ({**BY_HAND, "yaml": "trigger: 3"}, [], "trigger: is not a mapping"),
        ({**BY_HAND, "yaml": "trigger: {poll: {}, schedule: {}}"}, ["trigger"], "a row has a trigger of one kind"),
    ],
)
async def test_a_draft_that_cannot_be_used_is_an_answer_and_no_error(
    office: Office, given: dict[str, Any], path: list[str], message: str
) -> None:
    draft = await office.ask("triggers.draft", **given)
    assert not draft["ok"]
    assert any(one["path"] == path and message in one["message"] for one in draft["problems"]), draft["problems"]


async def test_yaml_becomes_the_fields_and_back(office: Office) -> None:
    yaml = (
        "name: late\ntrigger:\n  schedule:\n    every: 1h\n  condition: event.n > 3\n  overlap: skip\n"
        "steps:\n  - id: say\n    action: transform\n    set:\n      text: hi\n"
    )
    draft = await office.ask("triggers.draft", yaml=yaml)
    assert draft["ok"] and draft["yaml"] == yaml and len(draft["next"]) == 5
    fields = draft["row"]
    assert fields == {
        "name": "late",
        "provider": "schedule",
        "config": {"every": "1h"},
        "condition": "event.n > 3",
        "options": {"overlap": "skip"},
        "workflow": STEPS,
    }
    assert (await office.ask("triggers.draft", **fields))["yaml"] == yaml


async def test_steps_may_be_yaml_and_what_is_wrong_with_them_has_its_line_there(office: Office) -> None:
    steps = "steps:\n  - id: say\n    action: transform\n    set: {text: hi}\n"
    draft = await office.ask("triggers.draft", name="mine", provider="api", steps=steps)
    assert draft["ok"] and draft["row"]["workflow"] == STEPS
    wrong = await office.ask("triggers.draft", name="mine", provider="api", steps=steps.replace("transform", "nope"))
    [problem] = wrong["problems"]
    assert (problem["path"], problem["line"]) == (["steps", 0, "action"], 3)
    for broken in ("steps: [1", "- 1", "3"):
        [problem] = (await office.ask("triggers.draft", name="mine", provider="api", steps=broken))["problems"]
        assert problem["path"] == ["steps"]


async def test_a_pasted_block_keeps_the_name_and_the_steps_that_are_there(office: Office) -> None:
    draft = await office.ask("triggers.draft", **BY_HAND, yaml="schedule: {every: 5m}\ncondition: event.n > 3\n")
    assert draft["ok"] and draft["row"]["name"] == "mine" and draft["row"]["workflow"] == STEPS
    assert (draft["row"]["provider"], draft["row"]["condition"]) == ("schedule", "event.n > 3")


async def test_a_secret_is_a_reference_in_the_yaml(office: Office) -> None:
    config = {"secret": "a-very-secret-text"}
    draft = await office.ask("triggers.draft", name="hook", provider="webhook", config=config, workflow=STEPS)
    assert draft["ok"] and draft["address"] == "/webhooks/generic/hook"
    assert "${secret:hook-secret}" in draft["yaml"] and "a-very-secret-text" not in draft["yaml"]


async def test_nothing_is_stored(office: Office) -> None:
    before = [state.name for state in await office.store.triggers()]
    await office.ask("triggers.draft", **BY_HAND, condition="event.n > 3", events_of="oncall", hours=24)
    assert [state.name for state in await office.store.triggers()] == before
    assert (await office.ask("audit.list"))["items"] == []


async def test_too_much_is_refused(office: Office) -> None:
    with pytest.raises(Malformed, match="limit must be 0 to 1000"):
        await office.ask("triggers.draft", **BY_HAND, limit=1001)
    with pytest.raises(Malformed, match="hours must be 0 to 744"):
        await office.ask("triggers.draft", **BY_HAND, hours=745)


async def test_an_owner_tries_a_draft_on_no_events_but_its_own(office: Office) -> None:
    await office.shows(Event(subject="I1", type="json.item", data={"n": 1}, occurred_at=office.clock.now()))
    ana = office.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))
    draft = await ana.call("triggers.draft", **BY_HAND, events_of="oncall", hours=24)
    assert draft["dry_run"]["events"] == 0 and draft["hours"] == []
    with pytest.raises(Forbidden):
        await ana.call("triggers.draft", name="mine", yaml="webhook: {secret: '${secret:theirs}'}")
    viewer = office.operator.acting_as(Principal(name="eve", role="viewer"))
    with pytest.raises(Forbidden):
        await viewer.call("triggers.draft", **BY_HAND)


@virtual
async def test_a_service_is_read_once_while_only_the_condition_changes(clock: VirtualClock, tmp_path: Path) -> None:
    tmp_path.joinpath("harken.yaml").write_text("{}\n")
    house = House(tmp_path, clock)
    await house.up()
    listing = Listing(clock)
    async with listing.serve():
        for state in ("open", "open", "open", "closed"):
            listing.add(f"I{len(listing.visible())}", state=state)
        query = {"url": f"{listing.url}/offsets", "items_path": "items", "allow_private_networks": True}
        config = {"integration": "json", "interval": "10m", "query": query}
        row = {"name": "shop", "provider": "poll", "config": config, "workflow": STEPS}
        asked = len(listing.seen)
        quiet = await house.ask("triggers.draft", **row)
        assert quiet["dry_run"]["source"] == "none" and quiet["dry_run"]["can_read"]
        assert len(listing.seen) == asked
        first = await house.ask("triggers.draft", **row, condition='event.state == "open"', read=True)
        assert first["dry_run"]["source"] == "read", first["dry_run"]
        assert (first["dry_run"]["would_fire"], first["dry_run"]["would_not"]) == (3, 1)
        assert first["dry_run"]["sentence"] == "3 events would start a run, 1 would not"
        asked = len(listing.seen)
        second = await house.ask("triggers.draft", **row, condition='event.state == "closed"', read=True)
        assert second["dry_run"]["would_fire"] == 1 and len(listing.seen) == asked
        clock.jump(61)
        await house.ask("triggers.draft", **row, read=True)
        assert len(listing.seen) > asked
    clock.jump(61)
    gone = await house.ask("triggers.draft", **row, read=True)
    assert gone["ok"] and "could not connect" in gone["dry_run"]["trouble"]["message"]
    await house.down()
