"""What polls and webhooks do not show is found by the sweep, and what it finds says how reliable the webhooks are."""

from __future__ import annotations

from pathlib import Path

from harken.testing import VirtualClock, virtual
from harken.testing.fakes.server import Answer
from harken.tickets import Lifecycle, ProjectScope, TicketMemory
from harken.tickets.tracker_feed_source import NO_PROJECT
from harken.tickets.webhook_loss import stored_deliveries
from tests.tickets.test_tracker_feed_source import cycles, id_of, ran
from tests.tickets.test_webhooks import told
from tests.tickets.tracked import Tracked, github, project, settings

QUARTER = 900.0
PUSHED = settings(polled=False, webhook=True)


def lists(it: Tracked, label: str) -> int:
    """How many times tickets with this label were listed."""
    return sum(seen.query.get("labels") == label for seen in it.hub.seen)


@virtual
async def test_a_sweep_comes_at_the_start_and_every_quarter_of_an_hour(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        await it.start()
        await it.cycle(5)
        assert lists(it, "harken:in-progress") == 1
        await it.cycle(3 * QUARTER)
        assert lists(it, "harken:in-progress") == 4
        assert lists(it, "harken:pending") == 46
        await it.stop()
        await it.start()
        await it.cycle()
        assert lists(it, "harken:in-progress") == 5


@virtual
async def test_without_polling_only_the_sweep_reads(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, settings(polled=False)) as it:
        await it.start()
        await it.cycle(5)
        it.hub.open("fix")
        await it.cycle(QUARTER - 60)
        assert await ran(it) == {}
        await it.cycle(60)
        assert await ran(it) == {"1": 1}
        assert lists(it, "harken:pending") == 2


@virtual
async def test_a_ticket_with_a_run_that_no_list_shows_is_looked_at(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        hidden, gone = it.hub.open("fix"), it.hub.open("fix")
        await it.start()
        await it.cycle(5)
        await it.begin_runs()
        await it.cycle()
        hidden.visible_at = clock.time() + 86_400
        hidden.state = "closed"
        it.hub.delete(gone)
        await it.cycle(5)
        assert (await it.states(id_of(gone)))[-1] == "claimed:in-progress"
        await it.cycle(QUARTER)
        assert (await it.states(id_of(hidden)))[-1] == "closed"
        assert (await it.states(id_of(gone)))[-1] == "closed"
        (event,) = [one for one in (await it.store.events(feed=it.feed)).items if one.data["reason"].endswith("gone")]
        assert (event.subject, event.type, event.data["project"]) == (id_of(gone), "ticket.closed", "shop")


@virtual
async def test_one_ticket_that_cannot_be_looked_at_does_not_keep_the_others(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        issues = [it.hub.open("fix") for _ in range(25)]
        await it.start()
        await it.cycle(5)
        await it.begin_runs()
        await it.cycle()
        for issue in issues:
            issue.visible_at = clock.time() + 86_400
            issue.state = "closed"
        memory = await it.memories.get(id_of(issues[0]))
        assert memory is not None
        await it.stop()
        await it.start()
        it.hub.after[len(it.hub.seen) + 9] = lambda: it.hub.answers.append(Answer(status=500, body=b"{}"))
        await it.cycle(QUARTER + 120)
        for issue in issues:
            assert (await it.states(id_of(issue)))[-1] == "closed"


@virtual
async def test_tickets_of_a_lost_store_are_made_pending_and_run_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        working, queued = it.hub.open("fix", "harken:in-progress"), it.hub.open("fix", "harken:enqueued")
        waiting, closed = it.hub.open("fix", "harken:waiting"), it.hub.open("fix", "harken:in-progress")
        done = it.hub.open("fix", "harken:done", "harken:mine")
        it.hub.close(closed)
        await clock.sleep(3600)
        await it.start()
        await it.cycle(50)
        assert working.labels == ["fix", "harken:in-progress"]
        await it.cycle(90)
        assert working.labels == ["fix", "harken:pending"]
        assert queued.labels == ["fix", "harken:enqueued"]
        assert await ran(it) == {"1": 1}
        await it.cycle(630)
        assert queued.labels == ["fix", "harken:pending"]
        await it.cycle(3600)
        assert await ran(it) == {"1": 1, "2": 1}
        assert [issue.labels[1:] for issue in (waiting, closed, done)] == [
            ["harken:waiting"],
            ["harken:in-progress"],
            ["harken:done", "harken:mine"],
        ]


@virtual
async def test_pitfall_28_after_a_laptop_sleep_nothing_that_may_be_alive_is_taken_over(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix", "harken:in-progress", age=3600)
        await it.start()
        await it.cycle(30)
        clock.sleep_laptop(3600)
        await it.cycle(40)
        assert issue.labels == ["fix", "harken:in-progress"]
        # nothing jumps any more, and nobody shows a sign of life
        await it.cycle(120)
        assert issue.labels == ["fix", "harken:pending"]


@virtual
async def test_a_ticket_that_somebody_works_on_is_not_taken_over(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        foreign, ours = it.hub.open("fix", "harken:in-progress"), it.hub.open("fix", "harken:in-progress")
        await it.open()
        memory = TicketMemory(project="shop", run="r1", status="running", shown=Lifecycle.IN_PROGRESS)
        await it.memories.put(id_of(ours), memory)
        await it.store.close()
        await it.start()
        for _ in range(20):
            it.hub.comment(foreign, "still at it")
            await it.cycle(50)
        assert foreign.labels == ours.labels == ["fix", "harken:in-progress"]


@virtual
async def test_a_label_that_cannot_be_written_fails_no_read(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        issue = it.hub.open("fix", "harken:in-progress", age=3600)
        it.hub.read_only.add("classic")
        await it.start()
        await cycles(it, 5)
        it.hub.open("scan")
        await it.cycle()
        assert await ran(it) == {"2": 1}
        assert (await it.feed_state()).health.failures == 0
        it.hub.read_only.clear()
        await it.cycle()
        assert issue.labels == ["fix", "harken:pending"]


@virtual
async def test_a_ticket_that_no_project_wants_is_told_so_once(clock: VirtualClock, tmp_path: Path) -> None:
    given = settings(project(scope=ProjectScope(name="shop", tag="web")), zero_match_comment=True)
    async with github(clock, tmp_path, given) as it:
        wanted, other, ours = it.hub.open("fix"), it.hub.open("question"), it.hub.open("fix", "web")
        await it.start()
        await cycles(it, 3)
        await it.crash()
        await it.start()
        await cycles(it, 20)
        assert [[one["body"] for one in issue.comments] for issue in (wanted, other, ours)] == [[NO_PROJECT], [], []]
        assert await ran(it) == {"3": 1}
        it.hub.label(wanted, "web")
        await it.cycle()
        assert await ran(it) == {"1": 1, "3": 1}


@virtual
async def test_a_comment_that_was_written_just_before_a_crash_is_not_written_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    given = settings(project(scope=ProjectScope(name="shop", tag="web")), zero_match_comment=True)
    async with github(clock, tmp_path, given) as it:
        issue = it.hub.open("fix")
        await it.start()
        await it.cycle()
        await it.memories.forget(id_of(issue))
        await cycles(it, 3)
        assert len(issue.comments) == 1


@virtual
async def test_webhooks_that_tell_everything_leave_the_sweep_nothing_to_find(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path, PUSHED) as it:
        await it.start()
        await it.cycle(5)
        for _ in range(10):
            issue = it.hub.open("fix")
            await it.tell(told(issue))
            await it.cycle(300)
        assert await ran(it) == {str(number): 1 for number in range(1, 11)}
        assert (it.source.deliveries.delivered, it.source.deliveries.share) == (10, 1.0)
        assert lists(it, "harken:pending") == 4


@virtual
async def test_lost_webhooks_are_counted_and_make_the_polls_more_frequent_until_they_heal(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path, PUSHED) as it:
        await it.start()
        await it.cycle(5)
        for number in range(10):
            issue = it.hub.open("fix")
            if number != 3:
                await it.tell(told(issue))
        await it.cycle(QUARTER)
        assert (it.source.deliveries.delivered, it.source.deliveries.lost) == (9, 1)
        polls = lists(it, "harken:pending")
        await it.cycle(600)
        assert lists(it, "harken:pending") - polls >= 9
        await it.counter.save()
        stored = (await stored_deliveries(it.store))["hub"]
        assert (stored.lost, stored.share) == (1, 0.9)
        for _ in range(130):
            await it.tell(told(it.hub.open("fix")))
            await it.cycle(60)
            await it.counter.save()
        assert it.source.deliveries.share == 1.0
        polls = lists(it, "harken:pending")
        await it.cycle(QUARTER)
        assert lists(it, "harken:pending") - polls <= 2
        assert set((await ran(it)).values()) == {1}


@virtual
async def test_what_happened_while_we_were_down_is_no_loss_of_a_webhook(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, PUSHED) as it:
        await it.start()
        await it.cycle(5)
        await it.stop()
        it.hub.open("fix")
        await clock.sleep(3600)
        await it.start()
        await it.cycle(5)
        assert await ran(it) == {"1": 1}
        assert it.source.deliveries.share == 1.0


@virtual
async def test_a_polled_tracker_whose_webhooks_get_lost_is_polled_more_often(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path, settings(webhook=True)) as it:
        await it.start()
        await it.cycle(5)
        it.hub.open("fix")
        await it.cycle(60)
        assert it.source.deliveries.lost == 1
        polls = lists(it, "harken:pending")
        await it.cycle(300)
        assert lists(it, "harken:pending") - polls >= 19
