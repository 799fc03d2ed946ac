"""Labels, comments and statuses follow the newest run of a ticket, on fakes of the platforms."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from harken.config.on_failure import TYPES
from harken.errors import Deferred
from harken.runs import RunState
from harken.testing import HandClock
from harken.ticket import Ticket
from harken.tickets import Lifecycle
from tests.tickets.projecting import KINDS, HubBoard, World, boards

PEOPLE = {"fix", "harken:later", "urgent"}
"""Labels that belong to people; one only begins like ours."""


class Killed(BaseException):
    """The process ends."""


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, clock: HandClock) -> AsyncIterator[World]:
    async with boards(clock, request.param) as served:
        yield World(clock, *served)


@pytest.fixture
async def hub(clock: HandClock) -> AsyncIterator[World]:
    async with boards(clock, "github") as served:
        yield World(clock, *served)


async def test_a_ticket_shows_its_run_from_start_to_end(world: World, clock: HandClock):
    number = world.board.open(*PEOPLE)
    run = await world.claim(number)
    await world.settle(4)
    assert world.lifecycle(number) == set()
    await world.settle(4)
    assert world.lifecycle(number) == {"harken:enqueued"}
    moves: list[tuple[RunState, str]] = [("running", "in-progress"), ("waiting", "waiting"), ("running", "in-progress")]
    for status, shown in moves:
        world.store.move(run, status)
        await world.settle(10)
        assert world.lifecycle(number) == {f"harken:{shown}"}
    world.store.move(run, "done")
    await world.settle(10)
    assert world.board.labels(number) == {*PEOPLE, "harken:done"}


async def test_a_short_run_takes_at_most_four_writes(world: World, clock: HandClock):
    number = world.board.open(*PEOPLE)
    run = await world.claim(number)
    await world.settle(2)
    world.store.move(run, "running")
    await world.settle(30)
    world.store.move(run, "done")
    await world.settle(30)
    assert world.lifecycle(number) == {"harken:done"}
    assert len(world.board.comments(number)) == 1
    assert len(world.board.writes()) <= 4
    wrote = len(world.board.writes())
    await world.settle(3600)
    assert len(world.board.writes()) == wrote, "a ticket that shows everything is left alone"


async def test_a_queued_run_changes_its_label_three_times_and_has_one_comment(world: World):
    number = world.board.open(*PEOPLE)
    await world.board.tracker.ensure_labels([f"harken:{state}" for state in ("enqueued", "in-progress", "failed")])
    made = len(world.board.writes())
    run = await world.claim(number)
    await world.settle(20)
    world.store.move(run, "running")
    await world.settle(20)
    world.store.move(run, "failed", error="the tests fail")
    await world.settle(20)
    assert len(world.board.writes()) - made <= 4
    assert world.board.labels(number) == {*PEOPLE, "harken:failed"}


async def test_only_the_newest_state_is_written(world: World):
    number = world.board.open("fix")
    run = await world.claim(number, status="running")
    world.store.move(run, "waiting")
    world.store.move(run, "running")
    world.store.move(run, "done")
    await world.settle(10)
    assert world.lifecycle(number) == {"harken:done"}
    assert len(world.board.writes()) == 2, "one label and one comment"


async def test_of_several_runs_the_newest_counts(world: World, clock: HandClock):
    number = world.board.open("fix")
    first = await world.claim(number, status="running")
    await world.settle(5)
    world.store.move(first, "failed", error="no")
    clock.advance(1)
    second = await world.claim(number, status="running")
    await world.settle(20)
    assert world.lifecycle(number) == {"harken:in-progress"}
    assert (await world.memory(number)).run == second
    # told late: the first one ended before
    world.store.move(first, "failed")
    await world.settle(10)
    assert world.lifecycle(number) == {"harken:in-progress"}


async def test_a_cancelled_run_leaves_no_label_and_says_so(world: World):
    number = world.board.open(*PEOPLE)
    run = await world.claim(number, status="running")
    await world.settle(20)
    world.store.move(run, "cancelled", error="the ticket was withdrawn")
    await world.settle(20)
    assert world.board.labels(number) == PEOPLE
    (said,) = world.board.comments(number)
    assert "Cancelled" in said
    assert "the ticket was withdrawn" in said


async def test_a_run_that_is_cancelled_before_it_starts_leaves_no_pending_label(world: World):
    number = world.board.open("fix", "harken:pending")
    run = await world.claim(number)
    world.store.move(run, "cancelled")
    await world.settle(20)
    assert world.board.labels(number) == {"fix"}
    assert world.board.comments(number) == []


async def test_a_held_run_shows_as_waiting_without_a_comment(world: World):
    number = world.board.open("fix")
    await world.claim(number, status="held")
    await world.settle(20)
    assert world.lifecycle(number) == {"harken:waiting"}
    assert world.board.comments(number) == []


async def test_done_is_not_written_on_a_ticket_that_was_withdrawn_in_the_last_second(world: World):
    for withdraw in (lambda number: world.board.unlabel(number, "fix"), world.board.close):
        number = world.board.open("fix", "urgent")
        run = await world.claim(number, status="running")
        await world.settle(20)
        withdraw(number)
        world.store.move(run, "done")
        await world.settle(20)
        assert world.lifecycle(number) == set()
        assert "urgent" in world.board.labels(number)
        assert (await world.memory(number)).status == "cancelled", "the wish can be made anew"
        world.restart()
        world.store.move(run, "done")
        await world.settle(20)
        assert (await world.memory(number)).status == "cancelled"


async def test_native_statuses_follow_the_end_of_the_run(clock: HandClock):
    async with boards(clock, "jira") as served:
        world = World(clock, *served, done_status="Done", failed_status="Not Done")
        ends: list[tuple[RunState, str]] = [("done", "Done"), ("failed", "Not Done"), ("cancelled", "To Do")]
        for end, status in ends:
            number = world.board.open("fix")
            run = await world.claim(number, status="running")
            await world.settle(10)
            world.store.move(run, end)
            await world.settle(20)
            assert (await world.ticket(number)).status == status


async def test_a_ticket_that_a_person_closed_meanwhile_keeps_its_status(clock: HandClock):
    async with boards(clock, "jira") as served:
        world = World(clock, *served, failed_status="Not Done")
        number = world.board.open("fix")
        run = await world.claim(number, status="running")
        await world.settle(10)
        world.board.close(number)
        world.store.move(run, "failed", error="no")
        await world.settle(20)
        assert (await world.ticket(number)).status == "Done"


async def test_a_status_that_does_not_exist_stops_only_itself(clock: HandClock):
    async with boards(clock, "jira") as served:
        world = World(clock, *served, done_status="Nirvana")
        numbers = [world.board.open("fix") for _ in range(5)]
        for number in numbers:
            await world.claim(number, status="done")
        await world.settle(120)
        assert [world.lifecycle(number) for number in numbers] == [{"harken:done"}] * 5
        assert [len(world.board.comments(number)) for number in numbers] == [1] * 5
        wrote = len(world.board.writes())
        await world.settle(7200)
        assert len(world.board.writes()) == wrote, "it is tried again, and nothing else with it"


async def test_killed_between_any_two_writes_the_labels_end_the_same(world: World):
    """Counts the places where a process can end, then ends there once each."""
    board, count, kill_at = world.board, 0, 10_000

    def tick() -> None:
        nonlocal count
        count += 1
        if count == kill_at:
            raise Killed

    board.on_write(tick)
    world.store.on_put = tick

    async def go() -> None:
        while True:
            try:
                await world.settle(20)
                return
            except Killed:
                world.restart()

    async def whole_run() -> tuple[set[str], int]:
        number = board.open(*PEOPLE)
        run = await world.claim(number)
        await go()
        world.store.move(run, "running")
        await go()
        world.store.move(run, "failed", error="no")
        await go()
        return board.labels(number), len(board.comments(number))

    assert await whole_run() == ({*PEOPLE, "harken:failed"}, 1)
    places = count
    assert places > 10
    for place in range(1, places + 1):
        count, kill_at = 0, place
        assert await whole_run() == ({*PEOPLE, "harken:failed"}, 1), f"killed at {place}"


async def test_writes_that_fail_are_tried_again(hub: World, clock: HandClock):
    assert isinstance(hub.board, HubBoard)
    number = hub.board.open(*PEOPLE)
    run = await hub.claim(number, status="running")
    hub.board.fake.read_only.add("app")
    await hub.settle(30)
    assert hub.lifecycle(number) == set()
    hub.store.move(run, "done")
    hub.board.fake.read_only.clear()
    await hub.settle(8 * 3600)
    assert hub.board.labels(number) == {*PEOPLE, "harken:done"}


async def test_one_bad_tracker_stops_only_itself(clock: HandClock):
    async with boards(clock, "github", "jira") as served:
        world = World(clock, *served)
        hub, jira = served
        broken, fine = hub.open("fix"), jira.open("fix")
        world.store.start((await world.ticket(broken)).id, status="running")
        run = world.store.start((await world.ticket(fine, jira)).id, trigger="shop2/web", status="running")
        hub.fake.tokens.clear()
        await world.settle(10)
        assert jira.labels(fine) == {"fix", "harken:in-progress"}
        world.store.move(run, "done")
        await world.settle(60)
        assert jira.labels(fine) == {"fix", "harken:done"}
        assert hub.labels(broken) == {"fix"}
        refused = [seen for seen in hub.fake.seen if seen.status == 401]
        assert len(refused) == 1, "a token that is refused is not tried again at once"


async def test_a_credential_with_which_everything_fails_rests(clock: HandClock):
    async with boards(clock, "github") as served:
        world = World(clock, *served)
        world.board.fake.tokens.clear()
        for number in range(200):
            world.store.start(f"{number}@{number}", status="running")
        await world.settle(800)
        assert len(world.board.fake.seen) == 3


async def test_more_moved_runs_of_a_broken_tracker_than_fit_in_one_answer_hide_no_other(clock: HandClock):
    async with boards(clock, "github", "jira") as served:
        world = World(clock, *served)
        hub, jira = served
        hub.fake.tokens.clear()
        for number in range(450):
            world.store.start(f"{number}@{number}", status="running")
        fine = jira.open("fix")
        world.store.start((await world.ticket(fine, jira)).id, trigger="shop2/web", status="running")
        await world.settle(10)
        assert jira.labels(fine) == {"fix", "harken:in-progress"}


async def test_runs_of_unknown_triggers_are_given_back(hub: World):
    hub.store.start("1@1", trigger="gone/web")
    await hub.settle(5)
    assert list(await hub.store.moved_runs()) == []


async def test_github_is_written_to_a_second_apart_and_within_its_limits(hub: World, clock: HandClock):
    numbers = [hub.board.open("fix") for _ in range(270)]
    runs = [await hub.claim(number, status="running") for number in numbers]
    await hub.settle(60)
    for run in runs:
        hub.store.move(run, "done")
    await hub.settle(3 * 3600)
    assert all(hub.lifecycle(number) == {"harken:done"} for number in numbers)
    writes = hub.board.writes()
    assert min(late - early for early, late in pairwise(writes)) >= 0.999
    assert all(sum(at <= other < at + 60 for other in writes) <= 80 for at in writes)
    assert all(sum(at <= other < at + 3600 for other in writes) <= 500 for at in writes)
    # more than an hour has room for; most had ended before it was their turn, so that nothing but the end was written
    assert 500 < len(writes) < 270 * 3
    assert {seen.status for seen in hub.board.fake.seen if seen.method != "GET"} == {200, 201}, "nothing was refused"


async def test_a_limit_of_the_platform_is_kept(hub: World, clock: HandClock):
    assert isinstance(hub.board, HubBoard)
    number = hub.board.open("fix")
    await hub.claim(number, status="running")
    hub.board.fake.limit(700)
    asked_before = len(hub.board.fake.seen)
    await hub.settle(690)
    assert len(hub.board.fake.seen) == asked_before + 1, "the one that met the limit"
    await hub.settle(700)
    assert hub.lifecycle(number) == {"harken:in-progress"}


async def test_who_meets_a_limit_again_waits_longer_each_time(hub: World, clock: HandClock):
    """As GitHub asks for: whoever goes on at the same pace may lose the right to use it at all."""
    assert isinstance(hub.board, HubBoard)
    fake, numbers = hub.board.fake, [hub.board.open("fix") for _ in range(5)]
    for number in numbers:
        await hub.claim(number, status="running")
    fake.writes_a_minute = 0
    await hub.settle(3600)
    refused = [seen.at for seen in fake.seen if seen.status == 403]
    assert 4 < len(refused) <= 10
    waits = [late - early for early, late in pairwise(refused)]
    assert waits == sorted(waits)
    assert waits[0] >= 60
    fake.writes_a_minute = 80
    await hub.settle(900)
    assert [hub.lifecycle(number) for number in numbers] == [{"harken:in-progress"}] * 5


async def test_without_quota_one_ticket_tells_for_all(hub: World, monkeypatch: pytest.MonkeyPatch):
    numbers = [hub.board.open("fix") for _ in range(20)]
    for number in numbers:
        await hub.claim(number, status="running")
    asked: list[str] = []

    async def refuse(id: str) -> None:
        asked.append(id)
        raise Deferred("the rate limit of this credential is used up", after=100.0)

    with monkeypatch.context() as without:
        without.setattr(hub.board.tracker, "get", refuse)
        await hub.settle(90)
        assert len(asked) == 1
    await hub.settle(100)
    assert [hub.lifecycle(number) for number in numbers] == [{"harken:in-progress"}] * 20


async def test_a_limit_on_one_issue_of_jira_holds_up_no_other(clock: HandClock):
    async with boards(clock, "jira") as served:
        world = World(clock, *served)
        board = served[0]
        held_up, other = board.open("fix"), board.open("fix")
        board.fake.limit_writes(held_up, 300)
        for number in (held_up, other):
            await world.claim(number, status="running")
        await world.settle(60)
        assert (world.lifecycle(held_up), world.lifecycle(other)) == (set(), {"harken:in-progress"})
        await world.settle(600)
        assert world.lifecycle(held_up) == {"harken:in-progress"}


async def test_what_jira_asks_for_is_kept_although_the_run_moves_on(clock: HandClock):
    async with boards(clock, "jira") as served:
        world = World(clock, *served)
        board = served[0]
        number = board.open("fix")
        board.fake.limit_writes(number, 300)
        run = await world.claim(number, status="running")
        for status in ("waiting", "running", "done"):
            await world.settle(60)
            world.store.move(run, status)
        await world.settle(60)
        assert sum(seen.status == 429 for seen in board.fake.seen) == 1
        await world.settle(300)
        assert world.lifecycle(number) == {"harken:done"}


async def test_a_tracker_that_is_taken_out_of_the_configuration_disturbs_no_other(clock: HandClock):
    async with boards(clock, "github", "jira") as served:
        world = World(clock, *served)
        hub, jira = served
        gone, fine = hub.open("fix"), jira.open("fix")
        world.store.start((await world.ticket(gone)).id, status="running")
        await world.settle(10)
        del world.settings["shop"]
        run = world.store.start((await world.ticket(fine, jira)).id, trigger="shop2/web", status="running")
        await world.settle(90)
        world.store.move(run, "done")
        await world.settle(30)
        assert jira.labels(fine) == {"fix", "harken:done"}
        assert hub.labels(gone) == {"fix", "harken:in-progress"}


async def test_our_label_returns_with_a_comment_while_the_run_is_alive(world: World, clock: HandClock):
    number = world.board.open(*PEOPLE)
    run = await world.claim(number, status="running")
    await world.settle(30)
    clock.advance(5)
    world.board.unlabel(number, "harken:in-progress")
    await world.settle(200)
    assert world.board.labels(number) == {*PEOPLE, "harken:in-progress"}
    said = [text for text in world.board.comments(number) if "put back" in text]
    assert len(said) == 1
    assert "fix" in said[0]
    world.store.move(run, "done")
    await world.settle(30)
    clock.advance(600)
    world.board.unlabel(number, "harken:done")
    await world.settle(3600)
    assert world.board.labels(number) == PEOPLE, "after the end, taking it off is the wish for another run"


async def test_a_label_that_a_person_changes_is_changed_back(world: World, clock: HandClock):
    number = world.board.open("fix")
    await world.claim(number, status="running")
    await world.settle(100)
    world.board.label(number, "harken:done")
    world.board.unlabel(number, "harken:in-progress")
    await world.settle(200)
    assert world.lifecycle(number) == {"harken:in-progress"}


async def test_a_label_is_not_put_back_while_the_run_is_being_withdrawn(world: World):
    number = world.board.open("fix", "urgent")
    await world.claim(number, status="running")
    await world.settle(100)
    world.board.unlabel(number, "harken:in-progress")
    world.board.unlabel(number, "fix")
    await world.settle(600)
    assert world.board.labels(number) == {"urgent"}


async def test_two_automations_that_fight_over_a_label_are_stopped_after_five_repairs(world: World, clock: HandClock):
    number = world.board.open(*PEOPLE)
    run = await world.claim(number, status="running")
    robot = "robot" if world.board.kind == "jira" else "cleaner[bot]"
    taken = 0
    for _ in range(120):
        await world.settle(30)
        if "harken:in-progress" in world.board.labels(number):
            clock.advance(2)
            world.board.unlabel(number, "harken:in-progress", by=robot)
            taken += 1
    assert taken == 6, "the first one and five repairs"
    (alert,) = world.alerts
    (account,) = alert.data["accounts"]
    assert account.startswith(robot)
    assert alert.data["alert"] is True
    assert alert.type in TYPES, "on_failure tells it"
    (said,) = [text for text in world.board.comments(number) if "within an hour" in text]
    assert robot in said
    assert len([text for text in world.board.comments(number) if "put back" in text]) == 1
    world.store.move(run, "done")
    await world.settle(30)
    assert world.board.labels(number) == {*PEOPLE, "harken:done"}
    clock.advance(600)
    await world.claim(number, status="running")
    await world.settle(100)
    world.board.unlabel(number, "harken:in-progress")
    await world.settle(200)
    assert world.lifecycle(number) == {"harken:in-progress"}, "the next run is another matter"


async def test_a_read_that_is_behind_repairs_nothing(hub: World, clock: HandClock):
    board = hub.board
    assert isinstance(board, HubBoard)
    number = board.open("fix")
    run = await hub.claim(number, status="running")
    clock.advance(10)
    board.fake.lag(board.issue(number), 100)
    await hub.settle(90)
    assert hub.lifecycle(number) == {"harken:in-progress"}
    assert (await hub.memory(number)).repairs == ()
    clock.advance(100)
    board.fake.lag(board.issue(number), 60)
    hub.store.move(run, "done")
    await hub.settle(50)
    assert hub.lifecycle(number) == {"harken:done"}
    assert board.comments(number)[0].count("harken-receipt") == 1


async def test_while_every_read_is_behind_only_the_newest_label_is_left(world: World, clock: HandClock):
    number = world.board.open(*PEOPLE)
    before = await world.ticket(number)
    clock.advance(10)
    run = await world.claim(number, status="running")
    await world.settle(10)
    plain = world.board.tracker.get

    async def behind(id: str) -> Ticket:
        return before

    world.board.tracker.get = behind
    world.store.move(run, "waiting")
    await world.settle(10)
    world.store.move(run, "done")
    await world.settle(10)
    world.board.tracker.get = plain
    assert world.board.labels(number) == {*PEOPLE, "harken:done"}


async def test_the_label_of_the_run_before_in_a_read_that_is_behind_is_not_that_of_this_one(
    world: World, clock: HandClock
):
    number = world.board.open(*PEOPLE)
    run = await world.claim(number, status="running")
    await world.settle(10)
    world.store.move(run, "done")
    await world.settle(10)
    before = await world.ticket(number)
    clock.advance(600)
    # a person asks for another run, which is over before every copy shows that the label was taken off
    world.board.unlabel(number, "harken:done")
    run = await world.claim(number, status="ready")
    plain = world.board.tracker.get

    async def behind(id: str) -> Ticket:
        return before

    world.board.tracker.get = behind
    world.store.move(run, "done")
    await world.settle(10)
    world.board.tracker.get = plain
    assert world.lifecycle(number) == {"harken:done"}
    assert not (await world.memory(number)).confirmed


async def test_what_is_there_already_is_not_written_again(world: World):
    number = world.board.open("fix")
    run = await world.claim(number, status="running")
    await world.settle(10)
    world.store.stored.clear()
    world.restart()
    world.store.move(run, "running")
    wrote = len(world.board.writes())
    await world.settle(10)
    assert len(world.board.writes()) == wrote
    assert (await world.memory(number)).shown is Lifecycle.IN_PROGRESS


async def test_a_run_that_is_told_again_after_its_end_costs_no_request(world: World):
    number = world.board.open("fix")
    run = await world.claim(number, status="done")
    await world.settle(10)
    world.restart()
    asked = len(world.board.fake.seen)
    world.store.move(run, "done")
    await world.settle(60)
    assert len(world.board.fake.seen) == asked


async def test_no_label_of_people_is_lost_whatever_they_do_meanwhile(world: World):
    number = world.board.open(*PEOPLE)
    changes: list[Callable[[], None]] = [
        lambda: world.board.label(number, "late"),
        lambda: world.board.unlabel(number, "urgent"),
        lambda: world.board.label(number, "harken:mine"),
    ]

    def meddle() -> None:
        if changes:
            changes.pop(0)()

    world.board.on_write(meddle)
    run = await world.claim(number, status="running")
    await world.settle(30)
    world.store.move(run, "done")
    await world.settle(30)
    assert world.board.labels(number) == {"fix", "harken:later", "late", "harken:mine", "harken:done"}


async def test_a_ticket_whose_run_is_lost_can_be_claimed_again(world: World):
    number = world.board.open("fix")
    run = await world.claim(number, status="running")
    await world.settle(30)
    world.store.lose(run)
    world.restart()
    await world.settle(30)
    assert world.lifecycle(number) == {"harken:pending"}
    assert (await world.memory(number)).run == ""


async def test_a_deleted_ticket_is_left_once_no_copy_can_be_behind_any_more(world: World):
    gone = "99999@1" if world.board.kind == "github" else "3#99999" if world.board.kind == "gitlab" else "99999"
    world.store.start(gone, status="running")
    await world.settle(900)
    fake = world.board.fake
    asked = len(fake.seen)
    assert asked > 0
    await world.settle(3600)
    assert len(fake.seen) == asked
    assert world.board.writes() == []
