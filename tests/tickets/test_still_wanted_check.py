"""Who may start a run, and when it is not started after all: the look at the ticket before its first step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harken.testing import VirtualClock, virtual
from harken.tickets import Routes, Trust
from tests.tickets.run_control_world import OURS, World, record_of, settings, tickets_world

DO = {"id": "work", "action": "work.do"}


@virtual
async def test_a_label_by_somebody_who_may_write_starts_the_run_whoever_wrote_the_ticket(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        run = await world.result(world.ticket(author="stranger", by="mia"))
        assert (run.status, len(world.did)) == ("done", 1)
        look = record_of(run, "preflight")
        assert (look.action, look.status, look.output["labelled_by"]) == ("ticket.preflight", "ok", "mia")


def _by_author(world: World) -> Any:
    return world.ticket(author="leo", by="leo")


def _by_reader(world: World) -> Any:
    return world.ticket(by="leo")


def _by_triager(world: World) -> Any:
    world.hub.repos["acme/shop"].roles["tia"] = "triage"
    return world.ticket(by="tia")


def _by_bot(world: World) -> Any:
    return world.ticket(by="renovate[bot]")


def _by_ourselves(world: World) -> Any:
    return world.ticket(by=OURS)


def _by_form(world: World) -> Any:
    return world.hub.open("fix", author="stranger", by="stranger")


def _renamed(world: World) -> Any:
    """The login in the history is another account's now."""
    issue = world.ticket(by="leo")
    issue.events[0]["actor"] = {"login": "mia", "id": 4711, "type": "User"}
    return issue


def _deleted(world: World) -> Any:
    world.hub.repos["acme/shop"].roles["zoe"] = "write"
    issue = world.ticket(by="zoe")
    world.hub.forget("zoe")
    return issue


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_by_author, "leo has no write access"),
        (_by_reader, "leo has no write access"),
        (_by_triager, "tia has no write access"),
        (_by_bot, "is a bot that is not listed"),
        (_by_ourselves, "by our own account"),
        (_by_form, "an issue form put the label on for stranger"),
        (_renamed, "could not be found out what mia may do"),
        (_deleted, "could not be found out who put the label on"),
    ],
)
def test_a_label_that_nobody_trusted_put_on_starts_nothing(make: Any, reason: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO) as world:
            issue = make(world)
            run = await world.result(issue)
            assert (run.status, world.did) == ("cancelled", [])
            assert reason in run.error
            assert "To start it, somebody with write access can take the label fix off" in run.error
            assert record_of(run, "preflight").code == "withdrawn"
            assert (issue.labels, world.pulls()) == (["fix"], [])

    test()


