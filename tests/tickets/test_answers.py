"""Questions on the ticket: the first answer of somebody who may answer resumes the same run."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harken.runs import Run, StepRecord
from harken.testing import START, VirtualClock, virtual
from harken.ticket import Actor, Comment, Notice
from harken.tickets import Trust
from harken.tickets.answers import Question, answer_in, approval_in, question_of, replies_to
from harken.tickets.comment_marks import notice_line
from harken.tickets.ticket_writer import stage_of
from tests.tickets.run_control_world import OURS, Ours, record_of, settings, tickets_world

ASK = {"id": "ask", "action": "ticket.ask", "question": "Which shop, {{.event.title}}?"}
DO = {"id": "work", "action": "work.do", "said": "{{.steps.ask.response}}", "by": "{{.steps.ask.by}}"}
OWN = Actor(id="1", login=OURS, bot=True)
MIA = Actor(id="7", login="mia")


@virtual
async def test_the_first_trusted_answer_resumes_the_same_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, ASK, DO) as world:
        issue = world.ticket(title="Till")
        world.hub.comment(issue, "said before", by="mia")
        await clock.sleep(1)
        run_id = await world.tell(issue)
        waiting = await world.until(run_id, "waiting")
        assert waiting.waiting_for == "answer"
        (question,) = world.comments(issue)
        assert "Which shop, Till?" in question
        assert "the first one by somebody with write access counts" in question
        await clock.sleep(30)
        world.hub.comment(issue, "a stranger's", by="stranger")
        world.hub.comment(issue, "our own", by=OURS)
        await clock.sleep(30)
        assert (await world.run(run_id)).status == "waiting"
        world.hub.comment(issue, "the one in Bonn", by="mia")
        world.hub.comment(issue, "no, Köln", by="mia")
        run = await world.until(run_id, seconds=30)
        assert (run.status, world.did) == ("done", [{"said": "the one in Bonn", "by": "mia"}])
        assert len(world.comments(issue)) == 2


@virtual
async def test_of_two_run_controls_only_one_gives_an_answer(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, ASK, DO, {**ASK, "id": "again"}) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        await world.until(run_id, "waiting")
        others = [asyncio.create_task(world.new_run_control().keep(Ours())) for _ in range(2)]
        world.hub.comment(issue, "Bonn", by="mia")
        await clock.sleep(60)
        run = await world.run(run_id)
        assert (run.status, world.did) == ("waiting", [{"said": "Bonn", "by": "mia"}])
        assert record_of(run, "again").status == "waiting"
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)


@virtual
async def test_an_answer_to_one_question_does_not_answer_the_next(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, ASK, DO, {**ASK, "id": "again"}) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        await world.until(run_id, "waiting")
        await clock.sleep(5)
        world.hub.comment(issue, "Bonn", by="mia")
        await clock.sleep(300)
        assert (await world.run(run_id)).status == "waiting"
        world.hub.comment(issue, "Köln", by="mia")
        run = await world.until(run_id, seconds=30)
        assert record_of(run, "again").output["response"] == "Köln"


@virtual
async def test_a_webhook_about_a_comment_brings_the_answer_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, ASK, DO, tracker=settings(webhook=True)) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        await world.until(run_id, "waiting")
        await clock.sleep(20)
        world.hub.comment(issue, "Bonn", by="mia")
        event = await world.store.event((await world.run(run_id)).event_ids[0])
        assert event is not None
        await world.run_control.note_comment("hub", Notice(location="acme/shop", id=event.subject))
        assert (await world.until(run_id, seconds=10)).status == "done"


@virtual
async def test_whoever_was_let_in_by_somebody_else_may_not_answer(clock: VirtualClock, tmp_path: Path) -> None:
    tracker = settings(Trust(untrusted="hold"))
    async with tickets_world(clock, tmp_path, ASK, DO, tracker=tracker) as world:
        issue = world.ticket(by="leo")
        run_id = await world.tell(issue)
        await world.until(run_id, "waiting")
        await clock.sleep(30)
        world.hub.comment(issue, "approve", by="mia")
        await clock.sleep(60)
        assert (await world.run(run_id)).waiting_for == "answer"
        world.hub.comment(issue, "send me the keys", by="leo")
        await clock.sleep(120)
        assert (await world.run(run_id)).waiting_for == "answer"
        world.hub.comment(issue, "the one in Bonn", by="mia")
        assert (await world.until(run_id, seconds=60)).status == "done"
        assert world.did == [{"said": "the one in Bonn", "by": "mia"}]


@virtual
async def test_whoever_started_the_run_may_answer_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, ASK, DO) as world:
        world.hub.repos["acme/shop"].roles["zoe"] = "write"
        issue = world.ticket(by="zoe")
        run_id = await world.tell(issue)
        await world.until(run_id, "waiting")
        world.hub.repos["acme/shop"].roles["zoe"] = "read"
        await clock.sleep(120)
        world.hub.comment(issue, "Bonn", by="zoe")
        assert (await world.until(run_id, seconds=30)).status == "done"


@pytest.mark.parametrize(("on_timeout", "status"), [("fail", "failed"), ("go_on", "done")])
def test_a_question_that_nobody_answers_in_time(on_timeout: str, status: str, tmp_path: Path) -> None:
    @virtual
    async def test(clock: VirtualClock) -> None:
        async with tickets_world(clock, tmp_path, {**ASK, "timeout": "1h", "on_timeout": on_timeout}) as world:
            run = await world.until(await world.tell(world.ticket()), seconds=7200)
            assert run.status == status

    test()


@virtual
async def test_a_crash_after_the_question_was_written_does_not_ask_twice(clock: VirtualClock, tmp_path: Path) -> None:
    async with tickets_world(clock, tmp_path, ASK, DO) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        while not world.comments(issue):
            await clock.sleep(0)
        await world.crash()
        await clock.sleep(61)
        await world.store.requeue_expired()
        world.work()
        world.attend()
        await world.until(run_id, "waiting", seconds=60)
        world.hub.comment(issue, "Bonn", by="mia")
        assert (await world.until(run_id, seconds=60)).status == "done"
        assert len(world.comments(issue)) == 1


@virtual
async def test_questions_of_two_branches_are_answered_one_after_the_other(clock: VirtualClock, tmp_path: Path) -> None:
    branches = {"left": [{**ASK, "id": "one"}], "right": [{**ASK, "id": "two"}]}
    async with tickets_world(clock, tmp_path, {"id": "both", "action": "parallel", "branches": branches}) as world:
        issue = world.ticket()
        run_id = await world.tell(issue)
        await world.until(run_id, "waiting")
        assert len(world.comments(issue)) == 2
        world.hub.comment(issue, "Bonn", by="mia")
        assert (await world.until(run_id, seconds=120)).status == "done"


@pytest.mark.parametrize(
    ("text", "approved"),
    [
        ("approve", True),
        ("/approve", True),
        ("**Approved**, thanks", True),
        ("\n\nreject", False),
        ("Rejected: too risky", False),
        ("> approve\nwhy?", None),
        ("I approve", None),
        ("approval?", None),
        ("disapprove", None),
        ("", None),
    ],
)
def test_a_decision_is_the_first_word_of_a_comment(text: str, approved: bool | None) -> None:
    assert approval_in(text) is approved


def comment(id: str, text: str = "hm", by: Actor | None = MIA, seconds: float = 0) -> Comment:
    return Comment(id=id, text=text, author=by, created_at=START + timedelta(seconds=seconds))


def test_replies_are_those_of_others_after_the_question() -> None:
    asked = Question(step="ask", asked_at=START, comment="2")
    told = [comment("1"), comment("2", by=OWN), comment("3", by=OWN), comment("4"), comment("5", by=None)]
    assert [one.id for one in replies_to(asked, told, OWN)] == ["4", "5"]
    copied = comment("6", "`harken-notice 0123456789abcdef`")
    assert replies_to(asked, [copied], OWN) == []


def test_a_question_that_was_deleted_is_answered_by_what_came_after_it() -> None:
    asked = Question(step="ask", asked_at=START, comment="2")
    told = [comment("1", seconds=-5), comment("4", seconds=5)]
    assert [one.id for one in replies_to(asked, told, OWN)] == ["4"]


def waiting(*journal: StepRecord) -> Run:
    return Run(
        id="r1",
        trigger="hub/shop",
        workflow="fix",
        workflow_rev="1",
        status="waiting",
        due_at=START,
        created_at=START,
        waiting_for="answer",
        journal=journal,
    )


def test_a_question_that_its_step_did_not_write_is_found_by_its_line_and_not_answered_before_it_is_shown() -> None:
    record = StepRecord(path="agent", action="agent", status="waiting", output={"prompt": "Which?"}, started_at=START)
    run = waiting(record)
    asked = question_of(run)
    assert asked is not None
    assert (asked.step, asked.approval, asked.line) == ("agent", False, notice_line(stage_of(run)))
    assert replies_to(asked, [comment("1"), comment("2")], OWN) == []
    shown = comment("3", f"Which?\n`{asked.line}`", by=OWN)
    assert [one.id for one in replies_to(asked, [comment("1"), shown, comment("4")], OWN)] == ["4"]


@pytest.mark.parametrize("output", [None, {"until": "2026-01-06T00:00:00+00:00"}, "x"])
def test_a_run_that_waits_for_something_else_has_no_question(output: Any) -> None:
    record = StepRecord(path="sleep", action="wait", status="waiting", output=output, started_at=START)
    assert question_of(waiting(record)) is None


def test_an_empty_comment_is_no_answer() -> None:
    assert answer_in(comment("1", " \n"), Question(step="ask", asked_at=START)) is None


@virtual
async def test_a_process_that_does_not_attend_tickets_passes_on_what_a_webhook_told_it(
    clock: VirtualClock, tmp_path: Path
) -> None:
    class Theirs:
        async def keep(self) -> bool:
            return False

    async with tickets_world(clock, tmp_path, ASK, DO, tracker=settings(webhook=True), working=False) as world:
        world.work()
        keeping = asyncio.create_task(world.run_control.keep(Theirs()))
        issue = world.ticket()
        run_id = await world.tell(issue)
        run = await world.until(run_id, "waiting")
        world.hub.comment(issue, "Bonn", by="mia")
        await clock.sleep(60)
        assert (await world.run(run_id)).status == "waiting"
        event = await world.store.event(run.event_ids[0])
        assert event is not None
        await world.run_control.note_comment("hub", Notice(location="acme/shop", id=event.subject))
        await world.run_control.note_comment("unknown", Notice(location="acme/shop", id=event.subject))
        assert (await world.until(run_id, seconds=15)).status == "done"
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
