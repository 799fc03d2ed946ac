"""A backtest goes through what fires: unchanged rules give every recorded verdict, a change shows its difference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from harken.backends.sqlite import SqliteStore
from harken.errors import HarkenError, Misconfigured, NotFound
from harken.event import Event
from harken.feed import Budget, Debounce, Dedupe, Digest, Join, Part, Throttle, Trigger
from harken.runs import Finished, StepRecord
from harken.schedule import Quiet
from harken.store import Settlement
from harken.testing import HandClock
from tests.operate.operator_world import PUSHED, Office, trigger

CONDITION = 'event.urgency == "high" && event.size <= 5'


@asynccontextmanager
async def office_with(directory: Path, *triggers: Trigger) -> AsyncIterator[Office]:
    clock = HandClock()
    store = SqliteStore.at(directory / "harken.db", clock, inline=True)
    made = Office(store, clock, directory)
    made.operator.loaded = made.loaded = replace(made.loaded, triggers=triggers)
    await store.open(made.loaded.definitions())
    clock.advance(60)
    yield made
    await store.close()


def item(office: Office, name: str, **data: Any) -> Event:
    return Event(subject=name, type="json.item", data={"id": name, **data}, occurred_at=office.clock.now())


async def work(office: Office, claimed: list[Any], random: Random) -> None:
    """Some runs start, some end."""
    claimed += await office.store.claim("w", 3, 1e6)
    for one in [one for one in claimed if random.random() < 0.5]:
        claimed.remove(one)
        spent = StepRecord(path="a", action="llm", status="ok", tokens=100, usd=0.01)
        await office.store.journal(one.id, one.token, [spent])
        await office.store.settle([Settlement(id=one.id, token=one.token, outcome=Finished())])


async def live(office: Office, seed: int, rounds: int = 60, *, pushed: bool = False) -> None:
    """A day with random events, runs, and now and then a pause."""
    random, claimed = Random(seed), list[Any]()
    paused = False
    for number in range(rounds):
        office.clock.advance(random.choice([1, 20, 300, 1800]))
        events = [
            item(
                office,
                f"I{number}-{n}",
                urgency=random.choice(["high", "low"]),
                size=random.choice([1, 5, 6, "many", None]),
                team=random.choice(["a", "b"]),
            )
            for n in range(random.choice([1, 1, 3]))
        ]
        await office.shows(*events)
        if pushed and random.random() < 0.5:
            await office.shows(item(office, f"P{number}", team=random.choice(["a", "b"])), feed=PUSHED.name)
        await work(office, claimed, random)
        if random.random() < 0.1:
            await office.ask("triggers.resume" if paused else "triggers.pause", name="oncall")
            paused = not paused


BOTH = (
    Part(name="high", by="event.team", when='event.urgency == "high"'),
    Part(name="small", by="event.team", when='event.urgency == "low" && event.size in [1, 5]'),
)


def join(**changes: Any) -> Join:
    return msgspec.structs.replace(Join(parts=BOTH, within=600), **changes)


RULES = {
    "plain": trigger(condition=CONDITION),
    "no condition": trigger(),
    "mapped": trigger(condition=CONDITION, mapping={"what": "{{ .event.size.deep }}"}),
    "digest": trigger(condition=CONDITION, gather=Digest(window=600, max=4, by="{{ .event.team }}")),
    "debounce": trigger(condition=CONDITION, gather=Debounce(window=300, max_wait=900, by="{{ .event.team }}")),
    "throttle": trigger(condition=CONDITION, throttle=Throttle(most=2, per=900, by="{{ .event.team }}")),
    "throttle that drops": trigger(condition=CONDITION, throttle=Throttle(most=1, per=900, rest="drop")),
    "skip": trigger(condition=CONDITION, overlap="skip", concurrency_key="{{ .event.team }}"),
    "queue": trigger(condition=CONDITION, overlap="queue"),
    "cancel previous": trigger(condition=CONDITION, overlap="cancel_previous"),
    "quiet hours": trigger(condition=CONDITION, gather=Digest(window=60), quiet=Quiet(start="10:00", end="12:00")),
    "old": trigger(condition=CONDITION, max_age=0.5),
    "dedupe": trigger(condition=CONDITION, dedupe=Dedupe(by="{{ .event.team }}", within=1200)),
    "dedupe and digest": trigger(
        condition=CONDITION, dedupe=Dedupe(by="event.size", within=1200), gather=Digest(window=900, max=3)
    ),
    "dedupe, throttle and skip": trigger(
        condition=CONDITION,
        dedupe=Dedupe(by="{{ .event.team }}-{{ .event.size }}", within=900),
        throttle=Throttle(most=2, per=1800),
        overlap="skip",
    ),
    "throttled digest in quiet hours": trigger(
        gather=Digest(window=120, by="{{ .event.team }}"),
        throttle=Throttle(most=1, per=600),
        quiet=Quiet(start="11:00", end="13:00"),
        overlap="queue",
    ),
    "join": trigger(gather=join()),
    "join behind a condition": trigger(condition="event.team == 'a'", gather=join(within=3600)),
    "join in order": trigger(gather=join(form="then", on_miss="run")),
    "join with none": trigger(gather=join(none=("small",), on_miss="run")),
    "join of any": trigger(gather=join(form="any", count=1, within=60)),
    "join with a broken part": trigger(gather=join(parts=(Part(name="big", by="event.team", when="event.size > 3"),))),
    "join of two feeds": trigger(
        gather=join(parts=(*BOTH[:1], Part(name="pushed", by="event.team", feed=PUSHED.name)))
    ),
    "meta": trigger(condition='meta.type == "json.item" && event.urgency == "high"'),
}


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("seed", [1, 2])
async def test_unchanged_rules_give_every_recorded_verdict(tmp_path: Path, rules: str, seed: int) -> None:
    async with office_with(tmp_path, RULES[rules]) as office:
        await live(office, seed, pushed=len(RULES[rules].feeds) > 1)
        answer = await office.ask("triggers.backtest", name="oncall")
        recorded = [event for event in (await office.store.events(limit=500)).items]
        assert answer["differing"] == []
        assert (answer["events"], answer["not_checked"]) == (len(recorded), {})
        assert answer["reproduced"] == answer["checked"] == len(recorded)
        assert answer["not_checked"] == {}
        assert "(100%)" in answer["lines"][1]
        assert answer["recorded"] == answer["now"]


async def test_a_budget_is_reproduced_or_said_to_be_unknown(tmp_path: Path) -> None:
    rules = trigger(condition=CONDITION, budget=Budget(runs_per_hour=2, tokens_per_day=900))
    async with office_with(tmp_path, rules) as office:
        await live(office, 3)
        answer = await office.ask("triggers.backtest", name="oncall")
        assert answer["differing"] == []
        assert answer["recorded"]["held"] > 0
        assert answer["checked"] + sum(answer["not_checked"].values()) == answer["events"]


async def test_a_changed_condition_shows_what_it_gains_and_loses(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition='event.urgency == "high"')) as office:
        await office.shows(item(office, "A", urgency="high", size=1), item(office, "B", urgency="low", size=9))
        await office.shows(item(office, "C", urgency="high", size=9), item(office, "D", urgency="low", size=1))
        answer = await office.ask("triggers.backtest", name="oncall", condition="event.size > 5", last="1h")
        assert answer["diff"] == {"would_fire": 1, "would_no_longer_fire": 1, "unchanged": 2, "had_it_listened": 0}
        assert [row["key"] for row in answer["would_fire"]] == ["B"]
        assert [row["key"] for row in answer["would_no_longer_fire"]] == ["A"]
        assert answer["not_reproduced"] == 0
        assert answer["runs"] == {"recorded": 2, "now": 2}
        assert "with the changed condition 1 more would fire, 1 would no longer, 2 stay as they are" in answer["lines"]


async def test_a_changed_condition_of_a_digest_counts_runs(tmp_path: Path) -> None:
    rules = trigger(condition='event.urgency == "high"', gather=Digest(window=600))
    async with office_with(tmp_path, rules) as office:
        for name, urgency in (("A", "high"), ("B", "low"), ("C", "high")):
            await office.shows(item(office, name, urgency=urgency))
            office.clock.advance(400)
        answer = await office.ask("triggers.backtest", name="oncall", condition="true")
        assert answer["runs"] == {"recorded": 2, "now": 2}
        assert answer["diff"]["would_fire"] == 1
        assert answer["now"] == {"gathered": 3, "filtered": 0}


async def test_clauses_are_blamed_for_what_they_alone_held_back(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        sizes = {"A": 7, "B": 9, "C": 7, "D": 3}
        await office.shows(*(item(office, name, urgency="high", size=size) for name, size in sizes.items()))
        await office.shows(item(office, "E", urgency="low", size=9), item(office, "F", urgency="low", size=1))
        answer = await office.ask("triggers.backtest", name="oncall")
        urgency, size = answer["clauses"]
        assert (urgency["failed"], urgency["alone"], size["failed"], size["alone"]) == (2, 1, 4, 3)
        assert size["change"] == "event.size <= 7"
        assert size["adds"] == 2
        assert size["condition"] == 'event.urgency == "high" && event.size <= 7'
        assert size["values"] == {"7": 2, "9": 1}
        assert urgency["change"] == 'event.urgency in ["high", "low"]'
        assert "  smallest change: event.size <= 7 lets 2 more through" in answer["lines"]


async def test_the_nearest_number_is_proposed_also_if_it_comes_after_hundreds_of_others(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        sizes = [*range(1_000, 1_300), 900, 800, 7, 8, 7, 2_000, 950]
        await office.shows(*(item(office, f"I{at}", urgency="high", size=size) for at, size in enumerate(sizes)))
        size = (await office.ask("triggers.backtest", name="oncall"))["clauses"][1]
        assert (size["alone"], size["change"], size["adds"]) == (307, "event.size <= 7", 2)


async def test_the_word_that_lets_most_through_is_proposed(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        words = ("low", "medium", "medium", "none", "medium")
        await office.shows(*(item(office, f"I{at}", urgency=word, size=1) for at, word in enumerate(words)))
        urgency = (await office.ask("triggers.backtest", name="oncall"))["clauses"][0]
        assert (urgency["change"], urgency["adds"]) == ('event.urgency in ["high", "medium"]', 3)


async def test_the_change_that_is_proposed_does_what_it_says(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        await live(office, 5)
        first = await office.ask("triggers.backtest", name="oncall")
        for row in [row for row in first["clauses"] if row["condition"]]:
            again = await office.ask("triggers.backtest", name="oncall", condition=row["condition"])
            assert again["diff"]["would_fire"] >= row["adds"] > 0
            assert again["diff"]["would_no_longer_fire"] == 0


async def test_what_came_before_the_start_line_is_told_apart(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        old = msgspec.structs.replace(
            item(office, "A", urgency="high", size=1), occurred_at=office.clock.now() - timedelta(days=1)
        )
        await office.shows(old, item(office, "B", urgency="high", size=1))
        answer = await office.ask("triggers.backtest", name="oncall")
        assert answer["recorded"] == {"fired": 1, "before_start": 1}
        assert (answer["checked"], answer["not_reproduced"]) == (2, 0)
        assert answer["diff"]["had_it_listened"] == 1


async def test_verdicts_of_an_edited_trigger_are_not_called_the_same(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        await office.shows(item(office, "A", urgency="high", size=9))
        edited = replace(office.loaded, triggers=(trigger(condition='event.urgency == "high"'),))
        office.operator.loaded = edited
        await office.store.open(edited.definitions())
        answer = await office.ask("triggers.backtest", name="oncall")
        assert (answer["reproduced"], answer["not_reproduced"]) == (0, 1)
        assert answer["differing"][0]["recorded"] == "filtered"


async def test_a_new_trigger_says_that_it_has_no_verdicts(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger("other")) as office:
        await office.shows(item(office, "A", urgency="high", size=1))
        both = replace(office.loaded, triggers=(trigger("other"), trigger(condition=CONDITION)))
        office.operator.loaded = both
        await office.store.open(both.definitions())
        answer = await office.ask("triggers.backtest", name="oncall")
        assert answer["checked"] == 0
        assert answer["not_checked"] == {"the trigger did not listen when they came": 1}
        assert answer["diff"]["had_it_listened"] == 1


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"name": "uncall"}, NotFound),
        ({"name": "oncall", "condition": "event."}, HarkenError),
        ({"name": "oncall", "condition": "evnt.size > 1"}, HarkenError),
        ({"name": "oncall", "last": "a week"}, Misconfigured),
        ({"name": "oncall", "last": "7d", "since": "1d"}, Misconfigured),
        ({"name": "oncall", "since": "1d", "until": "2d"}, Misconfigured),
    ],
)
async def test_what_cannot_be_tested_is_refused(office: Office, asked: dict[str, str], error: type[Exception]) -> None:
    with pytest.raises(error):
        await office.ask("triggers.backtest", **asked)


async def test_only_the_span_is_read(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger()) as office:
        for name in "ABCD":
            await office.shows(item(office, name))
            office.clock.advance(3600)
        assert (await office.ask("triggers.backtest", name="oncall", last="2h30m"))["events"] == 2
        answer = await office.ask("triggers.backtest", name="oncall", since="3h30m", until="90m")
        assert answer["events"] == 2


async def test_costs_are_estimated_by_the_last_runs(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger()) as office:
        await office.shows(item(office, "A"), item(office, "B"))
        for one in await office.store.claim("w", 2, 60):
            spent = StepRecord(path="a", action="llm", status="ok", tokens=100, usd=0.5)
            await office.store.journal(one.id, one.token, [spent])
            await office.store.settle([Settlement(id=one.id, token=one.token, outcome=Finished())])
        cost = (await office.ask("triggers.backtest", name="oncall", last="1h"))["cost"]
        assert (cost["tokens_per_run"], cost["usd"], cost["usd_per_day"]) == (100, 1.0, 24.0)


async def test_explain_and_show_name_the_clause_that_alone_held_back(tmp_path: Path) -> None:
    async with office_with(tmp_path, trigger(condition=CONDITION)) as office:
        await office.shows(item(office, "A", urgency="high", size=7), item(office, "B", urgency="low", size=7))
        near = await office.ask("triggers.explain", name="oncall", key="A")
        assert near["details"]["near_miss"] == (
            "only event.size <= 5 held it back, the other clause was true; it would have fired with event.size <= 7"
        )
        assert "near_miss" not in (await office.ask("triggers.explain", name="oncall", key="B"))["details"]
        assert (await office.ask("triggers.show", name="oncall"))["clauses"] == [
            {"clause": 'event.urgency == "high"', "failed": 1, "alone": 0},
            {"clause": "event.size <= 5", "failed": 2, "alone": 1},
        ]


async def test_what_was_counted_is_summed_up_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More kinds of events than are kept in memory give the same answer."""
    async with office_with(tmp_path, trigger("oncall", condition=CONDITION)) as office:
        await live(office, 3)
        whole = await office.operator.call("triggers.backtest", name="oncall", condition="event.size <= 3")
        monkeypatch.setattr("harken.operate.backtest_scan.FIRST_PAGE", 5)
        monkeypatch.setattr("harken.operate.backtest_scan.LARGEST_PAGE", 5)
        monkeypatch.setattr("harken.operate.backtest_scan.MOST_PAIRS", 2)
        assert await office.operator.call("triggers.backtest", name="oncall", condition="event.size <= 3") == whole
