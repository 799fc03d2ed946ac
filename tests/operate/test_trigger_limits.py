"""What people are told of quiet hours, old events, budgets and silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from harken.feed import Budget
from harken.runs import Finished, StepRecord
from harken.schedule import Quiet
from harken.store import Settlement
from tests.operate.operator_world import Office, trigger

# it is 09:01 UTC, and 10:01 in Berlin
QUIET = Quiet(start="09:30", end="12:00", tz="Europe/Berlin")


async def using(office: Office, **changes: Any) -> None:
    """`oncall` is the only trigger from now on, with these limits."""
    office.loaded = replace(office.loaded, triggers=(trigger(**changes),))
    office.operator.loaded = office.loaded
    await office.store.open(office.loaded.definitions())


async def explain(office: Office, key: str = "") -> Any:
    return await office.ask("triggers.explain", name="oncall", key=key)


async def show(office: Office) -> Any:
    return await office.ask("triggers.show", name="oncall")


async def spend(office: Office, tokens: int) -> None:
    [claimed] = await office.store.claim("w", 1, 60)
    asked = StepRecord(path="page", action="llm", status="ok", tokens=tokens)
    await office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Finished(), record=asked)])


async def test_a_run_that_waits_for_the_end_of_quiet_hours_says_until_when(office: Office) -> None:
    await using(office, quiet=QUIET)
    await office.shows(office.incident("INC-1"))
    answer = await explain(office, "INC-1")
    assert answer["outcome"] == "fired"
    assert answer["sentence"].endswith("; it waits until 12:00 (quiet hours)")
    assert "2026-01-05 11:00" in answer["sentence"]


async def test_show_says_when_it_is_quiet(office: Office) -> None:
    await using(office, quiet=QUIET, max_age=7200.0, stale_after=600.0)
    shown = await show(office)
    assert shown["quiet_hours"] == "09:30 to 12:00 Europe/Berlin (now, until 2026-01-05 12:00)"
    assert (shown["max_age"], shown["stale_after"], shown["budget"]) == ("2h", "10m", [])


async def test_an_old_event_is_explained_with_the_run_that_it_shares(office: Office) -> None:
    await using(office, max_age=5.0)
    await office.shows(office.incident("INC-1", age=30), office.incident("INC-2", age=20))
    answer = await explain(office, "INC-2")
    assert (answer["stage"], answer["outcome"]) == ("gather", "gathered")
    assert "with 2 events (older than max_age 5s when it was found, so it shares one run)" in answer["sentence"]


async def test_a_run_beyond_the_budget_says_which_limit_it_waits_for_and_until_when(office: Office) -> None:
    await using(office, budget=Budget(runs_per_hour=1))
    await office.shows(office.incident("INC-1"), office.incident("INC-2"))
    await office.store.claim("w", 10, 60)
    answer = await explain(office, "INC-2")
    assert answer["stage"] == "held"
    assert "the trigger's budget is spent (1 of 1 runs this hour, anew at 2026-01-05 10:00:00Z)" in answer["sentence"]
    assert "Let it go: harken triggers release oncall" in answer["advice"]
    await office.shows(office.incident("INC-1"), office.incident("INC-2"), office.incident("INC-3"))
    advice = "What the budget holds goes by itself; let it go now: harken triggers release oncall"
    assert (await explain(office))["advice"] == [advice]


async def test_a_run_that_was_held_at_once_is_explained_in_the_same_words(office: Office) -> None:
    await using(office, budget=Budget(runs_per_hour=0))
    await office.shows(office.incident("INC-1"))
    answer = await explain(office, "INC-1")
    assert (answer["outcome"], answer["stage"]) == ("held", "held")
    assert "0 of 0 runs this hour" in answer["sentence"]


async def test_show_tells_what_is_used_of_the_budget(office: Office) -> None:
    await using(office, budget=Budget(runs_per_hour=5, tokens_per_day=1000, usd_per_day=2.5))
    await office.shows(office.incident("INC-1"))
    await spend(office, 400)
    assert (await show(office))["budget"] == [
        "1 of 5 runs this hour, anew at 2026-01-05 10:00:00Z",
        "400 of 1000 tokens today, anew at 2026-01-06 00:00:00Z",
        "0 of 2.5 dollars today, anew at 2026-01-06 00:00:00Z",
    ]


async def test_released_runs_go_although_the_budget_is_spent(office: Office) -> None:
    await using(office, budget=Budget(runs_per_hour=0))
    await office.shows(office.incident("INC-1"))
    assert (await office.ask("triggers.release", name="oncall"))["released"] == 1
    assert len(await office.store.claim("w", 10, 60)) == 1


async def test_an_event_that_was_skipped_on_purpose_names_the_mode(office: Office) -> None:
    made = trigger(startup="ignore_historical")
    office.loaded = replace(office.loaded, triggers=(made,))
    await office.store.open(office.loaded.definitions(starting=True))
    await office.shows(office.incident("INC-1", age=10))
    answer = await explain(office, "INC-1")
    assert answer["outcome"] == "before_start"
    assert "(startup: ignore_historical): what happened while nothing ran is skipped on purpose" in answer["sentence"]


async def test_a_silent_trigger_is_stale_in_every_list(office: Office) -> None:
    await using(office, stale_after=600.0)
    await office.shows(office.incident("INC-1"))
    office.clock.advance(601)
    [row] = (await office.ask("triggers.list"))["items"]
    assert row["status"] == "stale"
    assert "no read has succeeded since 2026-01-05 09:01:00Z" in row["reason"]
    [attention] = (await office.ask("status"))["attention"]
    assert attention["status"] == "stale"
    assert (await explain(office))["details"]["status"] == "stale"


async def test_a_stale_trigger_tells_why_its_reads_fail(office: Office) -> None:
    await using(office, stale_after=600.0)
    office.clock.advance(600)
    await office.fails("api.example answered 503")
    [row] = (await office.ask("triggers.list"))["items"]
    assert row["status"] == "stale"
    assert row["reason"].endswith("longer than stale_after 10m: api.example answered 503")