@virtual
async def test_a_history_that_cannot_be_read_is_untrusted(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:

        class Unreadable:
            def __getattr__(self, verb: str) -> Any:
                return getattr(world.github, verb)

            async def label_history(self, ticket: Any) -> None:
                return None

        world.wrapped = Unreadable()
        run = await world.result(world.ticket())
        assert run.status == "cancelled"
        assert "could not be found out who put the label on" in run.error


@virtual
async def test_a_renamed_account_is_still_who_it_was(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        world.hub.repos["acme/shop"].roles["zara"] = "write"
        issue = world.ticket(by="zoe")
        world.hub.rename("zoe", "zara")
        assert (await world.result(issue)).status == "done"


@pytest.mark.parametrize(
    ("trust", "by"),
    [
        (Trust(label="triage"), "tia"),
        (Trust(label="anyone"), "leo"),
        (Trust(label=("Leo",)), "leo"),
        (Trust(bots=("renovate[bot]",)), "renovate[bot]"),
    ],
)
def test_trust_says_whose_label_counts(trust: Trust, by: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO, tracker=settings(trust)) as world:
            world.hub.repos["acme/shop"].roles["tia"] = "triage"
            assert (await world.result(world.ticket(by=by))).status == "done"

    test()


@virtual
async def test_the_last_one_who_put_the_label_on_counts(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        issue = world.ticket(by="mia")
        world.hub.unlabel(issue, "fix")
        world.hub.label(issue, "fix", by="leo")
        assert "leo has no write access" in (await world.result(issue)).error


@virtual
async def test_where_a_status_starts_the_pipeline_whoever_wrote_the_ticket_counts(
    clock: VirtualClock, tmp_path: Path
) -> None:
    tracker = settings(routes=Routes(default="fix-bug"), trigger_statuses=frozenset({"open"}))
    async with tickets_world(clock, tmp_path, DO, tracker=tracker) as world:
        world.hub.repos["acme/shop"].roles["zoe"] = "write"
        assert (await world.result(world.hub.open(author="zoe"))).status == "done"
        assert "leo has no write access" in (await world.result(world.hub.open(author="leo"))).error


@virtual
async def test_without_a_map_of_labels_whoever_made_the_ticket_pending_counts(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO, tracker=settings(routes=Routes(default="fix-bug"))) as world:
        asked, stranger = world.hub.open(author="leo"), world.hub.open(author="mia")
        world.hub.label(asked, "harken:pending", by="mia")
        world.hub.label(stranger, "harken:pending", by="leo")
        assert (await world.result(asked)).status == "done"
        assert "leo has no write access" in (await world.result(stranger)).error


@virtual
async def test_what_an_account_may_do_is_asked_once_a_minute(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        for _ in range(3):
            assert (await world.result(world.ticket())).status == "done"
        asked = [seen for seen in world.hub.seen if seen.path.endswith("/permission")]
        assert len(asked) == 1
        await clock.sleep(61)
        assert (await world.result(world.ticket())).status == "done"
        asked = [seen for seen in world.hub.seen if seen.path.endswith("/permission")]
        assert len(asked) == 2


@pytest.mark.parametrize("what", ["unlabelled", "closed", "deleted", "transferred"])
def test_what_was_withdrawn_while_it_was_queued_does_not_begin(what: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO, working=False) as world:
            world.hub.add_repo("acme/other")
            issue = world.ticket()
            run_id = await world.tell(issue)
            await clock.sleep(86_400)
            change: Mapping[str, Callable[[], object]] = {
                "unlabelled": lambda: world.hub.unlabel(issue, "fix"),
                "closed": lambda: world.hub.close(issue),
                "deleted": lambda: world.hub.delete(issue),
                "transferred": lambda: world.hub.transfer(issue, "acme/other"),
            }
            change[what]()
            world.work()
            run = await world.until(run_id)
            assert (run.status, world.did) == ("cancelled", [])
            assert run.error

    test()


@virtual
async def test_a_ticket_that_left_the_trigger_statuses_does_not_begin(clock: VirtualClock, tmp_path: Path) -> None:
    tracker = settings(trigger_statuses=frozenset({"ready"}))
    async with tickets_world(clock, tmp_path, DO, tracker=settings()) as world:
        run_id = await world.tell(world.ticket())
        world.settings["hub"] = tracker
        assert "open is not one of trigger_statuses" in (await world.until(run_id)).error


@virtual
async def test_a_single_read_that_lags_behind_the_event_is_waited_for(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        issue = world.hub.open(age=600)
        world.hub.lag(issue, 45)
        world.hub.label(issue, "fix")
        began = clock.time()
        run = await world.result(issue)
        assert (run.status, run.attempt) == ("done", 1)
        assert clock.time() - began >= 45


@virtual
async def test_a_history_that_lags_behind_is_waited_for(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        issue = world.ticket()
        issue.history_visible_at = clock.time() + 30
        run = await world.result(issue)
        assert (run.status, run.attempt) == ("done", 1)


@virtual
async def test_a_platform_that_does_not_answer_uses_up_no_tries(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        issue = world.ticket()
        world.hub.limit(4 * 3600)
        run = await world.until(await world.tell(issue), seconds=6 * 3600)
        assert (run.status, run.attempt, len(world.did)) == ("done", 1, 1)


@virtual
async def test_hold_waits_for_approval_and_says_on_the_ticket_who_may_give_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO, tracker=settings(Trust(untrusted="hold"))) as world:
        issue = world.ticket(by="leo")
        run_id = await world.tell(issue)
        run = await world.until(run_id, "waiting")
        assert (run.waiting_for, world.did) == ("approval", [])
        (comment,) = world.comments(issue)
        assert "leo has no write access" in comment
        assert "somebody with write access comments `approve`" in comment
        assert f"harken runs approve {run_id[:12]}" in comment
        assert await world.store.answer(run_id, {"approved": True, "by": "operator", "comment": ""})
        world.worker.nudge()
        run = await world.until(run_id)
        assert (run.status, len(world.did)) == ("done", 1)
        assert record_of(run, "preflight").output["approved_by"] == "operator"
        assert len(world.comments(issue)) == 1


@virtual
async def test_an_approval_survives_a_platform_that_is_away(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO, tracker=settings(Trust(untrusted="hold"))) as world:
        run_id = await world.tell(world.ticket(by="leo"))
        await world.until(run_id, "waiting")
        world.hub.limit(600)
        assert await world.store.answer(run_id, {"approved": True, "by": "operator"})
        world.worker.nudge()
        assert (await world.until(run_id)).status == "done"


@virtual
async def test_an_approval_counts_only_for_the_label_that_was_asked_about(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO, tracker=settings(Trust(untrusted="hold"))) as world:
        issue = world.ticket(by="leo")
        run_id = await world.tell(issue)
        await world.until(run_id, "waiting")
        world.hub.unlabel(issue, "fix", by="eve")
        world.hub.label(issue, "fix", by="eve")
        assert await world.store.answer(run_id, {"approved": True, "by": "operator"})
        world.worker.nudge()
        await clock.sleep(30)
        run = await world.run(run_id)
        assert (run.status, world.did) == ("waiting", [])


@pytest.mark.parametrize(("said", "status"), [("approve", "done"), ("Reject, please", "cancelled")])
def test_a_held_run_is_decided_on_the_ticket_by_somebody_who_may(said: str, status: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, DO, tracker=settings(Trust(untrusted="hold"))) as world:
            issue = world.ticket(by="leo")
            run_id = await world.tell(issue)
            await world.until(run_id, "waiting")
            world.hub.comment(issue, "approve", by="leo")
            world.hub.comment(issue, "> approve\nshould we?", by="mia")
            await clock.sleep(60)
            assert (await world.run(run_id)).status == "waiting"
            world.hub.comment(issue, said, by="mia")
            assert (await world.until(run_id, seconds=60)).status == status

    test()


@pytest.mark.parametrize(("text", "seen"), [("as_labelled", "as it was"), ("now", "edited")])
def test_the_text_of_a_run_is_that_of_the_label_or_that_of_its_start(text: Any, seen: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        step = {**DO, "text": "{{.event.text}}", "also": "{{.trigger.event.text}}"}
        tracker = settings(Trust(text=text))
        async with tickets_world(clock, tmp_path, step, tracker=tracker, working=False) as world:
            issue = world.ticket(text="as it was")
            run_id = await world.tell(issue)
            issue.text = "edited"
            world.work()
            assert (await world.until(run_id)).status == "done"
            assert world.did == [{"text": seen, "also": seen}]

    test()


@virtual
async def test_a_run_that_waited_is_looked_at_again_before_it_goes_on(clock: VirtualClock, tmp_path: Path) -> None:
    wait = {"id": "sleep", "action": "wait", "for": "1d"}
    async with tickets_world(clock, tmp_path, {**DO, "id": "a"}, wait, DO) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        await world.until(run_id, "waiting")
        world.hub.unlabel(issue, "fix")
        run = await world.until(run_id, seconds=2 * 86_400)
        assert (run.status, len(world.did)) == ("cancelled", 1)


@virtual
async def test_a_step_may_not_have_the_name_of_the_look(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, {**DO, "id": "preflight"}) as world:
        run = await world.result(world.ticket())
        assert run.status == "dead"
        assert "'preflight' has the name of one that every run of this trigger has" in run.error


@virtual
async def test_a_run_whose_project_is_not_configured_any_more_says_so(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        run_id = await world.tell(world.ticket())
        world.settings.clear()
        run = await world.until(run_id)
        assert (run.status, world.did) == ("dead", [])
        assert "is not configured any more" in run.error


@virtual
async def test_a_copy_from_the_very_second_of_the_label_withdraws_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        issue = world.hub.open(by="mia")
        world.hub.lag(issue, 10.0)
        world.hub.label(issue, "fix")
        run = await world.result(issue)
        assert (run.status, len(world.did)) == ("done", 1)


@virtual
async def test_a_label_taken_off_in_the_second_it_was_put_on_starts_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with tickets_world(clock, tmp_path, DO) as world:
        issue = world.ticket()
        told = await world.tell(issue)
        world.hub.unlabel(issue, "fix")
        run = await world.until(told)
        assert (run.status, len(world.did)) == ("cancelled", 0)
