"""Webhooks about tickets: the same events as those of polls, whichever comes first."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.errors import NeedsAttention, Refused, RetryLater, Unauthorized
from harken.match import Read
from harken.services.github.issue_to_ticket import ticket_of
from harken.services.github.tracker_webhooks import GitHubNotices
from harken.source import PollSource, PushSource, Request
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import Issue
from harken.testing.fakes.server import Answer
from harken.ticket import Comment, Notice
from harken.tickets import TicketMemory
from tests.services.github import SHOP
from tests.tickets.test_tracker_feed_source import cycles, id_of, ran, run_to_its_end
from tests.tickets.tracked import Tracked, github, project, settings

MIXED = settings(webhook=True)
QUARTER = 900.0


def told(issue: Issue, *, whole: bool = True, **changes: Any) -> Notice:
    """What a webhook tells of the issue as it is now."""
    ticket = ticket_of(issue.to_json(), issue.repo) if whole else None
    return Notice(**({"location": issue.repo, "id": id_of(issue), "ticket": ticket} | changes))


@virtual
async def test_a_webhook_starts_a_run_at_once_and_the_poll_tells_nothing_more(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        assert await _is_both(it)
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        requests = len(it.hub.seen)
        assert await it.tell(told(issue)) == ["ready:fix"]
        assert await ran(it) == {"1": 1}
        assert len(it.hub.seen) == requests, "the webhook shows all that is needed"
        await run_to_its_end(it)
        await cycles(it, 20)
        assert await ran(it) == {"1": 1}


async def _is_both(it: Any) -> bool:
    await it.open()
    both = isinstance(it.source, PollSource) and isinstance(it.source, PushSource)
    await it.store.close()
    return both


@virtual
async def test_opened_labeled_and_a_poll_at_once_are_one_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(55)
        issue = it.hub.open()
        opened = told(issue)
        told_of = [opened]
        for label in ("urgent", "scan", "fix"):
            it.hub.label(issue, label)
            told_of.append(told(issue))
        for notice in [*told_of, *reversed(told_of), told_of[1]]:
            await it.tell(notice)
        await cycles(it, 3)
        assert await ran(it) == {"1": 1}
        await run_to_its_end(it)
        for notice in told_of:
            await it.tell(notice)
        await cycles(it, 20)
        assert await ran(it) == {"1": 1}


@virtual
async def test_a_webhook_that_comes_late_does_not_take_the_state_back(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open()
        before = told(issue)
        await clock.sleep(2)
        it.hub.label(issue, "fix")
        await it.tell(told(issue))
        assert await it.tell(before) == []
        await it.stop()
        await it.start()
        # another process has not seen the newer one, but the feed has
        assert await it.tell(before) == ["ready:fix"]
        await it.cycle()
        assert await it.states(id_of(issue)) == ["ready:fix"]


@virtual
async def test_a_ticket_with_a_run_is_read_before_its_webhook_counts(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        await it.tell(told(issue))
        await it.begin_runs()
        await it.tell(told(issue))
        await it.end_runs()
        assert await it.tell(told(issue)) == ["claimed:done"]
        memory = await it.memories.get(id_of(issue))
        assert memory is not None
        assert memory.confirmed
        done = told(issue)
        await clock.sleep(2)
        it.hub.unlabel(issue, "harken:done")
        assert await it.tell(done) == [f"ready:fix@{memory.run}"]
        assert await ran(it) == {"1": 2}


@virtual
async def test_a_single_read_that_is_behind_the_webhook_starts_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        await it.tell(told(issue))
        await it.begin_runs()
        await clock.sleep(2)
        await it.end_runs()
        await it.tell(told(issue))
        it.hub.lag(issue, 3600)
        await clock.sleep(2)
        it.hub.unlabel(issue, "harken:done")
        assert await it.tell(told(issue)) == []
        assert await ran(it) == {"1": 1}


@virtual
async def test_pitfall_24_a_copy_from_before_our_write_tells_nothing_also_to_another_process(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        await it.tell(told(issue))
        before = issue.to_json()
        await clock.sleep(2)
        await it.begin_runs()
        await it.end_runs()
        await it.tell(told(issue))
        await it.stop()
        await it.start()
        issue.older, issue.older_until = before, clock.time() + 3600
        assert await it.tell(told(issue, whole=False)) == []
        assert await ran(it) == {"1": 1}


@virtual
async def test_a_closed_ticket_is_told_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue, young = it.hub.open("fix"), it.hub.open("fix")
        await it.tell(told(issue))
        await it.tell(told(young))
        await it.begin_runs()
        await it.memories.forget(id_of(young))
        await clock.sleep(2)
        for closed in (issue, young):
            it.hub.close(closed)
            assert await it.tell(told(closed)) == ["closed"]


@virtual
async def test_a_notice_without_the_ticket_is_looked_up(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        assert await it.tell(told(issue, whole=False)) == ["ready:fix"]
        assert await it.tell(told(issue, whole=False, id="999@1")) == []
        assert await it.tell(told(issue, whole=False, location="acme/other")) == []
        assert await it.tell(told(issue, location="ACME/Shop")) == ["ready:fix"]
        assert await ran(it) == {"1": 1}


@virtual
async def test_a_doorbell_only_wakes_the_poll(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, settings(webhook=True, doorbell=True, polled=False)) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        assert await it.tell(told(issue)) == []
        await it.cycle(5)
        assert (await ran(it), it.woken) == ({"1": 1}, 1)
        assert await it.tell(told(issue, location="acme/other")) == []
        assert it.woken == 1


@virtual
async def test_comments_are_passed_on(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        notice = told(issue, comment=Comment(id="5", text="yes"))
        await it.tell(notice)
        await it.tell(told(issue, comment=Comment(id="6", text="no"), location="acme/other"))
        assert it.comments == [notice]


@pytest.mark.parametrize("status", [401, 403, 404, 500, 502])
@virtual
async def test_pitfall_85_our_trouble_is_to_be_sent_again_and_never_an_error_of_the_webhook(
    clock: VirtualClock, tmp_path: Path, status: int
) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        it.hub.answers = [Answer(status=status, body=b"{}") for _ in range(2)]
        with pytest.raises(RetryLater):
            await it.tell(told(issue, whole=False))
        it.hub.answers = []
        assert await it.tell(told(issue, whole=False)) == ["ready:fix"]


@virtual
async def test_a_read_for_a_webhook_ends_after_five_seconds(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        it.hub.answers = [Answer(hang=True)]
        began = clock.time()
        with pytest.raises(RetryLater, match="5 s"):
            await it.tell(told(issue, whole=False))
        assert clock.time() - began < 6


class Post:
    """Sends webhooks as GitHub does, through the engine's own handler."""

    def __init__(self, it: Tracked, secret: str = "s3cret") -> None:
        self._it, self._secret = it, secret

    async def __call__(self, event: str, **payload: Any) -> int:
        """Returns the status of the answer."""
        body = msgspec.json.encode({"repository": {"full_name": SHOP}, **payload})
        signature = "sha256=" + hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"x-github-event": event, "x-hub-signature-256": signature, "content-length": str(len(body))}
        scope = {
            "path": "/webhooks/github/hub",
            "method": "POST",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        await self._it.intake.webhooks(scope, receive, send)
        return statuses[0]


@virtual
async def test_signed_webhooks_are_answered_by_what_became_of_them(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        it.notices = GitHubNotices("s3cret", None, clock)
        await it.start()
        await it.cycle(5)
        post, forged = Post(it), Post(it, "guess")
        issue = it.hub.open("fix")
        shown = issue.to_json()
        assert await forged("issues", action="opened", issue=shown) == 401
        assert await ran(it) == {}
        assert await post("issues", action="opened", issue=shown) == 202
        assert await post("issues", action="labeled", issue=shown, label={"name": "fix"}) == 200
        assert await post("push", ref="refs/heads/main") == 200
        assert await post("issues", action="labeled", issue={"odd": True}) == 200
        assert await ran(it) == {"1": 1}
        await it.begin_runs()
        it.hub.answers = [Answer(status=500, body=b"{}")]
        assert await post("issues", action="labeled", issue=issue.to_json()) == 503
        assert await post("issues", action="labeled", issue=issue.to_json()) == 200
        await it.end_runs()
        await post("issue_comment", action="created", issue=issue.to_json(), comment={"id": 5, "body": "nice"})
        assert [notice.comment.text for notice in it.comments if notice.comment] == ["nice"]
        await cycles(it, 20)
        assert await ran(it) == {"1": 1}
        assert await it.states(id_of(issue)) == ["ready:fix", "claimed:in-progress", "claimed:done"]


@virtual
async def test_a_deleted_ticket_ends_its_run_but_not_right_after_our_write(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        await it.tell(told(issue))
        await it.begin_runs()
        it.hub.delete(issue)
        assert await it.tell(told(issue, whole=False)) == []
        await it.cycle(601)
        assert await it.tell(told(issue, whole=False)) == ["closed"]


async def queue_run(it: Tracked, issue: Issue) -> None:
    """The projector knows of the run of this ticket, and has written nothing on it yet."""
    (run,) = await it.runs()
    await it.memories.put(id_of(issue), TicketMemory(project="shop", run=run.id, status=run.status))


@virtual
async def test_a_ticket_that_copies_do_not_have_yet_keeps_its_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(QUARTER - 1)
        issue = it.hub.open("fix")
        opened = told(issue)
        issue.deleted = True
        assert await it.tell(opened) == ["ready:fix"]
        await queue_run(it, issue)
        # GitHub tells of the label in a webhook of its own, and then the sweep comes
        assert await it.tell(opened) == []
        await it.cycle(5)
        assert sum(seen.path.endswith(f"/issues/{issue.number}") for seen in it.hub.seen) == 2
        issue.deleted = False
        await it.cycle()
        assert await it.states(id_of(issue)) == ["ready:fix", "claimed:enqueued"]


@virtual
async def test_a_ticket_that_stays_away_ends_a_run_of_which_nothing_was_written(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        await it.tell(told(issue))
        await queue_run(it, issue)
        it.hub.delete(issue)
        assert await it.tell(told(issue, whole=False)) == []
        await it.cycle(61)
        assert await it.tell(told(issue, whole=False)) == ["closed"]


@virtual
async def test_webhooks_of_one_replica_and_polls_of_another_are_one_run_each(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        other = it.another_source()
        for round in range(10):
            await it.cycle(50 + round)
            issue = it.hub.open()
            opened = told(issue)
            it.hub.label(issue, "fix")
            it.notices.told = [told(issue)]
            request = Request(headers={}, body=b"{}", received_at=clock.now())
            first, second = await asyncio.gather(other.receive(request), other.receive(request))
            await it.cycle(8)
            for events in (first, second):
                await it.intake.committer.push(it.feed, events, Read(now=clock.now()))
            it.notices.told = [opened]
            late = await other.receive(request)
            await it.intake.committer.push(it.feed, late, Read(now=clock.now()))
            await it.cycle(5)
            await it.begin_runs()
            await it.end_runs()
        await cycles(it, 20)
        assert await ran(it) == {str(number): 1 for number in range(1, 11)}


class Broken:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def read(self, request: Request) -> Any:
        raise self._error


@virtual
async def test_a_wrong_signature_is_refused_and_a_fault_of_ours_is_not(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        reader: Any = Broken(Unauthorized("the signature is wrong"))
        it.source._notices = reader
        with pytest.raises(Unauthorized):
            await it.tell()

        async def fail(tracker: str, notice: Notice) -> None:
            raise NeedsAttention("nobody is there") if notice.id else KeyError("a fault")

        it.source._notices, it.source._on_comment = it.notices, fail
        issue = it.hub.open("fix")
        for id in ("1", ""):
            with pytest.raises(RetryLater):
                await it.tell(told(issue, id=id, comment=Comment(id="5", text="yes")))


@virtual
async def test_a_tracker_without_webhooks_takes_none(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path) as it:
        await it.start()
        await it.cycle(5)
        with pytest.raises(Refused):
            await it.tell(told(it.hub.open("fix")))
        assert it.settings.locations[0] == SHOP


@virtual
async def test_a_webhook_that_names_no_location_is_looked_for_in_all_of_them(
    clock: VirtualClock, tmp_path: Path
) -> None:
    """A minimal hook of Azure DevOps, or a comment of Jira Data Center."""
    given = settings(project(), project("search", "acme/search"), webhook=True)
    async with github(clock, tmp_path, given) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix", repo="acme/search")
        assert await it.tell(told(issue, whole=False, location="")) == ["ready:fix"]
        assert await it.tell(told(issue, whole=False, location="", id="99@99")) == []


@virtual
async def test_a_location_is_known_by_its_other_names_and_in_any_case(clock: VirtualClock, tmp_path: Path) -> None:
    """GitLab's webhooks have the path of a project, and a tracker may be made for its number."""
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        issue = it.hub.open("fix")
        assert await it.tell(told(issue, whole=False, location="acme/renamed")) == []
        assert await it.tell(told(issue, whole=False, location="acme/renamed", aliases=("7", "ACME/Shop"))) == [
            "ready:fix"
        ]


@virtual
async def test_a_comment_that_is_not_shown_is_passed_on_too(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(5)
        notice = told(it.hub.open("fix"), whole=False, commented=True)
        await it.tell(notice)
        assert it.comments == [notice]


@virtual
async def test_a_long_ticket_is_not_too_large_for_a_webhook(clock: VirtualClock, tmp_path: Path) -> None:
    """An answer of 413 puts a hook on probation, and texts have up to a million characters."""
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        assert it.source.max_bytes >= 5_000_000


@virtual
async def test_a_copy_from_the_very_second_of_a_webhook_counts_less_than_the_webhook(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with github(clock, tmp_path, MIXED) as it:
        await it.start()
        await it.cycle(55)
        issue = it.hub.open()
        it.hub.lag(issue, 30.0)
        it.hub.label(issue, "scan")
        await it.tell(told(issue))
        await it.memories.put(id_of(issue), TicketMemory(project="shop", withdrawn="r1"))
        it.hub.label(issue, "fix")
        await it.tell(told(issue))
        assert (await it.states(id_of(issue)))[-1] == "ready:fix"
