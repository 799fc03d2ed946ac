"""A tracker is polled: every labelled ticket starts one run, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from harken.kit.cursor_codec import load_cursor
from harken.runs import Cancelled
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import Issue
from harken.testing.fakes.server import Answer
from harken.tickets import ProjectScope, Routes, TicketMemory
from harken.tickets.cursor import TicketCursor
from tests.tickets.tracked import Tracked, github, project, settings


def id_of(issue: Issue) -> str:
    return f"{issue.number}@{issue.id}"


async def ran(it: Tracked) -> dict[str, int]:
    """How many runs each ticket had, by the number of its issue."""
    return dict(Counter(run.event_keys[0].partition("@")[0] for run in await it.runs()))


async def cycles(it: Tracked, count: int) -> None:
    for _ in range(count):
        await it.cycle()


async def run_to_its_end(it: Tracked) -> None:
    """Begin the runs that are ready and end them, with polls in between and after."""
    await it.begin_runs()
    await it.cycle()
    await it.end_runs()
    await it.cycle()


@virtual
async def test_a_labelled_ticket_runs_once_and_its_labels_start_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix")
        it.hub.open("question")
        await it.start()
        await it.cycle(5)
        await run_to_its_end(it)
        await cycles(it, 20)
        (run,) = await it.runs()
        assert run.status == "done"
        assert issue.labels == ["fix", "harken:done"]
        assert await it.states(id_of(issue)) == ["ready:fix", "claimed:in-progress", "claimed:done"]
        memory = await it.memories.get(id_of(issue))
        assert memory is not None
        assert memory.confirmed


@virtual
async def test_the_event_tells_what_the_run_needs(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("Fix", title="x" * 5000, text="y" * 200_000)
        await it.start()
        await it.cycle(5)
        (event,) = (await it.store.events(feed=it.feed)).items
        assert (event.type, event.subject, event.state) == ("ticket.ready", id_of(issue), "ready:fix")
        assert event.occurred_at == issue.updated_at
        assert {name: event.data[name] for name in ("tracker", "project", "pipeline", "label", "number", "labels")} == {
            "tracker": "hub",
            "project": "shop",
            "pipeline": "fix-bug",
            "label": "Fix",
            "number": "1",
            "labels": ["Fix"],
        }
        assert (len(event.data["title"]), len(event.data["text"])) == (1000, 100_000)


@virtual
async def test_a_thousand_tickets_of_one_second_all_run_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        for number in range(1000):
            it.hub.open("fix" if number % 3 else "scan")
        await it.start()
        await it.cycle(200)
        assert await ran(it) == {str(number): 1 for number in range(1, 1001)}


@pytest.mark.parametrize("requests", range(1, 14))
@virtual
async def test_a_restart_between_any_two_pages_loses_and_doubles_nothing(
    clock: VirtualClock, tmp_path: Path, requests: int
) -> None:
    async with github(clock, tmp_path) as it:
        for number in range(250):
            it.hub.open("fix" if number % 2 else "scan", age=60.0 * (number // 100))
        it.hub.open("harken:pending", "fix")
        reached = asyncio.Event()
        it.hub.after[requests] = reached.set
        await it.start()
        await reached.wait()
        await it.crash()
        await it.start()
        await it.cycle(200)
        assert await ran(it) == {str(number): 1 for number in range(1, 252)}


@virtual
async def test_what_a_lagging_search_shows_later_is_found(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        await it.start()
        await it.cycle()
        it.hub.open("fix", late=400)
        await cycles(it, 10)
        assert await ran(it) == {"1": 1}


@virtual
async def test_a_label_put_on_an_old_ticket_is_found_and_so_is_a_ticket_from_before_the_start(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        old = it.hub.open(age=90 * 86_400)
        it.hub.open("fix", age=90 * 86_400)
        await it.start()
        await it.cycle()
        it.hub.label(old, "scan")
        await it.cycle()
        assert await ran(it) == {"1": 1, "2": 1}


@virtual
async def test_label_off_and_on_within_one_poll_is_one_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        it.hub.unlabel(issue, "fix")
        await clock.sleep(2)
        it.hub.label(issue, "fix")
        await cycles(it, 3)
        await run_to_its_end(it)
        it.hub.unlabel(issue, "fix")
        it.hub.label(issue, "fix")
        await cycles(it, 20)
        assert await ran(it) == {"1": 1}


@virtual
async def test_three_labels_are_one_run_of_the_first_pipeline_of_the_map(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        await it.start()
        await it.cycle()
        issue = it.hub.open()
        for label in ("scan", "fix", "urgent"):
            it.hub.label(issue, label)
        await cycles(it, 3)
        (run,) = await it.runs()
        (event,) = [event for event in (await it.store.events(feed=it.feed)).items if event.type == "ticket.ready"]
        assert (event.data["pipeline"], event.key) == ("fix-bug", run.event_keys[0])


@virtual
async def test_a_person_runs_a_ticket_again_by_taking_our_label_off(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        for wanted in (1, 2, 3):
            await run_to_its_end(it)
            await cycles(it, 3)
            assert await ran(it) == {"1": wanted}
            it.hub.unlabel(issue, "harken:done")
            await cycles(it, 2)
        assert await ran(it) == {"1": 4}


@virtual
async def test_pitfall_24_a_read_that_is_behind_claims_nothing_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        await it.begin_runs()
        await it.cycle()
        it.hub.lag(issue, 900)
        await it.end_runs()
        await cycles(it, 10)
        # done was seen by the lists, and the label is gone now, but the single read still shows it as it was before
        it.hub.unlabel(issue, "harken:done")
        await cycles(it, 3)
        assert await ran(it) == {"1": 1}
        await cycles(it, 10)
        assert await ran(it) == {"1": 2}


@virtual
async def test_a_label_that_is_taken_off_while_the_run_is_alive_starts_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        await it.begin_runs()
        await it.cycle()
        it.hub.unlabel(issue, "harken:in-progress")
        await cycles(it, 20)
        assert await ran(it) == {"1": 1}
        assert (await it.states(id_of(issue)))[-1] == "claimed:in-progress"


@virtual
async def test_closed_and_reopened_runs_again_only_if_its_run_did_not_end(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        ended, cancelled = it.hub.open("fix"), it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        await it.begin_runs()
        it.hub.close(cancelled)
        await it.cycle()
        assert (await it.states(id_of(cancelled)))[-1] == "closed"
        first, second = sorted(it.claims, key=lambda claim: claim.events[0].subject)
        it.claims = [first]
        await it.end_runs()
        it.claims = [second]
        await it.end_runs(Cancelled())
        await it.cycle()
        it.hub.close(ended)
        await it.cycle()
        it.hub.reopen(ended)
        it.hub.reopen(cancelled)
        await cycles(it, 20)
        assert await ran(it) == {"1": 1, "2": 2}


@virtual
async def test_a_run_that_a_person_cancelled_stays_cancelled_until_the_wish_is_made_anew(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        await it.begin_runs()
        await it.cycle()
        await it.end_runs(Cancelled())
        await it.cycle()
        it.hub.comment(issue, "why?")
        await cycles(it, 20)
        assert await ran(it) == {"1": 1}
        it.hub.unlabel(issue, "fix")
        await it.cycle()
        it.hub.label(issue, "fix")
        await it.cycle()
        assert await ran(it) == {"1": 2}


@virtual
async def test_a_withdrawn_ticket_whose_label_is_back_before_its_run_has_ended_runs_again_after_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        await it.begin_runs()
        await it.cycle()
        it.hub.unlabel(issue, "fix")
        await it.cycle()
        assert (await it.states(id_of(issue)))[-1] == "withdrawn:label"
        # its run is being ended
        (run,) = [claim.id for claim in it.claims]
        await it.memories.update(id_of(issue), lambda known: replace(known or TicketMemory(project=""), withdrawn=run))
        it.hub.label(issue, "fix")
        await it.cycle()
        assert (await it.states(id_of(issue)))[-1] == "withdrawn:label"
        await it.end_runs(Cancelled())
        await it.cycle()
        assert await ran(it) == {"1": 2}


@virtual
async def test_a_label_that_is_taken_off_before_the_run_is_shown_is_told(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        it.hub.unlabel(issue, "fix")
        await cycles(it, 5)
        assert await it.states(id_of(issue)) == ["ready:fix", "withdrawn:label"]


@virtual
async def test_a_ticket_that_is_pending_by_hand_is_claimed_also_after_its_run(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        issue, lost = it.hub.open("fix", "harken:pending"), it.hub.open("harken:pending")
        await it.start()
        await it.cycle(5)
        assert await ran(it) == {"1": 1}
        assert (await it.states(id_of(lost)))[-1] == "unrouted"
        await run_to_its_end(it)
        it.hub.unlabel(issue, "harken:done")
        it.hub.label(issue, "harken:pending")
        await it.cycle()
        assert await ran(it) == {"1": 2}


@virtual
async def test_with_an_empty_map_only_what_is_pending_by_hand_runs_the_default_and_nothing_else_is_listed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    given = settings(project(routes=Routes(default="fix-bug")))
    async with github(clock, tmp_path, given) as it:
        it.hub.open(age=86_400)
        await it.start()
        await it.cycle()
        it.hub.open()
        it.hub.open("harken:pending")
        await cycles(it, 3)
        assert await ran(it) == {"3": 1}
        assert not any("labels" in seen.query and "pending" not in seen.query["labels"] for seen in it.hub.seen[10:])


@virtual
async def test_pitfall_31_a_list_that_cannot_be_read_is_a_failure_and_moves_no_mark(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        await it.start()
        await it.cycle()
        await it.intake.idle_reads.write()
        before = load_cursor((await it.feed_state()).cursor, TicketCursor)
        it.hub.answers = [Answer(status=500, body=b"{}") for _ in range(3)]
        it.hub.open("fix")
        await it.cycle(58)
        failed = await it.feed_state()
        assert (failed.health.failures, load_cursor(failed.cursor, TicketCursor)) == (1, before)
        assert "500" in failed.health.message
        await cycles(it, 3)
        assert await ran(it) == {"1": 1}
        assert (await it.feed_state()).health.failures == 0


@virtual
async def test_pitfall_40_one_repository_that_fails_does_not_keep_the_others_from_being_read(
    clock: VirtualClock, tmp_path: Path
) -> None:
    given = settings(project("gone", "acme/gone"), project(), project("search", "acme/search"))
    async with github(clock, tmp_path, given) as it:
        it.hub.repos["acme/gone"].hidden = True
        it.hub.open("fix")
        await it.start()
        await it.cycle()
        it.hub.open("fix", repo="acme/search")
        await cycles(it, 10)
        assert len(await it.runs()) == 2
        assert list(it.source.trouble) == ["acme/gone"]
        asked = Counter(seen.path for seen in it.hub.seen)
        assert asked["/repos/acme/shop/issues"] < 80, "no more often than its interval wants"
        it.hub.repos["acme/gone"].hidden = False
        it.hub.open("fix", repo="acme/gone")
        await cycles(it, 3)
        assert len(await it.runs()) == 3
        assert it.source.trouble == {}


@virtual
async def test_a_list_that_hangs_is_given_up_after_20_seconds(clock: VirtualClock, tmp_path: Path) -> None:
    given = settings(project("slow", "acme/slow"), project())
    async with github(clock, tmp_path, given) as it:
        it.hub.answers = [Answer(hang=True)]
        it.hub.open("fix")
        began = clock.time()
        await it.start()
        await it.cycle(30)
        assert await ran(it) == {"1": 1}
        assert "20 s" in it.source.trouble["acme/slow"]
        assert 20 <= it.hub.seen[0].at - began < 25


@virtual
async def test_a_limit_is_waited_for_and_nothing_is_lost(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        await it.start()
        await it.cycle()
        it.hub.limit(700)
        it.hub.open("fix")
        await it.cycle(600)
        assert await ran(it) == {}
        await it.cycle(600)
        assert await ran(it) == {"1": 1}


@virtual
async def test_a_ticket_of_two_projects_runs_in_the_first_and_names_the_others(
    clock: VirtualClock, tmp_path: Path
) -> None:
    given = settings(project("one"), project("two"), project("web", scope=ProjectScope(name="web", tag="web")))
    async with github(clock, tmp_path, given) as it:
        it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        (event,) = (await it.store.events(feed=it.feed)).items
        assert (event.data["project"], event.data["also"]) == ("one", ["two"])
        assert await ran(it) == {"1": 1}


@virtual
async def test_a_clock_that_is_wrong_loses_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    for skew in (-300.0, 300.0):
        directory = tmp_path / str(skew)
        directory.mkdir()
        async with github(clock, directory) as it:
            it.hub.skew = skew
            await it.start()
            for _ in range(5):
                it.hub.open("fix")
                await it.cycle()
            await it.cycle()
            clock.jump(86_400)
            it.hub.open("fix")
            await cycles(it, 2)
            clock.jump(-2 * 86_400)
            it.hub.open("fix")
            await cycles(it, 3)
            assert await ran(it) == {str(number): 1 for number in range(1, 8)}


@virtual
async def test_the_mark_is_stored_and_moves(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        await it.start()
        await cycles(it, 5)
        await it.intake.idle_reads.write()
        stored = load_cursor((await it.feed_state()).cursor, TicketCursor)
        assert stored is not None
        assert not stored.reading
        assert clock.now() - stored.marks["acme/shop"] < timedelta(seconds=130)


@virtual
async def test_finished_tickets_are_looked_up_again_only_when_they_change_or_in_a_sweep(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        issues = [it.hub.open("fix") for _ in range(40)]
        await it.start()
        await it.cycle(5)
        await run_to_its_end(it)
        await cycles(it, 17)
        looked: list[str] = []
        get = it.store.get

        async def counted(kind: str, name: str) -> object:
            looked.append(name)
            return await get(kind, name)

        it.store.get = counted  # type: ignore[assignment]
        await cycles(it, 5)
        assert looked == []
        requests = len(it.hub.seen)
        await it.cycle()
        assert {seen.status for seen in it.hub.seen[requests:] if seen.query.get("labels") == "fix"} == {304}
        it.hub.unlabel(issues[7], "harken:done", by="leo")
        await it.cycle()
        await it.cycle()
        assert set(looked) == {f"hub/{id_of(issues[7])}"}
        assert (await ran(it))["8"] == 2
        looked.clear()
        await cycles(it, 15)
        assert len(set(looked)) == 40, "a sweep looks at all"
