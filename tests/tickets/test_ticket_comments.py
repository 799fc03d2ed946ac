"""The sticky comment of a ticket, and what wants a person, on fakes of the platforms."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from harken.runs import StepRecord
from harken.testing import HandClock
from harken.ticket import Comment
from harken.tickets import Lifecycle, is_ours
from harken.tickets.comment_marks import notice_line, receipts_in
from harken.tickets.ticket_writer import stage_of
from tests.tickets.projecting import KEY, KINDS, JiraBoard, World, boards


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


async def test_the_sticky_comment_is_edited_once_a_minute_at_most(world: World, clock: HandClock):
    number = world.board.open("fix")
    run = await world.claim(number, status="running")
    await world.settle(50)
    assert world.board.comments(number) == []
    edits = [len(world.board.writes())]
    for minute in range(5):
        record = StepRecord(path=f"step{minute}", action="shell", status="ok", output={"stdout": f"line {minute}"})
        for _ in range(6):
            world.store.move(run, "running", record, event_keys=(f"{clock.time()}",))
            await world.settle(10)
        edits.append(len(world.board.writes()))
    (said,) = world.board.comments(number)
    assert "line 4" in said or "line 3" in said
    assert edits[-1] - edits[0] <= 6
    world.store.move(run, "done")
    await world.settle(10)
    assert "Done" in world.board.comments(number)[0]
    assert len(world.board.comments(number)) == 1


async def test_the_comment_says_who_asked_and_what_it_cost(world: World):
    number = world.board.open("fix")
    record = StepRecord(path="agent", action="agent", status="ok", output={"tail": "a\nb"}, tokens=12_345, usd=1.5)
    run = await world.claim(number, status="running")
    world.store.move(run, "done", record)
    await world.settle(10)
    (said,) = world.board.comments(number)
    for part in ("Done", "leo", "1.50 USD", "12,345 tokens", "fix-bug", run):
        assert part in said
    assert "@leo" not in said.replace("leo@example.com", "")
    ticket = await world.ticket(number)
    (receipt,) = receipts_in(said, KEY, world.board.kind, ticket.id)
    assert (receipt.run, receipt.pipeline, receipt.revision, receipt.state) == (run, "fix-bug", "rev1", "done")
    assert "harken-receipt" not in said.rstrip().splitlines()[-1]
    assert is_ours(Comment(id="1", text=said))


async def test_a_deleted_sticky_comment_is_made_anew(world: World):
    number = world.board.open("fix")
    run = await world.claim(number, status="running")
    await world.settle(100)
    assert len(world.board.comments(number)) == 1
    world.board.delete_comments(number)
    world.store.move(run, "done")
    await world.settle(30)
    (said,) = world.board.comments(number)
    assert "Done" in said


async def test_the_sticky_comment_is_found_again_when_its_id_is_forgotten(world: World):
    number = world.board.open("fix")
    run = await world.claim(number, status="running")
    world.board.comment(number, "`harken-receipt v1 run=x pipeline=x revision=x state=done mac=" + "0" * 32 + "`")
    await world.settle(100)
    assert len(world.board.comments(number)) == 2
    world.store.stored.clear()
    world.restart()
    world.store.move(run, "done")
    await world.settle(30)
    assert len(world.board.comments(number)) == 2, "a stranger's copy is not taken for ours"
    assert "Done" in world.board.comments(number)[1]


@pytest.mark.parametrize("exists", [False, True])
async def test_what_wants_a_person_is_told_once_with_a_mention(hub: World, exists: bool):
    number = hub.board.open("fix")
    run = await hub.claim(number, status="running")
    await hub.settle(100 if exists else 10)
    hub.store.move(run, "failed", error="the tests fail")
    await hub.settle(100)
    hub.restart()
    await hub.settle(100)
    told = [text for text in hub.board.comments(number) if text.startswith("@leo this run failed")]
    assert len(told) == 1
    assert len(hub.board.comments(number)) == (2 if exists else 1)


async def test_a_question_is_asked_on_the_ticket_and_when_is_remembered(hub: World, clock: HandClock):
    number = hub.board.open("fix")
    run = await hub.claim(number, status="running")
    await hub.settle(10)
    asked = StepRecord(path="ok", action="approve", status="waiting", output={"prompt": "May I delete @everything?"})
    hub.store.move(run, "waiting", asked, waiting_for="approval")
    await hub.settle(10)
    (said,) = hub.board.comments(number)
    assert said.startswith("@leo this run waits for you: `May I delete @everything?`")
    memory = await hub.memory(number)
    assert memory.asked_at is not None
    assert memory.shown is Lifecycle.WAITING
    hub.store.move(run, "running")
    await hub.settle(10)
    again = StepRecord(path="ok2", action="approve", status="waiting", output={"prompt": "And this?"})
    hub.store.move(run, "waiting", again, waiting_for="approval")
    await hub.settle(10)
    assert [text for text in hub.board.comments(number) if "And this?" in text and "@leo" in text]


async def test_a_question_stays_where_answers_are_looked_for_after_a_crash(hub: World):
    number = hub.board.open("fix")
    run = await hub.claim(number, status="running")
    await hub.settle(10)
    asked = StepRecord(path="ok", action="approve", status="waiting", output={"prompt": "Go on?"})
    hub.store.move(run, "waiting", asked, waiting_for="approval")
    await hub.settle(10)
    (before,) = hub.board.comments(number)
    # the comment was written, and the process ended before it could remember that
    hub.store.stored.clear()
    hub.restart()
    hub.store.move(run, "waiting")
    await hub.settle(300)
    (after,) = hub.board.comments(number)
    moved = await hub.store.run(run)
    assert notice_line(stage_of(moved)) in before
    assert notice_line(stage_of(moved)) in after
    assert "Go on?" in after
    assert (await hub.memory(number)).asked_at is not None


async def test_a_question_that_a_step_wrote_itself_is_not_repeated(hub: World):
    number = hub.board.open("fix")
    run = await hub.claim(number, status="running")
    noted = {"question": "Which one?", "comment": "77"}
    hub.store.move(run, "waiting", StepRecord(path="ask", action="ticket.ask", status="waiting", output=noted))
    await hub.settle(10)
    assert hub.board.comments(number) == []
    assert hub.lifecycle(number) == {"harken:waiting"}


async def test_a_pull_request_is_told(hub: World):
    number = hub.board.open("fix")
    run = await hub.claim(number, status="running")
    address = "https://github.com/acme/shop/pull/9"
    hub.store.move(
        run, "done", StepRecord(path="pr", action="ticket.pull_request", status="ok", output={"url": address})
    )
    await hub.settle(10)
    (said,) = hub.board.comments(number)
    assert said.startswith(f"@leo a pull request is ready: {address}")


async def test_what_strangers_write_does_not_act_in_our_comments(hub: World):
    number = hub.board.open("fix")
    run = await hub.claim(number, status="running")
    evil = "``` @everyone <img src=x onerror=y> [a](http://evil) \n/close\n`harken-receipt v1 run=a mac=b`\u202e"
    record = StepRecord(path="agent", action="agent", status="ok", output={"tail": evil})
    hub.store.move(run, "failed", record, error="@everyone **bold** <script>")
    await hub.settle(10)
    (said,) = hub.board.comments(number)
    fence = "````text"
    assert fence in said
    outside = said[: said.index(fence)] + said[said.index("````\n", said.index(fence) + 5) :]
    assert "`@everyone **bold** <script>`" in outside
    assert "onerror" not in outside
    assert said.count("harken-receipt") == 1
    assert "\u202e" not in said


async def test_a_jira_cloud_mention_is_a_node_of_its_document(clock: HandClock):
    async with boards(clock, "jira") as served:
        world, board = World(clock, *served), served[0]
        assert isinstance(board, JiraBoard)
        id = board.fake.user("5b10a2844c20165700ede21f", email="eve@example.com")
        number = board.open()
        board.label(number, "fix", by=id)
        await world.claim(number, status="failed")
        await world.settle(10)
        body = board.fake.issue(number).comments[0]["text"]
        assert {"type": "mention", "attrs": {"id": id}} in body["content"][0]["content"]


async def test_secrets_are_hidden_in_what_is_shown(hub: World):
    number = hub.board.open("fix")
    run = await hub.claim(number, status="running")
    hub.restart()
    hub.projector._writer._redact = lambda text: text.replace("s3cret", "…")
    record = StepRecord(path="agent", action="agent", status="ok", output={"tail": "token s3cret"})
    hub.store.move(run, "failed", record, error="s3cret was refused")
    await hub.settle(10)
    (said,) = hub.board.comments(number)
    assert "s3cret" not in said
    assert "was refused" in said
