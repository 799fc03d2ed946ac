"""GitHub's issues as tickets: what the contract asks of every tracker, and what is special about GitHub."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest

from harken.errors import Misconfigured, NeedsAttention, Refused, RetryLater
from harken.http import Client
from harken.services.github import Account, plugin
from harken.services.github.api import Api
from harken.services.github.tracker import GitHubTracker
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub, Issue
from harken.testing.fakes.server import Answer
from harken.ticket import Access, Actor, LabelChange, PullRequest, Ticket
from harken.tickets import Trust, judge
from tests.services.github import SHOP, account
from tests.services.ticket_tracker_contract import TicketTrackerContract, all_changed, all_labelled, numbers

ODD = (
    "good first issue",
    "area/ui",
    'say "hi"',
    "it's",
    "größe 🔥",
    "../../issues/1",
    "100%",
    "a%2Fb",
    "x&state=all#?",
    "@me",
    "a;b",
    " or 1=1 --",
)


class HubBoard:
    """Somebody else than us is zoe, who may write."""

    def __init__(self, hub: GitHub, host: Host) -> None:
        self.hub = hub
        self.tracker = tracker(hub, host)

    def open(self, *labels: str) -> str:
        return str(self.hub.open(*labels, by="zoe").number)

    def close(self, number: str) -> None:
        self.hub.close(self._issue(number))

    def delete(self, number: str) -> None:
        self.hub.delete(self._issue(number))

    def label(self, number: str, label: str) -> None:
        self.hub.label(self._issue(number), label, by="zoe")

    def unlabel(self, number: str, label: str) -> None:
        self.hub.unlabel(self._issue(number), label, by="zoe")

    def labels(self, number: str) -> set[str]:
        return set(self._issue(number).labels)

    def comment(self, number: str, text: str) -> str:
        return str(self.hub.comment(self._issue(number), text, by="zoe")["id"])

    def delete_comment(self, number: str, id: str) -> None:
        issue = self._issue(number)
        issue.comments = [comment for comment in issue.comments if str(comment["id"]) != id]

    def answer_next_with(self, status: int) -> None:
        self.hub.answers = [Answer(status=status, body=b"{}")]

    def after_next_answer(self, change: Callable[[], object]) -> None:
        self.hub.after[len(self.hub.seen) + 1] = change

    def _issue(self, number: str) -> Issue:
        return self.hub.repos[SHOP].issues[int(number)]


class TestGitHubTickets(TicketTrackerContract):
    page_size = 100
    odd_labels = tuple(label.strip() for label in ODD)

    @pytest.fixture
    def board(self, hub: GitHub, host: Host) -> HubBoard:
        return HubBoard(hub, host)


@pytest.fixture
def board(hub: GitHub, host: Host) -> HubBoard:
    return HubBoard(hub, host)


@pytest.fixture
def tickets(board: HubBoard) -> GitHubTracker:
    return board.tracker


def tracker(hub: GitHub, host: Host, token: str = "classic", project: str = SHOP) -> GitHubTracker:
    made = plugin.tracker(project, account(hub, token), host) if plugin.tracker else None
    assert isinstance(made, GitHubTracker)
    return made


async def ticket_of(tickets: GitHubTracker, issue: Issue) -> Ticket:
    ticket = await tickets.get(str(issue.number))
    assert ticket is not None
    return ticket


async def history(tickets: GitHubTracker, issue: Issue) -> list[LabelChange]:
    changes = await tickets.label_history(await ticket_of(tickets, issue))
    assert changes is not None
    return list(changes)


def writes(hub: GitHub) -> list[tuple[str, str]]:
    return [(seen.method, seen.path.removeprefix("/repos/acme/shop")) for seen in hub.seen if seen.method != "GET"]


async def test_a_ticket_has_what_the_rules_need(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open("bug", title="It crashes", text="Since **today**", author="leo")
    assert await ticket_of(tickets, issue) == Ticket(
        id=f"{issue.number}@{issue.id}",
        ref=f"acme/shop#{issue.number}",
        number=str(issue.number),
        title="It crashes",
        text="Since **today**",
        url=f"https://github.com/acme/shop/issues/{issue.number}",
        status="open",
        closed=False,
        labels=("bug",),
        repo=SHOP,
        author="leo",
        created_at=issue.created_at,
        updated_at=issue.updated_at,
        version=issue.updated_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        handle=f"I_{issue.id}",
    )


async def test_pull_requests_are_no_tickets_and_hide_none(hub: GitHub, tickets: GitHubTracker, clock: HandClock):
    start = clock.now()
    for _ in range(130):
        hub.open("bug", pull=True)
    clock.advance(5)
    issue = hub.open("bug")
    assert [ticket.number for ticket in await all_labelled(tickets, "bug")] == [str(issue.number)]
    assert numbers(await all_changed(tickets, start)) == {str(issue.number)}
    assert await tickets.get("1") is None


async def test_labels_are_listed_one_by_one_whatever_their_case(hub: GitHub, tickets: GitHubTracker):
    hub.open("Bug")
    await all_labelled(tickets, "bug", "BUG", "crash")
    assert [seen.query["labels"] for seen in hub.seen] == ["bug", "crash"]


async def test_a_label_that_github_would_take_for_two_is_refused(hub: GitHub, tickets: GitHubTracker):
    for label in ("bug,crash", " ", "a\nb"):
        with pytest.raises(Misconfigured):
            await all_labelled(tickets, label)
    assert hub.seen == []


async def test_a_page_that_changed_in_one_second_is_read_by_its_link(hub: GitHub, tickets: GitHubTracker):
    opened = {str(hub.open("bug").number) for _ in range(350)}
    assert numbers(await all_labelled(tickets, "bug")) == opened
    assert [seen.query.get("page", "1") for seen in hub.seen][-2:] == ["3", "4"]


async def test_the_next_page_names_no_address(hub: GitHub, tickets: GitHubTracker):
    for _ in range(101):
        hub.open("bug")
    page = await tickets.list_labelled(["bug"], closed=False)
    assert page.next is not None
    assert "127.0.0.1" not in page.next
    evil = Answer(headers={"Link": '<https://evil.example/issues?page=2>; rel="next"'}, body=b"[]")
    hub.answers = [evil]
    with pytest.raises(Refused, match="another origin"):
        await tickets.list_labelled(["bug"], closed=False)


@pytest.mark.parametrize("body", [b"<html>", b'{"message": "odd"}', b"null", b'[{"title": "no number"}]'])
async def test_an_odd_answer_is_no_empty_list(hub: GitHub, tickets: GitHubTracker, body: bytes):
    hub.answers = [Answer(body=body)]
    with pytest.raises(RetryLater):
        await tickets.list_labelled(["bug"], closed=False)


async def test_disabled_issues_and_hidden_repositories_are_said(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].disabled = True
    with pytest.raises(NeedsAttention, match="disabled"):
        await tickets.list_labelled(["bug"], closed=False)
    hub.repos[SHOP].hidden = True
    with pytest.raises(NeedsAttention, match=r"404.*Issues \(read"):
        await tickets.list_changed(hub.now())


@pytest.mark.parametrize("project", ["", "shop", "acme/shop/../../user", "acme/..", "acme/shop?x=1", "a b/c"])
async def test_a_project_that_is_no_repository_is_refused(hub: GitHub, host: Host, project: str):
    with pytest.raises(Misconfigured, match="owner/name"):
        tracker(hub, host, project=project)


@pytest.mark.parametrize("id", ["", "abc", "-1", "1/../2", "1@", "1@x", "..", "99", "1?x", "١"])
async def test_what_is_no_ticket_is_gone(hub: GitHub, tickets: GitHubTracker, id: str):
    hub.open("bug")
    assert await tickets.get(id) is None


async def test_an_issue_of_a_repository_that_was_made_anew_is_another_one(hub: GitHub, tickets: GitHubTracker):
    before = await ticket_of(tickets, hub.open("bug"))
    hub.add_repo(SHOP)
    hub.open("bug")
    assert await tickets.get(before.id) is None
    assert (await tickets.get(before.number)) is not None


async def test_a_missing_ticket_and_a_hidden_repository_are_told_apart(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open("bug")
    assert await tickets.get("77") is None
    hub.repos[SHOP].hidden = True
    with pytest.raises(NeedsAttention, match="404"):
        await tickets.get(str(issue.number))
    hub.repos[SHOP].hidden, hub.repos[SHOP].disabled = False, True
    hub.delete(issue)
    with pytest.raises(NeedsAttention, match="410"):
        await tickets.get(str(issue.number))


async def test_a_transferred_issue_is_gone(hub: GitHub, tickets: GitHubTracker):
    hub.add_repo("acme/other")
    first, second = hub.open("bug"), hub.open("bug")
    ticket = await ticket_of(tickets, second)
    # the first gets the same number in the other repository
    assert hub.transfer(first, "acme/other").number == first.number
    hub.transfer(second, "acme/other")
    assert await tickets.get(str(first.number)) is None
    assert await tickets.get(ticket.id) is None
    assert await all_labelled(tickets, "bug") == []


async def test_nothing_is_written_to_an_issue_that_is_in_another_repository_now(hub: GitHub, tickets: GitHubTracker):
    hub.add_repo("acme/other")
    issue = hub.open("bug")
    ticket = await ticket_of(tickets, issue)
    written = await tickets.comment(ticket, "hello")
    there = hub.transfer(issue, "acme/other")
    for write in (
        tickets.swap_labels(ticket, ["harken:done"], ["bug"]),
        tickets.swap_labels(ticket, [], ["bug"]),
        tickets.comment(ticket, "hello"),
        tickets.edit_comment(ticket, written.id, "hello"),
        tickets.transition(ticket, "closed"),
    ):
        with pytest.raises(NeedsAttention, match="acme/shop#1 is in another repository now"):
            await write
    assert (there.labels, there.comments, there.state) == (["bug"], [], "open")


async def test_a_renamed_repository_keeps_its_tickets(hub: GitHub, host: Host, tickets: GitHubTracker):
    issue = hub.open("bug", "area/ui ü?")
    before = await ticket_of(tickets, issue)
    store = hub.add_repo("acme/store")
    store.issues, issue.repo = hub.repos[SHOP].issues, "acme/store"
    hub.repos[SHOP].moved_to = "acme/store"
    assert [ticket.id for ticket in await all_labelled(tickets, "bug")] == [before.id]
    after = await tickets.get(before.id)
    assert after is not None
    assert (after.id, after.ref) == (before.id, before.ref)
    swapped = await tickets.swap_labels(before, ["harken:done"], ["area/ui ü?"])
    assert swapped.labels == ("bug", "harken:done")
    assert (await tickets.comment(before, "hello")).text == "hello"
    assert (await tickets.transition(before, "closed")).closed


async def test_a_swap_is_one_write_and_never_all_labels(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].labels.append("harken:enqueued")
    ticket = await ticket_of(tickets, hub.open("bug", "harken:pending"))
    after = await tickets.swap_labels(ticket, ["harken:enqueued"], ["harken:pending", "harken:done"])
    assert after.labels == ("bug", "harken:enqueued")
    assert writes(hub) == [("POST", "/graphql")]
    hub.seen.clear()
    await tickets.swap_labels(after, [], ["harken:pending"])
    assert writes(hub) == []


async def test_a_label_that_the_repository_does_not_have_is_made_once(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock
):
    first, second = hub.open("bug", "harken:pending"), hub.open("bug", "harken:pending")
    began = clock.monotonic()
    for issue in (first, second):
        await tickets.swap_labels(await ticket_of(tickets, issue), ["harken:enqueued"], ["harken:pending"])
        assert issue.labels == ["bug", "harken:enqueued"]
    assert writes(hub) == [("POST", "/labels"), ("POST", "/graphql"), ("POST", "/graphql")]
    assert clock.monotonic() - began == 1.0, "writes of one swap are a second apart"


@pytest.mark.parametrize("status", [403, 404, 422])
async def test_a_label_that_may_not_be_made_is_put_on_with_rest(hub: GitHub, tickets: GitHubTracker, status: int):
    """GitHub lets whoever may label an issue make a label on the way, and says it better if not."""
    issue = hub.open("bug", "harken:pending")
    ticket = await ticket_of(tickets, issue)
    hub.after[3] = lambda: hub.answers.append(Answer(status=status, body=b"{}"))
    after = await tickets.swap_labels(ticket, ["harken:done"], ["harken:pending"])
    assert after.labels == ("bug", "harken:done")
    assert writes(hub)[1:] == [
        ("POST", f"/issues/{ticket.number}/labels"),
        ("DELETE", f"/issues/{ticket.number}/labels/harken:pending"),
    ]


async def test_nothing_is_taken_off_before_the_new_label_is_there(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].labels.append("harken:done")
    issue = hub.open("bug", "harken:pending")
    await tickets.swap_labels(await ticket_of(tickets, issue), ["harken:done"], ["harken:pending"])
    assert [(entry["event"], entry["label"]["name"]) for entry in issue.events[-2:]] == [
        ("labeled", "harken:done"),
        ("unlabeled", "harken:pending"),
    ]


@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_without_graphql_is_written_to_all_the_same(hub: GitHub, tickets: GitHubTracker, status: int):
    hub.repos[SHOP].labels.append("harken:done")
    first, second = hub.open("bug", "harken:pending"), hub.open("bug", "harken:pending")
    one, other = await ticket_of(tickets, first), await ticket_of(tickets, second)
    hub.graphql_status = status
    await tickets.swap_labels(one, ["harken:done"], ["harken:pending"])
    assert first.labels == ["bug", "harken:done"]
    hub.seen.clear()
    await tickets.swap_labels(other, ["harken:done"], ["harken:pending"])
    assert second.labels == ["bug", "harken:done"]
    assert "/graphql" not in {seen.path for seen in hub.seen}, "it is not asked again at once"


async def test_a_label_that_was_deleted_and_made_anew_is_found_again(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock
):
    """GraphQL does not know the id of the old one, and takes off what was to go all the same."""
    hub.repos[SHOP].labels.append("harken:done")
    before = await ticket_of(tickets, hub.open("bug", "harken:pending"))
    await tickets.swap_labels(before, ["harken:done"], ["harken:pending"])
    hub.renew_label("harken:done")
    ticket = await ticket_of(tickets, hub.open("bug", "harken:pending"))
    after = await tickets.swap_labels(ticket, ["harken:done"], ["harken:pending"])
    assert after.labels == ("bug", "harken:done")
    hub.seen.clear()
    third = await ticket_of(tickets, hub.open("bug", "harken:pending"))
    assert (await tickets.swap_labels(third, ["harken:done"], ["harken:pending"])).labels == after.labels
    assert writes(hub) == [("POST", "/graphql")]


@pytest.mark.parametrize(
    ("headers", "after"), [({}, 60.0), ({"Retry-After": "7"}, 7.0), ({"X-RateLimit-Remaining": "3"}, 60.0)]
)
async def test_a_limit_of_graphql_comes_with_a_success(
    hub: GitHub, tickets: GitHubTracker, headers: dict[str, str], after: float
):
    hub.repos[SHOP].labels.append("harken:done")
    issue = hub.open("bug", "harken:pending")
    ticket = await ticket_of(tickets, issue)
    await tickets.swap_labels(await ticket_of(tickets, hub.open("harken:pending")), ["harken:done"], ["harken:pending"])
    hub.answers = [
        Answer(headers=headers, body=b'{"errors": [{"message": "You have exceeded a secondary rate limit"}]}')
    ]
    with pytest.raises(RetryLater) as limited:
        await tickets.swap_labels(ticket, ["harken:done"], ["harken:pending"])
    assert (limited.value.reason, limited.value.after) == ("rate_limited", after)
    assert issue.labels == ["bug", "harken:pending"]


async def test_a_token_that_may_only_read_is_said_of_a_swap_too(hub: GitHub, host: Host):
    hub.read_only.add("fine")
    hub.repos[SHOP].labels.append("harken:done")
    reader = tracker(hub, host, "fine")
    ticket = await ticket_of(reader, hub.open("bug", "harken:pending"))
    with pytest.raises(NeedsAttention, match=r"403.*read and write for actions and tickets"):
        await reader.swap_labels(ticket, ["harken:done"], ["harken:pending"])


async def test_labels_are_taken_off_as_they_are_spelled(hub: GitHub, tickets: GitHubTracker):
    ticket = await ticket_of(tickets, hub.open("bug", "Harken:Pending"))
    after = await tickets.swap_labels(ticket, ["harken:done"], ["harken:pending"])
    assert after.labels == ("bug", "harken:done")


async def test_a_label_that_is_wanted_is_not_taken_off(hub: GitHub, tickets: GitHubTracker):
    ticket = await ticket_of(tickets, hub.open("bug"))
    after = await tickets.swap_labels(ticket, ["harken:done"], ["Harken:Done"])
    assert after.labels == ("bug", "harken:done")


async def test_a_label_that_cannot_be_in_an_address_is_refused_before_any_write(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open("bug", "..", "harken:pending")
    ticket = await ticket_of(tickets, issue)
    with pytest.raises(Refused):
        await tickets.swap_labels(ticket, ["harken:done"], ["harken:pending", ".."])
    assert issue.labels == ["bug", "..", "harken:pending"]
    after = await tickets.swap_labels(ticket, ["harken:done"], ["harken:pending"])
    assert after.labels == ("bug", "..", "harken:done")


async def test_a_label_that_goes_between_our_two_writes_is_no_error(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open("bug", "harken:pending")
    ticket = await ticket_of(tickets, issue)
    hub.after[2] = lambda: hub.unlabel(issue, "harken:pending", by="zoe")
    after = await tickets.swap_labels(ticket, ["harken:done"], ["harken:pending"])
    assert after.labels == ("bug", "harken:done")


async def test_a_copy_that_is_behind_does_not_undo_what_we_wrote(hub: GitHub, tickets: GitHubTracker, clock: HandClock):
    issue = hub.open("bug", "harken:pending")
    ticket = await ticket_of(tickets, issue)
    hub.lag(issue, 30)
    clock.advance(5)
    after = await tickets.swap_labels(ticket, ["harken:done"], ["harken:pending"])
    assert after.labels == ("bug", "harken:done")
    assert after.version == ticket.version
    clock.advance(30)
    fresh = await ticket_of(tickets, issue)
    assert fresh.labels == after.labels
    assert fresh.version > after.version


async def test_a_label_that_is_removed_right_after_our_write_has_a_later_version(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock
):
    issue = hub.open("bug")
    ticket = await ticket_of(tickets, issue)
    clock.advance(5)
    hub.after[2] = lambda: hub.unlabel(issue, "harken:done", by="zoe")
    after = await tickets.swap_labels(ticket, ["harken:done"], [])
    fresh = await ticket_of(tickets, issue)
    assert (after.labels, fresh.labels) == (("bug", "harken:done"), ("bug",))
    assert fresh.version > after.version


async def test_labels_of_an_issue_that_is_gone_are_not_written(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open("bug")
    ticket = await ticket_of(tickets, issue)
    hub.delete(issue)
    with pytest.raises(NeedsAttention, match="404"):
        await tickets.swap_labels(ticket, ["harken:done"], [])


async def test_a_token_that_may_only_read_is_said(hub: GitHub, host: Host):
    hub.read_only.add("fine")
    reader = tracker(hub, host, "fine")
    ticket = await ticket_of(reader, hub.open("bug"))
    with pytest.raises(NeedsAttention, match=r"403.*read and write for actions and tickets"):
        await reader.swap_labels(ticket, ["harken:done"], [])


async def test_too_many_writes_wait_as_long_as_github_says(hub: GitHub, tickets: GitHubTracker, clock: HandClock):
    ticket = await ticket_of(tickets, hub.open("bug"))
    for number in range(80):
        await tickets.comment(ticket, str(number))
    with pytest.raises(RetryLater) as limited:
        await tickets.swap_labels(ticket, ["harken:done"], [])
    assert (limited.value.reason, limited.value.after) == ("rate_limited", 60.0)
    clock.advance(60)
    await tickets.swap_labels(ticket, ["harken:done"], [])


async def test_labels_are_made_if_missing_among_many(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].labels += [f"label {number}" for number in range(210)] + ["Harken:Done"]
    assert await tickets.ensure_labels(["harken:done", "harken:failed", "Harken:Failed"]) == ["harken:failed"]
    assert hub.repos[SHOP].labels[-1] == "harken:failed"


async def test_a_label_that_somebody_else_makes_meanwhile_is_no_error(hub: GitHub, tickets: GitHubTracker):
    hub.after[1] = lambda: hub.repos[SHOP].labels.append("harken:done")
    assert await tickets.ensure_labels(["harken:done"]) == []
    with pytest.raises(NeedsAttention, match="422"):
        await tickets.ensure_labels(["x" * 51])


async def test_the_history_is_read_over_all_pages(hub: GitHub, tickets: GitHubTracker, clock: HandClock):
    issue = hub.open()
    for _ in range(120):
        hub.assign(issue, "leo")
        hub.label(issue, "bug", by="zoe")
        hub.unlabel(issue, "bug", by="zoe")
    clock.advance(60)
    hub.label(issue, "bug", by="leo")
    changes = await history(tickets, issue)
    assert len(changes) == 241
    assert changes[-1].actor == Actor(id=str(hub.account("leo")["id"]), login="leo")
    assert changes[-1].at == hub.now()


async def test_a_history_too_long_to_read_tells_nobody(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open("bug")
    issue.events = issue.events * 5001
    assert await tickets.label_history(await ticket_of(tickets, issue)) is None


async def test_the_history_of_a_deleted_issue_cannot_be_read(hub: GitHub, tickets: GitHubTracker):
    ticket = await ticket_of(tickets, issue := hub.open("bug"))
    hub.delete(issue)
    assert await tickets.label_history(ticket) is None


async def test_bots_deleted_and_renamed_accounts_are_told_apart(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open(author="ann")
    for login in ("triage[bot]", "gone", "zoe", "ghost"):
        hub.label(issue, login, by=login)
    zoe = str(hub.account("zoe")["id"])
    hub.forget("gone")
    hub.rename("zoe", "zoe-park")
    bot, gone, renamed, ghost = [change.actor for change in await history(tickets, issue)]
    assert (bot and bot.bot, gone, ghost) == (True, None, None)
    assert renamed == Actor(id=zoe, login="zoe-park")


@pytest.mark.parametrize("seconds", [0, 1])
async def test_a_label_of_a_form_is_not_its_authors(
    hub: GitHub, tickets: GitHubTracker, clock: HandClock, seconds: float
):
    issue = hub.open(author="stranger")
    clock.advance(seconds)
    hub.label(issue, "fix", by="stranger")
    (change,) = await history(tickets, issue)
    assert change.actor is not None
    assert (change.actor.form, change.actor.access) == (True, Access.READ)
    assert not judge(change.actor, Trust(label="anyone"), "7").yes


async def test_a_form_is_suspected_where_access_cannot_be_read(hub: GitHub, host: Host):
    hub.triage.add("fine")
    (change,) = await history(tracker(hub, host, "fine"), hub.open("fix", author="stranger", by="stranger"))
    assert change.actor is not None
    assert (change.actor.form, change.actor.access) == (True, Access.UNKNOWN)


@pytest.mark.parametrize("role", ["triage", "write", "maintain", "admin"])
async def test_a_label_that_its_author_may_put_on_is_the_authors(hub: GitHub, tickets: GitHubTracker, role: str):
    hub.repos[SHOP].roles["ann"] = role
    (change,) = await history(tickets, hub.open("fix", author="ann", by="ann"))
    assert change.actor == Actor(id=str(hub.account("ann")["id"]), login="ann")


async def test_only_the_author_and_only_while_opening_is_a_form(hub: GitHub, tickets: GitHubTracker, clock: HandClock):
    issue = hub.open(author="stranger")
    hub.label(issue, "a", by="zoe")
    hub.unlabel(issue, "a", by="stranger")
    clock.advance(60)
    hub.label(issue, "b", by="stranger")
    robot = hub.open("c", author="robot[bot]", by="robot[bot]")
    changes = [*await history(tickets, issue), *await history(tickets, robot)]
    assert [change.actor.form for change in changes if change.actor] == [False] * 4
    assert not any(seen.path.endswith("/permission") for seen in hub.seen)


@pytest.mark.parametrize(
    ("role", "access"),
    [
        ("admin", Access.WRITE),
        ("maintain", Access.WRITE),
        ("write", Access.WRITE),
        ("triage", Access.TRIAGE),
        ("triager", Access.TRIAGE),
        ("read", Access.READ),
        ("none", Access.NONE),
        ("odd", Access.UNKNOWN),
    ],
)
async def test_access_is_that_of_the_role(hub: GitHub, tickets: GitHubTracker, role: str, access: Access):
    hub.repos[SHOP].roles["zoe"] = role
    if role == "odd":
        hub.answers = [Answer(body=b'{"permission": "odd", "user": {"id": %d}}' % hub.account("zoe")["id"])]
    zoe = Actor(id=str(hub.account("zoe")["id"]), login="zoe")
    assert await tickets.access_of(zoe) is access


async def test_access_that_cannot_be_read_is_unknown(hub: GitHub, host: Host, tickets: GitHubTracker):
    hub.repos[SHOP].roles["zoe"] = "admin"
    zoe = Actor(id=str(hub.account("zoe")["id"]), login="zoe")
    hub.triage.add("fine")
    assert await tracker(hub, host, "fine").access_of(zoe) is Access.UNKNOWN
    assert await tickets.access_of(Actor(id="1", login="triage[bot]", bot=True)) is Access.UNKNOWN
    assert await tickets.access_of(Actor(id="1", login="")) is Access.UNKNOWN
    # somebody else has taken the login
    assert await tickets.access_of(Actor(id="1", login="zoe")) is Access.UNKNOWN


@pytest.mark.parametrize("ask", ["access_of", "own_account"])
async def test_a_limit_is_not_taken_for_missing_rights(hub: GitHub, tickets: GitHubTracker, ask: str):
    hub.answers = [Answer(status=403, headers={"Retry-After": "47"}, body=b"{}")]
    with pytest.raises(RetryLater) as limited:
        await (tickets.own_account() if ask == "own_account" else tickets.access_of(Actor(id="7", login="mia")))
    assert (limited.value.reason, limited.value.after) == ("rate_limited", 47.0)


async def test_our_own_account_is_that_of_the_token(hub: GitHub, host: Host, tickets: GitHubTracker):
    assert await tickets.own_account() == Actor(id="7", login="mia")
    hub.tokens["app"], hub.apps["app"] = None, "harken[bot]"
    app = tracker(hub, host, "app")
    mine = await app.own_account()
    assert mine == Actor(id=str(hub.account("harken[bot]")["id"]), login="harken[bot]", bot=True)
    issue = hub.open()
    await app.swap_labels(await ticket_of(app, issue), ["harken:done"], [])
    assert (await history(tickets, issue))[-1].actor == mine


async def test_a_token_that_says_not_whose_it_is_needs_a_person(hub: GitHub, tickets: GitHubTracker):
    hub.answers = [Answer(status=403, body=b"{}"), Answer(body=b'{"errors": [{"type": "FORBIDDEN"}]}')]
    with pytest.raises(NeedsAttention, match="403"):
        await tickets.own_account()
    hub.answers = [Answer(body=b'{"login": "mia"}')]
    with pytest.raises(RetryLater, match="whose token"):
        await tickets.own_account()


@pytest.mark.parametrize(
    ("base_url", "graphql"),
    [
        ("https://api.github.com", "https://api.github.com/graphql"),
        ("https://git.acme.example/api/v3/", "https://git.acme.example/api/graphql"),
        ("https://api.acme.ghe.com", "https://api.acme.ghe.com/graphql"),
    ],
)
def test_graphql_is_where_the_server_has_it(base_url: str, graphql: str, clock: HandClock):
    there = Account.model_validate({"token": "t", "base_url": base_url})
    assert Api(there, Host(http=Client(clock), clock=clock, random=Random(1))).graphql_url() == graphql


async def test_an_old_comment_that_is_edited_is_no_new_one(hub: GitHub, tickets: GitHubTracker, clock: HandClock):
    issue = hub.open()
    old = hub.comment(issue, "old", by="zoe")
    clock.advance(600)
    since = clock.now()
    hub.edit(old, "yes, go on")
    hub.comment(issue, "new", by="zoe")
    assert [one.text for one in await tickets.comments(await ticket_of(tickets, issue), since)] == ["new"]
    assert len(await tickets.comments(await ticket_of(tickets, issue), since - timedelta(seconds=600))) == 2


async def test_who_wrote_a_comment_is_told(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open()
    for login in ("zoe", "helper[bot]", "gone"):
        hub.comment(issue, login, by=login)
    hub.forget("gone")
    zoe, bot, gone = await tickets.comments(await ticket_of(tickets, issue))
    assert zoe.author == Actor(id=str(hub.account("zoe")["id"]), login="zoe")
    assert (bot.author and bot.author.bot, gone.author) == (True, None)


async def test_a_long_comment_is_cut_and_too_many_are_not(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open()
    ticket = await ticket_of(tickets, issue)
    assert len((await tickets.comment(ticket, "a" * 70_000)).text) == 65_000
    issue.comments = issue.comments * 5001
    with pytest.raises(NeedsAttention, match="more than 5,000 comments"):
        await tickets.comments(ticket)


async def test_a_comment_of_an_issue_that_is_gone_is_not_taken_for_a_deleted_one(hub: GitHub, tickets: GitHubTracker):
    issue = hub.open()
    ticket = await ticket_of(tickets, issue)
    written = await tickets.comment(ticket, "hello")
    hub.delete(issue)
    with pytest.raises(NeedsAttention, match="410"):
        await tickets.edit_comment(ticket, written.id, "hello again")
    hub.repos[SHOP].hidden = True
    with pytest.raises(NeedsAttention, match="404"):
        await tickets.edit_comment(ticket, written.id, "hello again")
    with pytest.raises(Refused):
        await tickets.edit_comment(ticket, "..", "hello")


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        ("closed", "closed", "completed"),
        ("Completed", "closed", "completed"),
        ("not_planned", "closed", "not_planned"),
    ],
)
async def test_an_issue_is_closed_with_a_reason_and_opened_again(
    hub: GitHub, tickets: GitHubTracker, status: str, state: str, reason: str
):
    issue = hub.open("bug", "harken:done")
    ticket = await ticket_of(tickets, issue)
    after = await tickets.transition(ticket, status)
    assert (after.status, after.closed, issue.state_reason) == (state, True, reason)
    assert issue.labels == ["bug", "harken:done"]
    again = await tickets.transition(after, "OPEN")
    assert (again.status, again.closed) == ("open", False)


@pytest.mark.parametrize("status", ["Done", "not planned", "closed ", "close", "reopened", "not_completed"])
async def test_another_status_names_those_that_exist(hub: GitHub, tickets: GitHubTracker, status: str):
    ticket = await ticket_of(tickets, hub.open())
    with pytest.raises(NeedsAttention, match="open, closed, completed, not_planned"):
        await tickets.transition(ticket, status)
    assert writes(hub) == []


def wanted(head: str = "harken/12", repo: str = SHOP) -> PullRequest:
    return PullRequest(repo=repo, head=head, base="main", title="Fix it", text="Closes #12")


async def test_a_pull_request_is_opened_once(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].branches.append("harken/12")
    first = await tickets.ensure_pull_request(wanted())
    assert first == "https://github.com/acme/shop/pull/1"
    assert await tickets.ensure_pull_request(wanted(repo="")) == first
    assert writes(hub) == [("POST", "/pulls")]
    assert hub.seen[0].query["head"] == "acme:harken/12"
    pull = hub.repos[SHOP].issues[1]
    assert (pull.title, pull.text, pull.base) == ("Fix it", "Closes #12", "main")


async def test_a_closed_pull_request_is_not_taken(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].branches.append("harken/12")
    hub.close(hub.open_pull("harken/12"))
    assert await tickets.ensure_pull_request(wanted()) == "https://github.com/acme/shop/pull/2"


async def test_the_pull_request_of_another_branch_or_fork_is_not_taken(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].branches.append("harken/12")
    hub.open_pull("harken/1")
    hub.open_pull("evil:harken/12")
    assert await tickets.ensure_pull_request(wanted()) == "https://github.com/acme/shop/pull/3"
    assert await tickets.ensure_pull_request(wanted("Evil:harken/12")) == "https://github.com/acme/shop/pull/2"


async def test_a_filter_that_github_ignores_finds_no_foreign_pull_request(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].branches.append("harken/12")
    foreign = (
        b'[{"html_url": "x", "head": {"ref": "harken/1", "repo": {"id": 1}}, "base": {"repo": {"id": 1}}},'
        b' {"html_url": "x", "head": {"ref": "harken/12", "user": {"login": "leo"}}, "base": {"repo": {"id": 1}}}]'
    )
    hub.answers = [Answer(body=foreign)]
    assert await tickets.ensure_pull_request(wanted()) == "https://github.com/acme/shop/pull/1"
    hub.answers = [Answer(body=foreign)]
    assert await tickets.ensure_pull_request(wanted("mia:harken/12")) == "https://github.com/acme/shop/pull/2"


async def test_a_pull_request_that_appears_meanwhile_is_taken(hub: GitHub, tickets: GitHubTracker):
    hub.repos[SHOP].branches.append("harken/12")
    hub.after[1] = lambda: hub.open_pull("harken/12")
    assert await tickets.ensure_pull_request(wanted()) == "https://github.com/acme/shop/pull/1"


async def test_a_pull_request_is_found_under_a_new_owner(hub: GitHub, tickets: GitHubTracker):
    hub.add_repo("newco/shop").branches.append("harken/12")
    hub.repos[SHOP].moved_to = "newco/shop"
    for _ in range(130):
        hub.open_pull("other", repo="newco/shop")
    hub.open_pull("harken/12", repo="newco/shop")
    assert await tickets.ensure_pull_request(wanted()) == "https://github.com/newco/shop/pull/131"


async def test_a_branch_that_does_not_exist_is_said(hub: GitHub, tickets: GitHubTracker):
    with pytest.raises(NeedsAttention, match=r"from harken/12 into main of acme/shop\. Check that both branches"):
        await tickets.ensure_pull_request(wanted())
    with pytest.raises(Misconfigured):
        await tickets.ensure_pull_request(wanted(repo="acme/shop/../../user"))
