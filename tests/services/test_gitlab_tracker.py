"""GitLab as a tracker: nothing is left out of a list, no label of people is touched, and refusals are said."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harken.errors import Garbled, HarkenError, Misconfigured, NeedsAttention, Refused, RetryLater
from harken.services.gitlab import plugin
from harken.services.gitlab.tracker import GitLabTracker
from harken.source import Host
from harken.testing import START, HandClock
from harken.testing.fakes.gitlab import GitLab, Issue
from harken.testing.fakes.server import Answer
from harken.ticket import Access, Actor, CodeHost, PullRequest, Ticket, TicketPage, TicketTracker
from tests.services.gitlab import SHOP, account
from tests.services.ticket_tracker_contract import TicketTrackerContract

UGLY = ["a b", "a/b", 'say "hi"', "it's", "ü 🔥", "..", "a&state=all", "%2F", "404", "stage::*", "#1", "x' OR '1'='1"]


@pytest.fixture
def tracker(lab: GitLab, host: Host) -> GitLabTracker:
    return GitLabTracker(SHOP, account(lab), host)


async def pages(read: Callable[..., Any], *args: Any, **options: Any) -> list[list[Ticket]]:
    found, next = [], None
    while True:
        page: TicketPage = await read(*args, page=next, **options)
        found.append(list(page.tickets))
        next = page.next
        if next is None:
            return found


async def numbers(read: Callable[..., Any], *args: Any, **options: Any) -> set[str]:
    return {ticket.number for page in await pages(read, *args, **options) for ticket in page}


async def ticket_of(tracker: GitLabTracker, issue: Issue) -> Ticket:
    found = await tracker.get(str(issue.iid))
    assert found is not None
    return found


def close_all(lab: GitLab, issues: list[Issue]) -> None:
    for issue in issues:
        lab.close(issue)


def writes(lab: GitLab) -> list[dict[str, Any]]:
    return [msgspec.json.decode(seen.body) for seen in lab.seen if seen.method in ("PUT", "POST")]


class LabBoard:
    """Somebody else than us is leo, who may write."""

    def __init__(self, lab: GitLab, host: Host) -> None:
        self.lab = lab
        self.tracker = GitLabTracker(SHOP, account(lab), host)

    def open(self, *labels: str) -> str:
        self.lab.labels += [label for label in labels if label not in self.lab.labels]
        return str(self.lab.open(*labels).iid)

    def close(self, number: str) -> None:
        self.lab.close(self._issue(number))

    def delete(self, number: str) -> None:
        self._issue(number).deleted = True

    def label(self, number: str, label: str) -> None:
        self.lab.label(self._issue(number), label)

    def unlabel(self, number: str, label: str) -> None:
        self.lab.unlabel(self._issue(number), label)

    def labels(self, number: str) -> set[str]:
        return set(self._issue(number).labels)

    def comment(self, number: str, text: str) -> str:
        return str(self.lab.comment(self._issue(number), text)["id"])

    def delete_comment(self, number: str, id: str) -> None:
        self.lab.delete_note(self._issue(number), int(id))

    def answer_next_with(self, status: int) -> None:
        self.lab.answers = [Answer(status=status, body=b"{}")]

    def after_next_answer(self, change: Callable[[], object]) -> None:
        self.lab.after[len(self.lab.seen) + 1] = change

    def _issue(self, number: str) -> Issue:
        return self.lab.projects[SHOP][int(number)]


class TestGitLabTickets(TicketTrackerContract):
    page_size, odd_labels = 100, tuple(UGLY)

    @pytest.fixture
    def board(self, lab: GitLab, host: Host) -> LabBoard:
        return LabBoard(lab, host)


def test_it_is_a_tracker_and_a_code_host_of_the_plugin(lab: GitLab, host: Host):
    assert plugin.tracker is not None
    tracker = plugin.tracker("278964", account_of("https://gitlab.com"), host)
    assert isinstance(tracker, GitLabTracker)
    typed: tuple[TicketTracker, CodeHost] = (tracker, tracker)
    assert typed


def account_of(base_url: str) -> Any:
    assert plugin.account is not None
    return plugin.account.model_validate({"token": "t", "base_url": base_url})


@pytest.mark.parametrize("project", ["", "shop", "acme/../user", "acme/shop?x=1", "acme%2Fshop", "1/2/../3"])
def test_what_is_no_project_is_refused(host: Host, project: str):
    with pytest.raises(Misconfigured, match="not a project"):
        GitLabTracker(project, account_of("https://gitlab.com"), host)


class TestGet:
    async def test_a_ticket_has_what_gitlab_tells(self, tracker: GitLabTracker, lab: GitLab):
        issue = lab.open("bug", "area::ui ü/?")
        assert await tracker.get("1") == Ticket(
            id="3#1",
            ref="acme/web/shop#1",
            title="Trouble 1",
            url="https://gitlab.com/acme/web/shop/-/issues/1",
            status="opened",
            closed=False,
            number="1",
            text="About Trouble 1",
            labels=("bug", "area::ui ü/?"),
            repo=SHOP,
            author="leo",
            created_at=START,
            updated_at=START,
            version="2026-01-05T09:00:00.000Z",
        )
        lab.close(issue)
        closed = await tracker.get("3#1")
        assert closed is not None
        assert (closed.status, closed.closed) == ("closed", True)

    async def test_the_id_survives_a_renaming_and_the_project_may_be_written_as_its_number(
        self, tracker: GitLabTracker, lab: GitLab, host: Host
    ):
        issue = lab.open("bug")
        before = await ticket_of(tracker, issue)
        by_number = GitLabTracker("3", account(lab), host)
        assert await by_number.get(before.id) == before
        lab.moved[SHOP], lab.projects = "acme/store", {"acme/store": lab.projects[SHOP]}
        issue.project = "acme/store"
        after = await tracker.get(before.id)
        assert after is not None
        assert (after.id, after.ref, after.repo) == (before.id, "acme/store#1", "acme/store")

    async def test_a_ticket_of_another_project_is_not_one_of_ours(self, tracker: GitLabTracker, lab: GitLab):
        lab.open()
        assert await tracker.get("4#1") is None

    async def test_a_deleted_ticket_is_gone_but_a_project_that_cannot_be_seen_is_an_error(
        self, tracker: GitLabTracker, lab: GitLab
    ):
        lab.open().deleted = True
        assert await tracker.get("1") is None
        assert await tracker.get("99") is None
        del lab.projects[SHOP]
        with pytest.raises(NeedsAttention, match="404"):
            await tracker.get("1")

    @pytest.mark.parametrize("id", ["", "x", "1/../2", "-1", "3#", "#1", "1#2#3", "１", "1?x=1", "9" * 40])
    async def test_what_is_no_id_is_refused_without_a_request(self, tracker: GitLabTracker, lab: GitLab, id: str):
        with pytest.raises(Refused):
            await tracker.get(id)
        assert lab.seen == []

    @pytest.mark.parametrize("broken", [{"iid": None}, {"project_id": "x/../y"}, {"iid": "1/../2"}, {"iid": 1.5}])
    async def test_an_issue_without_its_numbers_is_an_error(self, tracker: GitLabTracker, lab: GitLab, broken: Any):
        lab.open().broken = broken
        with pytest.raises(Garbled):
            await tracker.get("1")

    async def test_odd_fields_become_empty(self, tracker: GitLabTracker, lab: GitLab):
        odd = {"title": None, "description": [], "labels": [{"name": "bug"}, 3], "author": None, "references": 7}
        lab.open().broken = {**odd, "created_at": "soon", "updated_at": None}
        ticket = await ticket_of(tracker, lab.projects[SHOP][1])
        assert (ticket.title, ticket.text, ticket.labels, ticket.author) == ("", "", ("bug",), "")
        assert (ticket.ref, ticket.created_at, ticket.version) == ("acme/web/shop#1", None, "")


class TestListLabelled:
    async def test_all_pages_of_all_labels_are_listed(self, tracker: GitLabTracker, lab: GitLab, clock: HandClock):
        for count in range(250):
            clock.advance(0.5)
            lab.open("bug" if count % 2 else "idea")
        lab.open("other")
        found = await pages(tracker.list_labelled, ["bug", "idea"], closed=False)
        assert {ticket.number for page in found for ticket in page} == {str(number) for number in range(1, 251)}
        assert len(found) == 4

    async def test_250_of_one_moment_are_all_listed(self, tracker: GitLabTracker, lab: GitLab, clock: HandClock):
        for _ in range(250):
            lab.open("bug")
        clock.advance(1)
        lab.open("bug")
        assert len(await numbers(tracker.list_labelled, ["bug"], closed=False)) == 251

    async def test_one_that_leaves_the_list_while_it_is_read_hides_no_other(
        self, tracker: GitLabTracker, lab: GitLab, clock: HandClock
    ):
        made = []
        for _ in range(250):
            clock.advance(0.5)
            made.append(lab.open("bug"))
        # the first answer is that about the spelling of the label
        lab.after[2] = lambda: close_all(lab, made[:60])
        found = await numbers(tracker.list_labelled, ["bug"], closed=False)
        assert {str(issue.iid) for issue in made[60:]} <= found

    async def test_closed_ones_are_listed_only_if_asked_for(self, tracker: GitLabTracker, lab: GitLab):
        lab.close(lab.open("bug"))
        lab.open("bug")
        lab.open("bug").deleted = True
        assert await numbers(tracker.list_labelled, ["bug"], closed=False) == {"2"}
        assert await numbers(tracker.list_labelled, ["bug"], closed=True) == {"1", "2"}

    @pytest.mark.parametrize("knows_search", [True, False])
    async def test_the_spelling_of_the_project_is_listed_too(
        self, tracker: GitLabTracker, lab: GitLab, knows_search: bool
    ):
        lab.knows_search = knows_search
        lab.labels = [f"label {count}" for count in range(120)] + ["Bug", "BUG", "bugs"]
        for name in ("Bug", "BUG", "bugs", "bug"):
            lab.open(name)
        assert await numbers(tracker.list_labelled, ["bug"], closed=False) == {"1", "2", "4"}

    @pytest.mark.parametrize("label", UGLY)
    async def test_a_label_with_any_character_stays_one_value(self, tracker: GitLabTracker, lab: GitLab, label: str):
        lab.close(lab.open(label))
        lab.open(label)
        lab.open("bug")
        assert await numbers(tracker.list_labelled, [label], closed=False) == {"2"}

    @pytest.mark.parametrize("label", ["", " ", "a,b", "any", "None", "ANY"])
    async def test_what_gitlab_takes_for_something_else_is_refused(
        self, tracker: GitLabTracker, lab: GitLab, label: str
    ):
        lab.open("bug")
        with pytest.raises(NeedsAttention, match="label"):
            await tracker.list_labelled([label], closed=False)
        assert lab.seen == []

    async def test_a_wildcard_of_scoped_labels_is_only_a_name(self, tracker: GitLabTracker, lab: GitLab):
        other = lab.open("stage::done").to_json()
        lab.after[1] = lambda: lab.answers.append(Answer(body=msgspec.json.encode([other])))
        assert await numbers(tracker.list_labelled, ["stage::*"], closed=False) == set()

    async def test_no_labels_are_no_tickets_and_no_requests(self, tracker: GitLabTracker, lab: GitLab):
        lab.open()
        assert await pages(tracker.list_labelled, [], closed=True) == [[]]
        assert lab.seen == []


class TestListChanged:
    async def test_all_changes_are_listed_oldest_first(self, tracker: GitLabTracker, lab: GitLab, clock: HandClock):
        made = []
        for _ in range(250):
            clock.advance(0.01)
            made.append(lab.open())
        lab.close(made[3])
        found = [ticket for page in await pages(tracker.list_changed, START) for ticket in page]
        assert {ticket.number for ticket in found} == {str(issue.iid) for issue in made}
        times = [ticket.updated_at for ticket in found if ticket.updated_at]
        assert times == sorted(times)

    async def test_what_changes_while_it_is_read_hides_no_other(
        self, tracker: GitLabTracker, lab: GitLab, clock: HandClock
    ):
        made = []
        for _ in range(250):
            clock.advance(0.01)
            made.append(lab.open())
        clock.advance(1)
        lab.after[1] = lambda: [lab.comment(issue) for issue in made[:60]]
        assert len(await numbers(tracker.list_changed, START)) == 250

    async def test_the_moment_itself_counts_and_what_is_older_does_not(
        self, tracker: GitLabTracker, lab: GitLab, clock: HandClock
    ):
        lab.open(age=60)
        clock.advance(0.0004)
        lab.open()
        assert await numbers(tracker.list_changed, START + timedelta(microseconds=400)) == {"2"}

    @pytest.mark.parametrize("page", ["2", "{}x", '{"page": "2"}', "https://evil.example/"])
    async def test_a_page_that_was_never_told_of_is_refused(self, tracker: GitLabTracker, lab: GitLab, page: str):
        with pytest.raises(Refused):
            await tracker.list_changed(START, page=page)
        assert lab.seen == []

    async def test_a_list_that_does_not_end_is_an_error(self, tracker: GitLabTracker, lab: GitLab):
        lab.answers = [Answer(headers={"X-Next-Page": "2"}, body=b"[]")]
        with pytest.raises(RetryLater, match="does not end"):
            await tracker.list_changed(START)


class TestLabelHistory:
    async def test_it_tells_who_put_labels_on_and_off_on_all_pages(
        self, tracker: GitLabTracker, lab: GitLab, clock: HandClock
    ):
        issue = lab.open()
        for _ in range(120):
            clock.advance(1)
            lab.label(issue, "bug", by="leo")
            lab.unlabel(issue, "bug", by="zoe")
        history = await tracker.label_history(await ticket_of(tracker, issue))
        assert history is not None
        assert len(history) == 240
        assert [(one.label, one.added, one.actor and one.actor.login) for one in history[-2:]] == [
            ("bug", True, "leo"),
            ("bug", False, "zoe"),
        ]
        assert history[-1].at == START + timedelta(seconds=120)

    async def test_it_is_sorted_by_time(self, tracker: GitLabTracker, lab: GitLab, clock: HandClock):
        issue = lab.open()
        for name in ("a", "b", "c"):
            clock.advance(1)
            lab.label(issue, name)
        issue.happened["label"].reverse()
        history = await tracker.label_history(await ticket_of(tracker, issue))
        assert [one.label for one in history or ()] == ["a", "b", "c"]

    async def test_accounts_that_are_gone_are_nobody_and_deleted_labels_are_left_out(
        self, tracker: GitLabTracker, lab: GitLab
    ):
        issue = lab.open()
        lab.label(issue, "never told", by=None)
        lab.label(issue, "by a deleted account", by="ghost")
        lab.label(issue, "deleted", by="leo")
        lab.delete_label("deleted")
        history = await tracker.label_history(await ticket_of(tracker, issue))
        assert [(one.label, one.actor) for one in history or ()] == [
            ("never told", None),
            ("by a deleted account", None),
        ]

    @pytest.mark.parametrize(
        ("name", "flagged", "bot"),
        [
            ("project_1_bot", False, True),
            ("group_12_bot2", False, True),
            ("project_3_bot_4ffca233d8298ea1", False, True),
            ("service_account_group_345_0f", False, True),
            ("deployer", True, True),
            ("robot", False, False),
            ("project_x_bot", False, False),
            ("my_project_1_bot", False, False),
        ],
    )
    async def test_bots_are_known_by_name_or_by_their_account(
        self, tracker: GitLabTracker, lab: GitLab, name: str, flagged: bool, bot: bool
    ):
        lab.bots = {name} if flagged else set()
        issue = lab.open()
        lab.label(issue, "bug", by=name)
        (change,) = await tracker.label_history(await ticket_of(tracker, issue)) or ()
        assert change.actor == Actor(id=str(lab.user(name)["id"]), login=name, bot=bot)

    async def test_an_account_is_looked_up_once(self, tracker: GitLabTracker, lab: GitLab):
        issue = lab.open()
        for name in ("a", "b", "c"):
            lab.label(issue, name, by="leo")
        ticket = await ticket_of(tracker, issue)
        await tracker.label_history(ticket)
        await tracker.label_history(ticket)
        assert sum("/users/" in seen.path for seen in lab.seen) == 1

    @pytest.mark.parametrize("status", [403, 404])
    async def test_none_if_it_may_not_be_read(self, tracker: GitLabTracker, lab: GitLab, status: int):
        ticket = await ticket_of(tracker, lab.open())
        lab.answers = [Answer(status=status, body=b"{}")]
        assert await tracker.label_history(ticket) is None

    async def test_a_project_that_cannot_be_seen_and_a_limit_on_accounts_are_errors(
        self, tracker: GitLabTracker, lab: GitLab
    ):
        issue = lab.open()
        lab.label(issue, "bug", by="leo")
        ticket = await ticket_of(tracker, issue)
        lab.after[2] = lambda: lab.answers.append(Answer(status=403, headers={"Retry-After": "9"}))
        with pytest.raises(RetryLater):
            await tracker.label_history(ticket)
        del lab.projects[SHOP]
        with pytest.raises(NeedsAttention, match="404"):
            await tracker.label_history(ticket)

    @pytest.mark.parametrize("status", [403, 404])
    async def test_an_account_that_may_not_be_looked_up_is_judged_by_its_name(
        self, tracker: GitLabTracker, lab: GitLab, status: int
    ):
        issue = lab.open()
        lab.label(issue, "bug", by="leo")
        ticket = await ticket_of(tracker, issue)
        lab.after[2] = lambda: lab.answers.append(Answer(status=status, body=b"{}"))
        (change,) = await tracker.label_history(ticket) or ()
        assert change.actor == actor(lab, "leo")


class TestAccess:
    @pytest.mark.parametrize(
        ("level", "access"),
        [
            (60, Access.WRITE),
            (50, Access.WRITE),
            (40, Access.WRITE),
            (30, Access.WRITE),
            (20, Access.TRIAGE),
            (15, Access.TRIAGE),
            (10, Access.READ),
            (5, Access.READ),
            (0, Access.NONE),
            ("30", Access.UNKNOWN),
        ],
    )
    async def test_by_role(self, tracker: GitLabTracker, lab: GitLab, level: Any, access: Access):
        lab.members["zoe"] = level
        assert await tracker.access_of(actor(lab, "zoe")) is access

    async def test_a_stranger_and_a_blocked_member_have_none(self, tracker: GitLabTracker, lab: GitLab):
        assert await tracker.access_of(actor(lab, "stranger")) is Access.NONE
        assert await tracker.access_of(Actor(id="12345", login="leo")) is Access.NONE
        lab.blocked = {"leo"}
        assert await tracker.access_of(actor(lab, "leo")) is Access.NONE

    async def test_what_cannot_be_read_is_unknown_or_an_error(self, tracker: GitLabTracker, lab: GitLab):
        lab.answers = [Answer(status=403, body=b"{}")]
        assert await tracker.access_of(actor(lab, "leo")) is Access.UNKNOWN
        assert await tracker.access_of(Actor(id="../../user", login="leo")) is Access.UNKNOWN
        del lab.projects[SHOP]
        with pytest.raises(NeedsAttention, match="404"):
            await tracker.access_of(actor(lab, "leo"))

    async def test_own_account(self, tracker: GitLabTracker, lab: GitLab):
        assert await tracker.own_account() == Actor(id="7", login="mia")
        lab.bots = {"mia"}
        assert await tracker.own_account() == Actor(id="7", login="mia", bot=True)
        lab.answers = [Answer(body=b"{}")]
        with pytest.raises(Garbled):
            await tracker.own_account()


def actor(lab: GitLab, name: str) -> Actor:
    return Actor(id=str(lab.user(name)["id"]), login=name)


class TestSwapLabels:
    async def test_one_write_swaps_and_all_other_labels_stay(self, tracker: GitLabTracker, lab: GitLab):
        issue = lab.open("bug", "harken:pending", "harken:mine")
        ticket = await ticket_of(tracker, issue)
        after = await tracker.swap_labels(ticket, ["harken:done"], ["harken:pending", "harken:failed"])
        assert after.labels == ("bug", "harken:mine", "harken:done")
        assert writes(lab) == [{"add_labels": "harken:done", "remove_labels": "harken:pending,harken:failed"}]

    async def test_what_others_change_between_our_read_and_our_write_stays(
        self, tracker: GitLabTracker, lab: GitLab, clock: HandClock
    ):
        issue = lab.open("bug", "harken:pending")
        ticket = await ticket_of(tracker, issue)
        clock.advance(1)
        lab.label(issue, "urgent")
        lab.unlabel(issue, "bug")
        after = await tracker.swap_labels(ticket, ["harken:done"], ["harken:pending"])
        assert set(after.labels) == {"urgent", "harken:done"}
        assert after.version != ticket.version

    async def test_there_or_gone_already_is_no_error(self, tracker: GitLabTracker, lab: GitLab):
        ticket = await ticket_of(tracker, lab.open("bug"))
        assert (await tracker.swap_labels(ticket, ["bug"], ["gone"])).labels == ("bug",)
        assert (await tracker.swap_labels(ticket, [], [])).labels == ("bug",)
        assert len(writes(lab)) == 1

    async def test_a_label_is_removed_in_every_spelling_of_the_ticket(self, tracker: GitLabTracker, lab: GitLab):
        ticket = await ticket_of(tracker, lab.open("Harken:Pending", "HARKEN:PENDING", "bug"))
        assert (await tracker.swap_labels(ticket, [], ["harken:pending"])).labels == ("bug",)
        assert len(writes(lab)) == 1

    async def test_a_spelling_that_came_after_our_read_is_removed_too(self, tracker: GitLabTracker, lab: GitLab):
        issue = lab.open("harken:pending")
        ticket = await ticket_of(tracker, issue)
        issue.labels = ["Harken:Pending", "bug"]
        assert (await tracker.swap_labels(ticket, [], ["harken:pending"])).labels == ("bug",)
        assert len(writes(lab)) == 2

    async def test_a_label_that_is_there_in_another_spelling_is_not_doubled(self, tracker: GitLabTracker, lab: GitLab):
        ticket = await ticket_of(tracker, lab.open("Harken:Done"))
        after = await tracker.swap_labels(ticket, ["harken:done"], ["harken:DONE"])
        assert after.labels == ("Harken:Done",)

    @pytest.mark.parametrize("label", UGLY)
    async def test_labels_with_any_character_are_written_whole(self, tracker: GitLabTracker, lab: GitLab, label: str):
        ticket = await ticket_of(tracker, lab.open("bug"))
        added = await tracker.swap_labels(ticket, [label], [])
        assert added.labels == ("bug", label)
        assert (await tracker.swap_labels(added, [], [label])).labels == ("bug",)

    @pytest.mark.parametrize(("add", "remove"), [(["a,b"], []), ([], ["bug,b"]), ([" "], []), ([], [""])])
    async def test_a_comma_would_write_other_labels_so_nothing_is_written(
        self, tracker: GitLabTracker, lab: GitLab, add: list[str], remove: list[str]
    ):
        ticket = await ticket_of(tracker, lab.open("bug"))
        with pytest.raises(NeedsAttention, match="comma"):
            await tracker.swap_labels(ticket, add, remove)
        assert writes(lab) == []

    @pytest.mark.parametrize(("add", "remove"), [(["done"], []), ([], ["bug"]), (["done"], ["bug"])])
    async def test_a_write_that_gitlab_leaves_out_for_want_of_a_role_is_said(
        self, tracker: GitLabTracker, lab: GitLab, add: list[str], remove: list[str]
    ):
        lab.members["mia"] = 10
        ticket = await ticket_of(tracker, lab.open("bug"))
        with pytest.raises(NeedsAttention, match=r"did not change these labels of acme/web/shop#1.*Reporter"):
            await tracker.swap_labels(ticket, add, remove)
        assert len(writes(lab)) == 1

    async def test_closed_tickets_are_written_and_deleted_ones_are_an_error(self, tracker: GitLabTracker, lab: GitLab):
        issue = lab.open()
        ticket = await ticket_of(tracker, issue)
        lab.close(issue)
        assert (await tracker.swap_labels(ticket, ["done"], [])).closed
        issue.deleted = True
        with pytest.raises(NeedsAttention, match="404"):
            await tracker.swap_labels(ticket, ["done"], [])

    async def test_a_project_that_was_renamed_is_written_by_its_number(self, tracker: GitLabTracker, lab: GitLab):
        issue = lab.open()
        ticket = await ticket_of(tracker, issue)
        lab.moved[SHOP], lab.projects = "acme/store", {"acme/store": lab.projects[SHOP]}
        assert (await tracker.swap_labels(ticket, ["done"], [])).labels == ("done",)
        assert (await tracker.comment(ticket, "hello")).text == "hello"
        assert await tracker.ensure_labels(["new"]) == ["new"]
        wanted = PullRequest(repo=SHOP, head="harken/1", base="main", title="Fix")
        assert (await tracker.ensure_pull_request(wanted)).endswith("/1")


class TestEnsureLabels:
    async def test_missing_labels_are_made_once(self, tracker: GitLabTracker, lab: GitLab):
        assert await tracker.ensure_labels(["bug", "harken:done", "harken:done", *UGLY]) == ["harken:done", *UGLY]
        assert await tracker.ensure_labels(["bug", "harken:done", *UGLY]) == []
        assert len(writes(lab)) == 1 + len(UGLY)

    async def test_one_on_the_second_page_is_not_missing(self, tracker: GitLabTracker, lab: GitLab):
        lab.labels = [f"label {count:03}" for count in range(150)]
        assert await tracker.ensure_labels(["label 149", "label"]) == ["label"]

    async def test_another_spelling_is_another_label(self, tracker: GitLabTracker, lab: GitLab):
        assert await tracker.ensure_labels(["Bug"]) == ["Bug"]

    async def test_labels_of_a_group_and_those_that_others_just_made_are_there(
        self, tracker: GitLabTracker, lab: GitLab
    ):
        lab.group_labels = ["ours"]
        lab.after[3] = lambda: lab.labels.append("raced")
        assert await tracker.ensure_labels(["ours", "raced"]) == []
        assert [seen.status for seen in lab.seen if seen.method == "POST"] == [400, 409]

    async def test_a_role_that_may_not_make_labels_is_said(self, tracker: GitLabTracker, lab: GitLab):
        lab.members["mia"] = 10
        with pytest.raises(NeedsAttention, match="403"):
            await tracker.ensure_labels(["new"])
        with pytest.raises(NeedsAttention, match="comma"):
            await tracker.ensure_labels(["a,b"])


class TestComments:
    async def test_all_pages_oldest_first_without_those_of_gitlab(
        self, tracker: GitLabTracker, lab: GitLab, clock: HandClock
    ):
        issue = lab.open()
        for count in range(230):
            clock.advance(1)
            lab.comment(issue, f"comment {count}", by="zoe")
            lab.assign(issue, "mia")
        ticket = await ticket_of(tracker, issue)
        found = await tracker.comments(ticket)
        assert [one.text for one in found] == [f"comment {count}" for count in range(230)]
        assert found[0].author == actor(lab, "zoe")
        assert found[0].created_at == START + timedelta(seconds=1)
        assert found[0].url == f"https://gitlab.com/acme/web/shop/-/issues/1#note_{found[0].id}"

    async def test_since_a_time_only_the_newest_pages_are_read(
        self, tracker: GitLabTracker, lab: GitLab, clock: HandClock
    ):
        issue = lab.open()
        for count in range(350):
            clock.advance(1)
            lab.comment(issue, f"comment {count}")
        ticket = await ticket_of(tracker, issue)
        found = await tracker.comments(ticket, START + timedelta(seconds=231, microseconds=900))
        assert [one.text for one in found] == [f"comment {count}" for count in range(230, 350)]
        assert sum(seen.path.endswith("/notes") for seen in lab.seen) == 2

    async def test_bots_among_those_who_answer_are_known(self, tracker: GitLabTracker, lab: GitLab):
        issue, lab.bots = lab.open(), {"deployer"}
        lab.comment(issue, "yes", by="deployer")
        lab.comment(issue, "gone", by="ghost")
        first, second = await tracker.comments(await ticket_of(tracker, issue), START)
        assert first.author is not None
        assert first.author.bot
        assert second.author is None

    async def test_too_many_are_an_error_and_not_a_part(
        self, tracker: GitLabTracker, lab: GitLab, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr("harken.services.gitlab.tracker.MAX_PAGES", 2)
        issue = lab.open()
        for _ in range(201):
            lab.comment(issue)
        ticket = await ticket_of(tracker, issue)
        with pytest.raises(NeedsAttention, match="more than 200 comments"):
            await tracker.comments(ticket)
        for _ in range(201):
            lab.label(issue, "bug")
        assert await tracker.label_history(ticket) is None

    async def test_a_comment_is_written_and_edited(self, tracker: GitLabTracker, lab: GitLab):
        ticket = await ticket_of(tracker, lab.open())
        made = await tracker.comment(ticket, "Working **on it** 🔥\n\n<!-- mark -->")
        assert (made.text, made.author) == ("Working **on it** 🔥\n\n<!-- mark -->", Actor(id="7", login="mia"))
        edited = await tracker.edit_comment(ticket, made.id, "Done")
        assert edited is not None
        assert (edited.id, edited.text) == (made.id, "Done")
        assert [one.text for one in await tracker.comments(ticket)] == ["Done"]

    async def test_a_comment_that_was_deleted_before_the_edit_is_none(self, tracker: GitLabTracker, lab: GitLab):
        issue = lab.open()
        ticket = await ticket_of(tracker, issue)
        made = await tracker.comment(ticket, "one")
        lab.delete_note(issue, int(made.id))
        assert await tracker.edit_comment(ticket, made.id, "two") is None
        issue.deleted = True
        assert await tracker.edit_comment(ticket, made.id, "two") is None
        with pytest.raises(NeedsAttention, match="404"):
            await tracker.comments(ticket)

    async def test_a_comment_of_others_and_an_id_that_leads_elsewhere_are_errors(
        self, tracker: GitLabTracker, lab: GitLab
    ):
        issue = lab.open()
        ticket, other = await ticket_of(tracker, issue), lab.comment(issue, by="leo")
        with pytest.raises(NeedsAttention, match="403"):
            await tracker.edit_comment(ticket, str(other["id"]), "mine")
        with pytest.raises(Refused):
            await tracker.edit_comment(ticket, "..", "mine")
        with pytest.raises(Refused):
            await tracker.comment(msgspec.structs.replace(ticket, id="../../user"), "mine")

    @pytest.mark.parametrize("text", ["/close", "all good\n/close it", "a\r\n/close\r\n", "\r/close", "/clo\rse"])
    async def test_a_line_that_gitlab_would_execute_is_only_shown(self, tracker: GitLabTracker, lab: GitLab, text: str):
        issue = lab.open()
        ticket = await ticket_of(tracker, issue)
        made = await tracker.comment(ticket, text)
        await tracker.edit_comment(ticket, made.id, text)
        assert issue.state == "opened"
        assert r"\/close" in made.text

    async def test_paths_and_slashes_within_lines_stay_as_they_are(self, tracker: GitLabTracker, lab: GitLab):
        text = "/usr/bin/env python\nsee a /close b\n//close\n1/2"
        assert (await tracker.comment(await ticket_of(tracker, lab.open()), text)).text == text

    async def test_too_many_comments_a_minute_are_for_later(
        self, tracker: GitLabTracker, lab: GitLab, clock: HandClock
    ):
        lab.notes_per_minute = 1
        ticket = await ticket_of(tracker, lab.open())
        await tracker.comment(ticket, "one")
        with pytest.raises(RetryLater) as limited:
            await tracker.comment(ticket, "two")
        assert limited.value.reason == "rate_limited"
        clock.advance(61)
        assert (await tracker.comment(ticket, "two")).text == "two"


class TestTransition:
    async def test_issues_are_closed_and_opened_again(self, tracker: GitLabTracker, lab: GitLab):
        issue = lab.open("bug")
        ticket = await ticket_of(tracker, issue)
        assert (await tracker.transition(ticket, "Closed")).closed
        assert (await tracker.transition(ticket, "closed")).closed
        opened = await tracker.transition(ticket, "opened")
        assert (opened.closed, opened.status, opened.labels) == (False, "opened", ("bug",))

    @pytest.mark.parametrize("status", ["Done", "not closed", "close", "reclosed", "closed,opened", ""])
    async def test_a_status_is_compared_whole(self, tracker: GitLabTracker, lab: GitLab, status: str):
        ticket = await ticket_of(tracker, lab.open())
        with pytest.raises(NeedsAttention, match="opened or closed"):
            await tracker.transition(ticket, status)
        assert writes(lab) == []

    async def test_a_role_that_may_not_close_is_said(self, tracker: GitLabTracker, lab: GitLab):
        lab.members["mia"] = 10
        ticket = await ticket_of(tracker, lab.open())
        with pytest.raises(NeedsAttention, match="did not close acme/web/shop#1"):
            await tracker.transition(ticket, "closed")


class TestMergeRequests:
    wanted = PullRequest(repo=SHOP, head="harken/1", base="main", title="Fix it", text="For #1\n/close")

    async def test_it_is_opened_once(self, tracker: GitLabTracker, lab: GitLab):
        first = await tracker.ensure_pull_request(self.wanted)
        again = await tracker.ensure_pull_request(self.wanted)
        assert first == again == "https://gitlab.com/acme/web/shop/-/merge_requests/1"
        (made,) = writes(lab)
        assert made == {
            "source_branch": "harken/1",
            "target_branch": "main",
            "title": "Fix it",
            "description": "For #1\n\\/close",
        }

    async def test_only_an_open_one_from_the_same_branch_of_the_same_project_counts(
        self, tracker: GitLabTracker, lab: GitLab
    ):
        lab.merge_request("harken/1", state="merged")
        lab.merge_request("harken/12")
        for _ in range(120):
            lab.merge_request("harken/1", fork=True)
        assert (await tracker.ensure_pull_request(self.wanted)).endswith("/123")
        assert (await tracker.ensure_pull_request(self.wanted)).endswith("/123")

    async def test_a_server_that_ignores_the_branch_in_the_question_misleads_nobody(
        self, tracker: GitLabTracker, lab: GitLab
    ):
        lab.answers = [Answer(body=msgspec.json.encode([lab.merge_request("harken/12")]))]
        assert (await tracker.ensure_pull_request(self.wanted)).endswith("/2")

    async def test_one_into_another_branch_is_taken(self, tracker: GitLabTracker, lab: GitLab):
        lab.merge_request("harken/1", "next")
        assert (await tracker.ensure_pull_request(self.wanted)).endswith("/1")

    async def test_one_that_others_open_at_the_same_moment_is_taken(self, tracker: GitLabTracker, lab: GitLab):
        lab.after[1] = lambda: lab.merge_request("harken/1")
        assert (await tracker.ensure_pull_request(self.wanted)).endswith("/1")
        assert len(lab.merge_requests) == 1

    async def test_a_branch_that_is_not_there_and_a_project_that_is_none_are_errors(
        self, tracker: GitLabTracker, lab: GitLab
    ):
        with pytest.raises(NeedsAttention, match="branches"):
            await tracker.ensure_pull_request(msgspec.structs.replace(self.wanted, head="x&state=all"))
        assert lab.seen[-2].query["state"] == "opened"
        with pytest.raises(Misconfigured):
            await tracker.ensure_pull_request(msgspec.structs.replace(self.wanted, repo="acme/../user"))
        lab.answers = [Answer(body=b"[]"), Answer(status=201, body=b"{}")]
        with pytest.raises(Garbled):
            await tracker.ensure_pull_request(self.wanted)


TICKET = Ticket(id="3#1", ref="acme/web/shop#1", title="", url="", status="opened", closed=False, number="1")
CALLS: dict[str, Callable[[GitLabTracker], Any]] = {
    "list_labelled": lambda tracker: tracker.list_labelled(["bug"], closed=False),
    "list_changed": lambda tracker: tracker.list_changed(START),
    "get": lambda tracker: tracker.get("1"),
    "label_history": lambda tracker: tracker.label_history(TICKET),
    "access_of": lambda tracker: tracker.access_of(Actor(id="8", login="leo")),
    "own_account": lambda tracker: tracker.own_account(),
    "swap_labels": lambda tracker: tracker.swap_labels(TICKET, ["a"], ["b"]),
    "ensure_labels": lambda tracker: tracker.ensure_labels(["a"]),
    "comments": lambda tracker: tracker.comments(TICKET),
    "comment": lambda tracker: tracker.comment(TICKET, "a"),
    "edit_comment": lambda tracker: tracker.edit_comment(TICKET, "1", "a"),
    "transition": lambda tracker: tracker.transition(TICKET, "closed"),
    "ensure_pull_request": lambda tracker: tracker.ensure_pull_request(TestMergeRequests.wanted),
}


class TestTrouble:
    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    @pytest.mark.parametrize(
        "answer",
        [
            Answer(status=401, body=b"{}"),
            Answer(status=500, body=b"[]"),
            Answer(status=502, body=b"<html>"),
            Answer(body=b"<html>"),
            Answer(body=b'"text"'),
            Answer(status=304),
        ],
        ids=lambda answer: f"{answer.status} {answer.body.decode()}",
    )
    async def test_no_error_is_an_empty_answer(
        self, tracker: GitLabTracker, lab: GitLab, call: Callable[[GitLabTracker], Any], answer: Answer
    ):
        lab.open("bug")
        lab.answers = [answer]
        with pytest.raises((RetryLater, NeedsAttention)):
            await call(tracker)

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    @pytest.mark.parametrize("status", [429, 403])
    async def test_limits_say_how_long(
        self, tracker: GitLabTracker, lab: GitLab, call: Callable[[GitLabTracker], Any], status: int
    ):
        lab.open("bug")
        lab.answers = [Answer(status=status, headers={"Retry-After": "47"}, body=b"Retry later")]
        with pytest.raises(RetryLater) as limited:
            await call(tracker)
        assert (limited.value.reason, limited.value.after) == ("rate_limited", 47.0)
        lab.limit(90)
        with pytest.raises(RetryLater) as limited:
            await call(tracker)
        assert limited.value.after == 90.0

    @pytest.mark.parametrize(
        ("first", "read"),
        [
            (2, lambda tracker: pages(tracker.list_labelled, ["bug"], closed=False)),
            (1, lambda tracker: pages(tracker.list_changed, START)),
            (1, lambda tracker: tracker.label_history(TICKET)),
            (1, lambda tracker: tracker.comments(TICKET)),
            (1, lambda tracker: tracker.ensure_labels(["label"])),
            (1, lambda tracker: tracker.ensure_pull_request(TestMergeRequests.wanted)),
        ],
    )
    async def test_a_second_page_that_fails_fails_the_whole(
        self, tracker: GitLabTracker, lab: GitLab, first: int, read: Callable[[GitLabTracker], Any]
    ):
        issue = lab.open("bug")
        for count in range(150):
            lab.open("bug")
            lab.comment(issue)
            lab.label(issue, "x")
            lab.labels.append(f"label {count}")
            lab.merge_request("harken/1", fork=True)
        lab.after[first] = lambda: lab.answers.append(Answer(status=503, body=b"[]"))
        with pytest.raises(RetryLater):
            await read(tracker)

    async def test_a_token_that_may_only_read_names_the_scope_and_not_itself(self, lab: GitLab, host: Host):
        lab.open("bug")
        reader = GitLabTracker(SHOP, account(lab, "glpat-read"), host)
        for name in ("swap_labels", "ensure_labels", "comment", "edit_comment", "transition", "ensure_pull_request"):
            with pytest.raises(NeedsAttention, match="actions take api") as refused:
                await CALLS[name](reader)
            assert "glpat" not in str(refused.value)

    async def test_a_private_server_is_refused_unless_allowed(self, lab: GitLab, host: Host):
        guarded = Host(http=host.http, clock=host.clock, random=host.random)
        with pytest.raises(HarkenError, match="private"):
            await GitLabTracker(SHOP, account(lab), guarded).own_account()
        assert lab.seen == []
