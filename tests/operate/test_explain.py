"""Why did it, or did it not, start a run?"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harken.errors import NotFound, Refused
from harken.event import Event, Verdict
from harken.match import Read, Sighting, compile_rules, match
from harken.operate.operator import Operator
from harken.runs import Dead, Finished, Park, StepRecord
from harken.store import Commit, Entry, Settlement
from harken.testing.store.event_decided_by_many_triggers import declined
from tests.operate.operator_world import POLLED, Office


async def explain(office: Office, key: str = "", name: str = "oncall") -> Any:
    return await office.ask("triggers.explain", name=name, key=key)


async def settle(office: Office, outcome: Any) -> None:
    claimed = (await office.store.claim("w", 1, 60))[0]
    step = StepRecord(path="page", action="llm", status="ok")
    await office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=outcome, record=step)])


async def test_an_event_that_fired_names_its_run_and_the_steps_of_it(office: Office) -> None:
    run_id = await office.fires("INC-1")
    await settle(office, Finished())
    answer = await explain(office, "INC-1")
    assert (answer["stage"], answer["outcome"]) == ("run", "fired")
    assert run_id in answer["sentence"]
    assert "done" in answer["sentence"]
    assert answer["details"]["steps"] == ["page: ok"]


async def test_a_number_is_an_event_id_only_with_its_mark(office: Office) -> None:
    await office.shows(office.incident("INC-1"), office.incident("INC-2"))
    marked = await explain(office, "#2")
    assert (marked["details"]["event_id"], marked["details"]["key"]) == (2, "INC-2")
    assert (await explain(office, "2"))["outcome"] == "never_seen"


async def test_an_event_id_of_another_feed_or_of_none_is_refused(office: Office) -> None:
    deploy = Event(subject="d1", type="deploy", data={}, occurred_at=office.clock.now())
    await office.shows(deploy, feed="deploys")
    with pytest.raises(Refused, match="event #1 is of feed deploys"):
        await explain(office, "#1")
    with pytest.raises(NotFound, match="there is no event #7"):
        await explain(office, "#7")


async def test_a_repository_is_not_one_of_its_issues(office: Office) -> None:
    happened = {"urgency": "high"}
    issue = Event(subject="acme/shop#12@7", type="json.item", data=happened, occurred_at=office.clock.now())
    await office.shows(issue)
    assert (await explain(office, "acme/shop"))["outcome"] == "never_seen"
    assert (await explain(office, "acme/shop#12"))["details"]["subject"] == "acme/shop#12@7"


async def test_an_event_is_explained_with_its_title_beside_the_key(office: Office) -> None:
    data = {"urgency": "high", "title": "Disk\n full"}
    await office.shows(Event(subject="INC-1", type="json.item", data=data, occurred_at=office.clock.now()))
    assert 'Event 1 (INC-1 "Disk full") fired' in (await explain(office, "INC-1"))["sentence"]
    assert '#1 INC-1 "Disk full": fired' in (await explain(office))["details"]["recent"][0]


async def test_a_dead_run_is_explained_with_its_error_and_the_command_that_retries_it(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    await settle(office, Dead(error="the pager answered 500"))
    answer = await explain(office, "INC-1")
    assert "is dead after 1 try: the pager answered 500" in answer["sentence"]
    assert any("harken runs retry" in advice for advice in answer["advice"])


async def test_a_run_that_waits_for_a_person_says_how_to_answer(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    claimed = (await office.store.claim("w", 1, 60))[0]
    await office.store.park(claimed.id, claimed.token, Park(waiting_for="approval"))
    answer = await explain(office, "INC-1")
    assert "waits for approval" in answer["sentence"]
    assert any("harken runs approve" in advice for advice in answer["advice"])


async def test_a_filtered_event_is_explained_with_the_clause_and_the_values(office: Office) -> None:
    await office.shows(office.incident("INC-2", urgency="low"))
    answer = await explain(office, "INC-2")
    assert (answer["stage"], answer["outcome"]) == ("match", "filtered")
    assert "urgency" in answer["sentence"]
    assert "low" in answer["sentence"]


async def test_one_verdict_of_a_thousand_is_explained_as_before(office: Office) -> None:
    others = [declined(number) for number in range(999)]
    filtered = Verdict(trigger="oncall", outcome="filtered", reason='event.urgency == "high" is false')
    event = Event(subject="INC-3", key="INC-3", type="json.item", data={}, occurred_at=office.clock.now())
    entry = Entry(event=event, memory_id="INC-3", decisions=(*others[:500], filtered, *others[500:]))
    revision = (await office.store.listeners(POLLED.name)).revision
    await office.store.commit(Commit(feed=POLLED.name, revision=revision, entries=(entry,)))
    answer = await explain(office, "INC-3")
    assert 'the condition was not met: event.urgency == "high" is false' in answer["sentence"]
    shown = await office.ask("events.show", id=answer["details"]["event_id"])
    assert [verdict["trigger"] for verdict in shown["verdicts"]] == [one.trigger for one in entry.decisions]
    assert shown["verdicts"][7]["reason"] == others[7].reason


async def test_an_event_that_was_shown_again_is_told_as_fired_once_and_duplicated(office: Office) -> None:
    run_id = await office.fires("INC-1")
    office.clock.advance(10)
    listeners = await office.store.listeners(POLLED.name)
    await repeat(office, listeners.revision)
    answer = await explain(office, "INC-1")
    assert answer["outcome"] == "fired"
    assert run_id in answer["sentence"]
    assert answer["details"]["repeats"] == 1
    assert "showed it again 1 time" in answer["sentence"]


async def repeat(office: Office, revision: int) -> None:
    """A second replica commits the same item: the memory moved on meanwhile, so it is a duplicate."""
    rules = compile_rules(await office.store.listeners(POLLED.name))
    again = Event(**{**_fields(office.incident("INC-1")), "key": "INC-1"})
    entries = match([Sighting(again, "INC-1", 0, 1)], rules, Read(now=office.clock.now()))
    await office.store.commit(Commit(feed=POLLED.name, revision=revision, entries=entries))


def _fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


async def test_an_event_before_the_start_line_is_explained_with_both_times(office: Office) -> None:
    await office.shows(office.incident("INC-0", age=7200))
    answer = await explain(office, "INC-0")
    assert answer["outcome"] == "before_start"
    assert "2026-01-05 07:01:00Z, before the trigger's start line 2026-01-05 09:00:00Z" in answer["sentence"]


async def test_a_run_that_the_flood_guard_holds_says_how_to_release_it(office: Office) -> None:
    await office.shows(office.incident("INC-1"), first=True)
    answer = await explain(office, "INC-1")
    assert (answer["stage"], answer["outcome"]) == ("held", "held")
    assert "Let it go: harken triggers release oncall" in answer["advice"]


async def test_a_run_that_a_pause_holds_says_to_resume(office: Office) -> None:
    await office.ask("triggers.pause", name="oncall", reason="holiday")
    await office.shows(office.incident("INC-1"))
    answer = await explain(office, "INC-1")
    assert "Let it go: harken triggers resume oncall" in answer["advice"]


async def test_a_held_run_that_was_released_tells_what_became_of_it(office: Office) -> None:
    await office.shows(office.incident("INC-1"), first=True)
    await office.ask("triggers.release", name="oncall")
    await settle(office, Finished())
    answer = await explain(office, "INC-1")
    assert answer["stage"] == "run"
    assert "done" in answer["sentence"]


async def test_a_gathered_event_names_the_run_and_when_it_is_due(office: Office) -> None:
    await office.shows(office.incident("INC-1"), office.incident("INC-2"))
    answer = await explain(office, "INC-1", name="digest")
    assert (answer["stage"], answer["outcome"]) == ("gather", "gathered")
    assert "with 2 events" in answer["sentence"]
    assert "(in 10 min)" in answer["sentence"]


async def test_a_condition_that_fails_is_an_error_and_not_a_filter(office: Office) -> None:
    await office.shows(Event(subject="INC-9", type="json.item", data={"id": "INC-9"}, occurred_at=office.clock.now()))
    answer = await explain(office, "INC-9")
    assert answer["outcome"] == "error"
    assert "could not be decided" in answer["sentence"]


async def test_a_ticket_finds_what_happened_to_it_by_its_own_name(office: Office) -> None:
    happened = {"id": "7", "urgency": "high"}
    event = Event(subject="7", key="TEAM-3#h9", type="json.item", data=happened, occurred_at=office.clock.now())
    await office.shows(event)
    assert (await explain(office, "TEAM-3"))["details"]["key"] == "TEAM-3#h9"
    never_read = await explain(office, "TEAM")
    assert (never_read["outcome"], never_read["details"]["remembers"]) == ("never_seen", 1)


async def test_something_that_was_never_read_says_when_the_feed_was_read_last_and_is_next(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    office.clock.advance(30)
    answer = await explain(office, "something else entirely")
    assert (answer["stage"], answer["outcome"]) == ("read", "never_seen")
    assert "The last read was 2026-01-05 09:01:00Z (30 s ago), the next is in 30 s" in answer["sentence"]
    assert any("harken triggers test oncall" in advice for advice in answer["advice"])


async def test_a_key_that_is_nearly_right_is_answered_with_the_right_one(office: Office) -> None:
    await office.shows(office.incident("INC-1042"))
    answer = await explain(office, "INC-1024")
    assert answer["details"]["near"] == ["INC-1042"]
    await office.fails("api.example answered 401", state="paused", code="attention")
    advice = (await explain(office, "INC-1024"))["advice"]
    assert "the feed is paused. Mend that, then: harken triggers resume oncall" in advice[1]
    assert "Did you mean: harken explain oncall 'INC-1042'" in answer["advice"]


async def test_something_never_read_from_a_failing_feed_tells_its_error(office: Office) -> None:
    await office.fails("api.example answered 503")
    answer = await explain(office, "INC-7")
    assert "3 failures: api.example answered 503" in answer["sentence"]
    assert "in 60 s" in answer["sentence"]


async def test_something_never_read_from_a_paused_feed_says_to_resume(office: Office) -> None:
    await office.fails("api.example answered 401", state="paused", blocked_until=None)
    answer = await explain(office, "INC-7")
    assert "paused: api.example answered 401" in answer["sentence"]
    assert answer["advice"] == ["Mend that, then: harken triggers resume oncall"]


async def test_something_never_sent_to_a_webhook_points_at_the_sender(office: Office) -> None:
    answer = await explain(office, "deploy-1", name="deploys")
    assert "Nothing of that key was sent to us" in answer["sentence"]


async def test_what_only_memory_knows_is_explained_by_its_first_and_last_sighting(office: Office) -> None:
    await office.shows(office.incident("INC-1", age=7200))
    office.clock.advance(90 * 86_400)
    await office.store.prune(events=86_400, ticks=86_400, runs=86_400, pushed=86_400, audit=86_400)
    answer = await explain(office, "INC-1")
    assert answer["outcome"] == "remembered"
    assert "since 2026-01-05 09:01:00Z" in answer["sentence"]


async def test_a_time_is_answered_from_the_ledger(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    covered = (office.clock.now() - timedelta(minutes=2)).isoformat()
    beyond = (office.clock.now() + timedelta(hours=2)).isoformat()
    assert (await explain(office, covered))["outcome"] == "covered"
    assert (await explain(office, beyond))["details"]["coverage_there"] == "not yet"


async def test_an_event_is_also_found_by_its_id(office: Office) -> None:
    committed = await office.shows(office.incident("INC-1"))
    answer = await explain(office, f"#{committed.event_ids[0]}")
    assert answer["details"]["key"] == "INC-1"


async def test_a_reason_that_is_a_question_ends_its_sentence(office: Office) -> None:
    await office.fails("there is no field sice, did you mean size?")
    answer = await explain(office)
    assert "did you mean size? It has fired 0 times" in answer["sentence"]


async def test_without_a_key_the_trigger_as_a_whole_is_told(office: Office) -> None:
    await office.shows(office.incident("INC-1"), office.incident("INC-2", urgency="low"))
    answer = await explain(office)
    assert answer["outcome"] == "summary"
    assert answer["details"]["recent_outcomes"] == {"fired": 1, "filtered": 1}
    assert answer["sentence"].startswith("oncall is healthy. It has fired 1 time")


async def test_the_lines_for_people_hold_the_sentence_the_details_and_the_advice(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    answer = await explain(office, "INC-1")
    assert answer["lines"][0] == answer["sentence"]
    assert "  key: INC-1" in answer["lines"]
    assert answer["lines"][-1].startswith("→ See its steps")


async def test_an_unknown_trigger_is_answered_with_the_nearest_name(office: Office) -> None:
    with pytest.raises(NotFound) as raised:
        await explain(office, name="oncal")
    assert raised.value.fix == "Did you mean oncall?"


@pytest.mark.parametrize(
    ("name", "command"), [("oncall", "harken triggers test oncall"), ("deploys", "harken webhooks")]
)
async def test_a_silent_trigger_is_not_answered_by_the_question(office: Office, name: str, command: str) -> None:
    office.clock.advance(7200)
    triggers = tuple(msgspec.structs.replace(one, stale_after=3600.0) for one in office.loaded.triggers)
    loaded = replace(office.loaded, triggers=triggers)
    operator = Operator(office.store, office.engine, loaded, office.clock)
    answer = await operator.call("triggers.explain", name=name, key="")
    assert "longer than stale_after" in answer["sentence"]
    assert [advice.rpartition(": ")[2] for advice in answer["advice"]] == [command]
