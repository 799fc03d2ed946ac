"""What each trigger saw and matched by the hour: counted by every replica, read for the triggers that are shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harken.app.trigger_outcome_counts_over_time import SAVE_SECONDS, TriggerActivityLog
from harken.errors import Malformed
from harken.event import Event, Outcome, Verdict
from harken.operate.trigger_activity_counts import HOUR, Counts, add_verdicts, document_of, merge_counts
from harken.store import Commit, Committed, Entry
from tests.operate.operator_world import Office

NOON = 1_800_000_000.0 - 1_800_000_000.0 % HOUR
NAMES = {"u1": "oncall"}


def counted(at: float, *outcomes: Outcome) -> Counts:
    found: Counts = {}
    for outcome in outcomes:
        add_verdicts(found, [Verdict(trigger="u1", outcome=outcome)], NAMES, at)
    return found


def commit(*outcomes: Outcome) -> tuple[Commit, Committed]:
    event = Event(subject="INC-1", type="t", data={}, occurred_at=datetime(2026, 1, 1, tzinfo=UTC))
    entries = [Entry(event=event, memory_id="") for _ in outcomes]
    verdicts = [(Verdict(trigger="u1", outcome=outcome),) for outcome in outcomes]
    return Commit(feed="f", revision=1, entries=entries), Committed(event_ids=range(len(outcomes)), verdicts=verdicts)


def test_what_started_a_run_has_matched_and_a_duplicate_is_no_event() -> None:
    found = counted(NOON + 5, "fired", "gathered", "held", "filtered", "before_start", "duplicate")["oncall"]

    assert found.hours == {str(int(NOON)): [5, 3]}
    assert (found.last_event, found.last_match) == (NOON + 5, NOON + 5)


def test_a_verdict_may_have_the_name_itself() -> None:
    found: Counts = {}
    add_verdicts(found, [Verdict(trigger="deploys", outcome="fired")], NAMES, NOON)

    assert list(found) == ["deploys"]


def test_counts_of_replicas_are_added_and_hours_of_yesterday_are_dropped() -> None:
    merged = merge_counts(counted(NOON - 24 * HOUR, "fired"), counted(NOON, "filtered"), NOON)

    assert merged["oncall"].hours == {str(int(NOON)): [1, 0]}
    assert merged["oncall"].last_match == NOON - 24 * HOUR, "when the last match was is still known"
    assert merge_counts(merged, {}, NOON + 31 * 24 * HOUR) == {}


def test_triggers_are_spread_over_a_bounded_number_of_documents() -> None:
    assert len({document_of(f"trigger-{number}") for number in range(5_000)}) == 64


async def test_two_replicas_add_to_the_same_numbers_and_the_answer_has_what_is_not_saved_yet(office: Office) -> None:
    logs = [TriggerActivityLog(office.store, office.clock) for _ in range(2)]
    name = "oncall"
    for round in range(3):
        office.clock.advance(SAVE_SECONDS)
        for log in logs:
            log.count(*commit("fired", "filtered"), {"u1": name})
            await log.save(ending=round == 2)
    logs[0].count(*commit("fired"), {"u1": name})
    office.engine.trigger_activity = logs[0].unsaved()
    answer = await office.ask("triggers.activity", names=[name, "no-such"])

    (row,) = answer["items"]
    assert (row["name"], sum(row["events"]), sum(row["matched"])) == (name, 13, 7)
    assert len(row["events"]) == len(row["matched"]) == 24
    assert row["last_match_at"] is not None


async def test_what_could_not_be_written_is_written_later(office: Office) -> None:
    log = TriggerActivityLog(office.store, office.clock)
    name = "oncall"
    log.count(*commit("fired"), {"u1": name})
    log.count(*commit("fired"), {"u1": f"{name}-too"})
    put, office.store.put = office.store.put, None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        await log.save(ending=True)
    office.store.put = put  # type: ignore[method-assign]
    await log.save(ending=True)

    assert sum((await office.ask("triggers.activity", names=[name]))["items"][0]["events"]) == 1
    assert log.unsaved() == {}


async def test_without_names_all_triggers_are_listed_in_pages(office: Office) -> None:
    first = await office.ask("triggers.activity", limit=2)
    rest = await office.ask("triggers.activity", limit=2, cursor=first["next"])

    assert [row["name"] for row in (*first["items"], *rest["items"])] == ["deploys", "digest", "oncall"]
    with pytest.raises(Malformed):
        await office.ask("triggers.activity", names=[str(number) for number in range(201)])
