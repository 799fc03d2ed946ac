"""Issues as tickets: found by label or change, labelled without losing a label, commented on, moved."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harken.errors import Misconfigured, NeedsAttention, Refused, RetryLater
from harken.services.jira import plugin
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.jira import TOKEN, Jira
from harken.ticket import Access, Actor, Comment, LabelChange, Ticket, TicketPage, TicketTracker
from tests.services.jira import account, serving
from tests.services.ticket_tracker_contract import ASKS, TicketTrackerContract

ODD_LABELS = ['a"b', "a'b", "a/b", "..", "a\\", 'x")OR(project="SECRET', "größe-🙂", "fix:bug", "a&b=c#d", "a\u00a0b"]
NO_IDS = ["..", "../../myself", "TEAM-1/../TEAM-2", "TEAM-1?x=1", "TEAM-1\n", "", "%2e%2e", "١"]
GONE = Answer(status=404, headers={"Content-Type": "text/html"}, body=b"<html>no such page</html>")


@pytest.fixture(params=["cloud", "server"])
async def jira(request: Any, clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=request.param == "cloud") as served:
        served.user("bob", email="bob@example.com")
        yield served


@pytest.fixture
async def cloud(clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=True) as served:
        yield served


@pytest.fixture
async def server(clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=False) as served:
        yield served


def tracker_of(jira: Jira, host: Host, project: str = "TEAM") -> TicketTracker:
    assert plugin.tracker is not None
    return plugin.tracker(project, account(jira), host)


async def labelled(tracker: TicketTracker, *labels: str, closed: bool = False) -> list[str]:
    """The keys of all pages, each once."""
    page = await tracker.list_labelled(labels, closed=closed)
    found = list(page.tickets)
    while page.next is not None:
        page = await tracker.list_labelled(labels, closed=closed, page=page.next)
        found += page.tickets
    return list(dict.fromkeys(ticket.ref for ticket in found))


async def read(tracker: TicketTracker, name: str) -> Ticket:
    ticket = await tracker.get(name)
    assert ticket is not None
    return ticket


async def history(tracker: TicketTracker, key: str) -> list[tuple[str, bool, str | None]]:
    changes = await tracker.label_history(await read(tracker, key))
    assert changes is not None
    return [(one.label, one.added, one.actor.id if one.actor else None) for one in changes]


def id_of(jira: Jira, user: str) -> str:
    return user if jira.cloud else f"JIRAUSER-{user}"


def edit(jira: Jira, keys: list[str]) -> None:
    for key in keys:
        jira.edit(key, "edited")


def writes(jira: Jira) -> list[tuple[str, str]]:
    return [(one.method, one.query.get("notifyUsers", "")) for one in jira.seen if one.method == "PUT"]


class JiraBoard:
    """Somebody else than us is bob."""

    def __init__(self, jira: Jira, host: Host) -> None:
        self.jira = jira
        self.tracker = tracker_of(jira, host)

    def open(self, *labels: str) -> str:
        return self.jira.create(labels=labels, creator="bob")

    def close(self, number: str) -> None:
        self.jira.move(number, "Done")

    def delete(self, number: str) -> None:
        self.jira.delete(number)

    def label(self, number: str, label: str) -> None:
        self.jira.label(number, *self.jira.issue(number).fields["labels"], label, by="bob")

    def unlabel(self, number: str, label: str) -> None:
        kept = [one for one in self.jira.issue(number).fields["labels"] if one != label]
        self.jira.label(number, *kept, by="bob")

    def labels(self, number: str) -> set[str]:
        return set(self.jira.issue(number).fields["labels"])

    def comment(self, number: str, text: str) -> str:
        return self.jira.comment(number, text, "bob")

    def delete_comment(self, number: str, id: str) -> None:
        self.jira.delete_comment(number, id)

    def answer_next_with(self, status: int) -> None:
        self.jira.answers = [Answer(status=status, body=b"{}")]

    def after_next_answer(self, change: Callable[[], object]) -> None:
        self.jira.after[len(self.jira.seen) + 1] = change


class TestJiraTickets(TicketTrackerContract):
    page_size, odd_labels = 100, tuple(ODD_LABELS)
    # labels need no making
    asks = tuple(ask for ask in ASKS if ask != "ensure_labels")

    @pytest.fixture
    def board(self, jira: Jira, host: Host) -> JiraBoard:
        return JiraBoard(jira, host)


async def test_a_ticket_has_what_the_engine_decides_by(jira: Jira, host: Host):
    key = jira.create(summary="Broken", description="It is on fire", labels=("fix", "urgent"), creator="bob")
    issue, ticket = jira.issue(key), await read(tracker_of(jira, host), key)
    assert ticket == Ticket(
        id=issue.id,
        ref=key,
        number=key,
        title="Broken",
        text="It is on fire",
        url=f"{jira.url}/browse/{key}",
        status="To Do",
        closed=False,
        labels=("fix", "urgent"),
        author="bob@example.com" if jira.cloud else "bob",
        created_at=issue.created,
        updated_at=issue.updated,
        version=ticket.version,
    )
    assert await read(tracker_of(jira, host), issue.id) == ticket


async def test_every_write_makes_another_version_and_the_time_zone_of_the_profile_makes_none(
    jira: Jira, host: Host, clock: HandClock
):
    tracker, key = tracker_of(jira, host), jira.create()
    first = await read(tracker, key)
    jira.issue(key).updated = jira.issue(key).updated.astimezone(None)
    assert (await read(tracker, key)).version == first.version
    clock.advance(1)
    assert (await tracker.swap_labels(first, ["a"], [])).version > first.version


async def test_all_pages_of_labelled_tickets_are_read(clock: HandClock, host: Host):
    for cloud in (True, False):
        async with serving(clock, cloud=cloud, cap=10) as jira:
            keys = [jira.create(labels=("Fix" if number % 2 else "docs",)) for number in range(35)]
            jira.create(labels=("other",))
            assert await labelled(tracker_of(jira, host), "fix", "docs") == keys


async def test_tickets_that_are_edited_while_they_are_listed_hide_no_others(clock: HandClock, host: Host):
    async with serving(clock, cloud=False, cap=10) as jira:
        keys = [jira.create(labels=("fix",)) for _ in range(40)]
        clock.advance(60)
        jira.after[2] = lambda: edit(jira, keys[:8])
        assert sorted(await labelled(tracker_of(jira, host), "fix")) == sorted(keys)


async def test_a_list_that_never_stands_still_is_tried_later_instead_of_having_a_gap(clock: HandClock, host: Host):
    async with serving(clock, cloud=False, cap=10) as jira:
        for _ in range(40):
            jira.create(labels=("fix",))
        tracker = tracker_of(jira, host)

        async def read_while_they_are_edited() -> None:
            page = await tracker.list_labelled(["fix"], closed=False)
            while page.next:
                clock.advance(1)
                edit(jira, [ticket.ref for ticket in page.tickets])
                page = await tracker.list_labelled(["fix"], closed=False, page=page.next)

        with pytest.raises(RetryLater, match="change faster"):
            await read_while_they_are_edited()


async def test_closed_tickets_are_listed_only_if_they_are_wanted(jira: Jira, host: Host):
    tracker = tracker_of(jira, host)
    keys = [jira.create(labels=("fix",), status=status) for status in ("To Do", "Done", "Not Done", "In Review")]
    assert await labelled(tracker, "fix") == [keys[0], keys[2], keys[3]]
    assert await labelled(tracker, "fix", closed=True) == keys
    assert [(await read(tracker, key)).closed for key in keys] == [False, True, False, False]


async def test_a_tracker_is_of_one_project_or_of_the_whole_jira(jira: Jira, host: Host):
    jira.project("OTHER")
    here, there = jira.create(labels=("fix",)), jira.create("OTHER", labels=("fix",))
    assert await labelled(tracker_of(jira, host), "fix") == [here]
    assert await labelled(tracker_of(jira, host, ""), "fix") == [here, there]
    assert await tracker_of(jira, host).get(there) is None
    assert (await read(tracker_of(jira, host, ""), there)).ref == there


async def test_a_ticket_that_moved_to_another_project_is_gone_from_this_one(jira: Jira, host: Host):
    jira.project("OTHER")
    tracker, key = tracker_of(jira, host), jira.create()
    id = jira.issue(key).id
    jira.relocate(key, "OTHER")
    assert await tracker.get(id) is None
    assert (await read(tracker_of(jira, host, "other"), id)).id == id


async def test_a_project_that_was_renamed_keeps_its_tickets(jira: Jira, host: Host):
    jira.renamed["OLD"] = "TEAM"
    key = jira.create()
    assert (await read(tracker_of(jira, host, "OLD"), key)).ref == key


@pytest.mark.parametrize("label", ODD_LABELS)
async def test_no_label_can_become_a_part_of_the_jql(jira: Jira, host: Host, label: str):
    jira.project("SECRET")
    jira.create("SECRET", labels=("plain",))
    tracker, key = tracker_of(jira, host), jira.create(labels=("mine",))
    assert await labelled(tracker, label, closed=True) == []
    swapped = await tracker.swap_labels(await read(tracker, key), [label], [])
    assert set(swapped.labels) == {"mine", label}
    assert await labelled(tracker, label) == [key]
    assert (await history(tracker, key))[-1] == (label, True, id_of(jira, "me"))
    assert (await tracker.swap_labels(swapped, [], [label])).labels == ("mine",)
    assert (await history(tracker, key))[-1] == (label, False, id_of(jira, "me"))


async def test_no_project_can_become_a_part_of_the_jql(jira: Jira, host: Host):
    jira.project("SECRET")
    jira.create("SECRET", labels=("fix",))
    with pytest.raises(NeedsAttention, match="does not exist"):
        await labelled(tracker_of(jira, host, 'NONE" OR project = "SECRET'), "fix")
    with pytest.raises(Misconfigured):
        tracker_of(jira, host, "TEAM\n")


@pytest.mark.parametrize("name", NO_IDS)
async def test_what_is_no_id_is_never_put_into_an_address(jira: Jira, host: Host, name: str):
    tracker, ticket = tracker_of(jira, host), await read(tracker_of(jira, host), jira.create())
    jira.seen.clear()
    assert await tracker.get(name) is None
    assert await tracker.edit_comment(ticket, name, "text") is None
    with pytest.raises(Refused):
        await tracker.comment(msgspec.structs.replace(ticket, id=name), "text")
    with pytest.raises(Refused):
        await tracker.swap_labels(msgspec.structs.replace(ticket, id=name), ["a"], [])
    assert [one for one in jira.seen if one.path.endswith("myself") or one.method != "GET"] == []


async def test_labels_that_no_issue_can_have_are_not_asked_for(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create(labels=("fix",))
    assert await labelled(tracker, "needs triage", "fix", "", "tab\there", "x" * 256) == [key]
    jira.seen.clear()
    assert await tracker.list_labelled(["needs triage"], closed=True) == TicketPage(tickets=())
    assert await tracker.list_labelled([], closed=True) == TicketPage(tickets=())
    assert jira.seen == []


@pytest.mark.parametrize("label", ["agent smith:done", "", "x" * 256, "line\nend"])
async def test_a_label_that_jira_cannot_have_is_refused_before_anything_is_written(jira: Jira, host: Host, label: str):
    tracker, key = tracker_of(jira, host), jira.create(labels=("fix",))
    with pytest.raises(NeedsAttention, match=r"cannot be a label of Jira\. Choose one without spaces"):
        await tracker.swap_labels(await read(tracker, key), ["ok", label], ["fix"])
    assert jira.issue(key).fields["labels"] == ("fix",)


async def test_changed_tickets_come_oldest_change_first_on_all_pages(clock: HandClock, host: Host):
    for cloud in (True, False):
        async with serving(clock, cloud=cloud, cap=10) as jira:
            jira.create()
            clock.advance(3600)
            since = clock.now()
            keys = [jira.create() for _ in range(25)]
            clock.advance(30)
            jira.edit(keys[0], "edited last")
            tracker = tracker_of(jira, host)
            page = await tracker.list_changed(since)
            found = [ticket.ref for ticket in page.tickets]
            while page.next:
                page = await tracker.list_changed(since, page=page.next)
                found += [ticket.ref for ticket in page.tickets]
            assert list(dict.fromkeys(found)) == [*keys[1:], keys[0]]


async def test_a_change_in_the_minute_of_the_mark_is_read_again(jira: Jira, host: Host, clock: HandClock):
    key = jira.create()
    page = await tracker_of(jira, host).list_changed(clock.now() + timedelta(seconds=59))
    assert [ticket.ref for ticket in page.tickets] == [key]


async def test_a_page_token_that_jira_forgot_starts_the_list_over(clock: HandClock, host: Host):
    async with serving(clock, cloud=True, cap=10) as jira:
        keys = [jira.create(labels=("fix",)) for _ in range(15)]
        tracker = tracker_of(jira, host)
        page = await tracker.list_labelled(["fix"], closed=False)
        jira.forget_tokens()
        page = await tracker.list_labelled(["fix"], closed=False, page=page.next)
        assert (page.tickets, page.next is None) == ((), False)
        page = await tracker.list_labelled(["fix"], closed=False, page=page.next)
        assert [ticket.ref for ticket in page.tickets] == keys[:10]


async def test_a_page_of_another_version_starts_the_list_over(jira: Jira, host: Host):
    key = jira.create(labels=("fix",))
    page = await tracker_of(jira, host).list_labelled(["fix"], closed=False, page="not ours")
    assert [ticket.ref for ticket in page.tickets] == [key]


async def test_after_our_write_the_search_is_asked_for_the_issue_as_it_is(cloud: Jira, host: Host, clock: HandClock):
    tracker, key = tracker_of(cloud, host), cloud.create(labels=("pending",))
    cloud.late = 120
    await tracker.swap_labels(await read(tracker, key), ["enqueued"], ["pending"])
    assert await labelled(tracker, "pending") == []
    assert await labelled(tracker, "enqueued") == [key]
    assert await labelled(tracker_of(cloud, host), "pending") == [key]
    clock.advance(3600)
    await labelled(tracker, "enqueued")
    assert "reconcileIssues" not in json.loads(cloud.seen[-1].body)


async def test_no_more_than_fifty_issues_are_asked_for_as_they_are(cloud: Jira, host: Host):
    tracker = tracker_of(cloud, host)
    for _ in range(60):
        await tracker.swap_labels(await read(tracker, cloud.create()), ["fix"], [])
    cloud.late = 120
    assert len(await labelled(tracker, "fix")) == 60
    searches = [json.loads(one.body) for one in cloud.seen if one.path.endswith("/search/jql")]
    assert {len(asked["reconcileIssues"]) for asked in searches} == {50}
    assert len(searches) == 2


async def test_a_search_that_jira_refuses_because_of_an_id_is_made_without_it(cloud: Jira, host: Host):
    tracker, key = tracker_of(cloud, host), cloud.create(labels=("fix",))
    await tracker.swap_labels(await read(tracker, key), ["more"], [])
    cloud.answers = [Answer(status=400, body=b'{"errorMessages": ["no such issue"]}')]
    assert await labelled(tracker, "fix") == [key]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(status=500), RetryLater),
        (Answer(status=400, body=b'{"errorMessages": ["no"]}'), NeedsAttention),
        (Answer(status=403), NeedsAttention),
        (GONE, NeedsAttention),
        (Answer(status=200, body=b"{}"), RetryLater),
        (Answer(status=200, body=b"<html>"), RetryLater),
        (Answer(status=429, headers={"Retry-After": "7"}), RetryLater),
        (Answer(status=403, headers={"Retry-After": "7"}), RetryLater),
    ],
)
async def test_an_error_is_never_an_empty_list(jira: Jira, host: Host, answer: Answer, error: type[Exception]):
    tracker = tracker_of(jira, host)
    ticket = await read(tracker, jira.create(labels=("fix",)))
    for reading in (
        tracker.list_labelled(["fix"], closed=False),
        tracker.list_changed(jira.now()),
        tracker.comments(ticket),
    ):
        jira.answers = [answer]
        with pytest.raises(error) as told:
            await reading
        assert TOKEN not in str(told.value)


async def test_a_failed_login_with_an_empty_list_is_an_error(jira: Jira, host: Host):
    tracker = tracker_of(jira, host)
    await read(tracker, jira.create())
    jira.login = "anonymous"
    with pytest.raises(NeedsAttention, match="login failed"):
        await tracker.list_labelled(["fix"], closed=False)


async def test_a_deleted_ticket_is_none_and_an_error_is_not(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    ticket = await read(tracker, key)
    for answer in (GONE, Answer(status=404, body=b'{"message": "no route"}'), Answer(status=403)):
        jira.answers = [answer]
        with pytest.raises(NeedsAttention):
            await tracker.get(key)
    jira.delete(key)
    assert await tracker.get(key) is None
    assert await tracker.get(ticket.id) is None
    assert await tracker.label_history(ticket) is None
    assert await tracker.edit_comment(ticket, "1", "text") is None
    for write in (
        tracker.swap_labels(ticket, ["a"], []),
        tracker.swap_labels(ticket, [], []),
        tracker.comment(ticket, "hello"),
        tracker.transition(ticket, "Done"),
    ):
        with pytest.raises(NeedsAttention):
            await write


async def test_labels_are_swapped_in_one_write_and_those_of_people_stay(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create(labels=("fix", "harken:pending", "harken:mine"))
    ticket = await read(tracker, key)
    jira.label(key, "fix", "harken:pending", "harken:mine", "added-meanwhile", by="bob")
    swapped = await tracker.swap_labels(ticket, ["harken:enqueued"], ["harken:pending", "never there"])
    assert set(swapped.labels) == {"fix", "harken:mine", "added-meanwhile", "harken:enqueued"}
    assert (swapped.id, writes(jira)) == (ticket.id, [("PUT", "false")])


async def test_labels_that_change_while_we_write_stay(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create(labels=("fix", "harken:pending"))
    ticket = await read(tracker, key)
    jira.after[len(jira.seen) + 1] = lambda: jira.label(key, "harken:enqueued", "theirs", by="bob")
    assert (await tracker.swap_labels(ticket, ["harken:enqueued"], ["harken:pending"])).labels == (
        "harken:enqueued",
        "theirs",
    )


async def test_labels_that_are_there_or_gone_already_are_no_error(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create(labels=("a",))
    ticket = await read(tracker, key)
    assert await tracker.swap_labels(ticket, ["a", "a"], ["b", "a"]) == ticket
    assert jira.issue(key).histories == []
    assert await tracker.swap_labels(ticket, [], []) == ticket
    assert len(writes(jira)) == 1


async def test_watchers_get_no_mail_where_the_account_may_be_quiet(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    await tracker.swap_labels(await read(tracker, key), ["a"], [])
    assert jira.mails == []
    jira.admin = False
    await tracker.swap_labels(await read(tracker, key), ["b"], [])
    await tracker.swap_labels(await read(tracker, key), ["c"], [])
    assert jira.mails == [key, key]
    refused = [] if jira.cloud else [("PUT", "")]
    assert writes(jira) == [("PUT", "false")] * (3 if jira.cloud else 2) + refused * 2
    assert set(jira.issue(key).fields["labels"]) == {"a", "b", "c"}


async def test_an_account_that_may_not_edit_is_told_what_jira_says(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    jira.may_edit = False
    with pytest.raises(NeedsAttention, match="Field 'labels' cannot be set"):
        await tracker.swap_labels(await read(tracker, key), ["a"], [])


async def test_a_limit_on_the_writes_of_one_issue_is_waited_for(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    ticket, comment = await read(tracker, key), jira.comment(key, "first")
    jira.limit_writes(key, 40)
    for write in (
        tracker.swap_labels(ticket, ["a"], []),
        tracker.comment(ticket, "hello"),
        tracker.edit_comment(ticket, comment, "hello"),
        tracker.transition(ticket, "Done"),
    ):
        with pytest.raises(RetryLater) as told:
            await write
        assert (told.value.reason, told.value.after) == ("rate_limited", 40)


@pytest.mark.parametrize("answer", [Answer(status=403, headers={"Retry-After": "9"}), Answer(status=409)])
async def test_a_limit_told_by_403_and_an_edit_at_the_same_time_are_tried_later(jira: Jira, host: Host, answer: Answer):
    tracker, key = tracker_of(jira, host), jira.create()
    ticket = await read(tracker, key)
    jira.answers = [answer]
    with pytest.raises(RetryLater):
        await tracker.swap_labels(ticket, ["a"], [])
    assert jira.issue(key).fields["labels"] == ()


async def test_the_history_tells_who_put_which_label_on_and_off(jira: Jira, host: Host, clock: HandClock):
    tracker, key = tracker_of(jira, host), jira.create(labels=("from-the-start", "fix"), creator="bob")
    clock.advance(10)
    jira.edit(key, "another title")
    jira.label(key, "from-the-start", by="bob")
    clock.advance(10)
    jira.label(key, "from-the-start", "fix", "Fix", by="me")
    bob, me = id_of(jira, "bob"), id_of(jira, "me")
    assert await history(tracker, key) == [
        ("from-the-start", True, bob),
        ("fix", True, bob),
        ("fix", False, bob),
        ("fix", True, me),
        ("Fix", True, me),
    ]
    last = (await tracker.label_history(await read(tracker, key)) or [])[-1]
    login = "me@example.com" if jira.cloud else "me"
    actor = Actor(id=me, login=login, access=Access.WRITE)
    assert last == LabelChange(label="Fix", added=True, actor=actor, at=clock.now())


async def test_labels_that_never_changed_were_set_by_the_creator(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create(labels=("fix",), creator="bob")
    jira.edit(key, "another title")
    assert await history(tracker, key) == [("fix", True, id_of(jira, "bob"))]
    assert await history(tracker, jira.create()) == []


async def test_all_pages_of_a_history_are_read(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    for number in range(250):
        jira.label(key, f"label-{number}", by="bob")
    assert [label for label, added, _ in await history(tracker, key) if added] == [f"label-{n}" for n in range(250)]


async def test_a_custom_field_that_is_called_labels_is_another_field(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create(labels=("fix",))
    jira.label(key, "other")
    (item,) = jira.issue(key).histories[0]["items"]
    item |= {"field": "Labels", "fieldtype": "custom"}
    assert await history(tracker, key) == [("other", True, id_of(jira, "me"))]
    item |= {"fieldId": "labels"}
    assert (await history(tracker, key))[0] == ("fix", True, id_of(jira, "me"))


async def test_an_account_that_is_gone_is_nobody(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    jira.label(key, "fix", by=None)
    assert await history(tracker, key) == [("fix", True, None)]
    jira.issue(key).histories[0]["author"] = {"accountId": "unknown"}
    assert await history(tracker, key) == [("fix", True, None)]


async def test_apps_are_bots_and_requests_of_customers_are_forms(cloud: Jira, host: Host):
    cloud.user("automation", type="app", name="Mia Me")
    cloud.user("customer", type="customer", email="me@example.com")
    tracker, key = tracker_of(cloud, host), cloud.create(labels=("from-form",), creator="customer")
    cloud.label(key, "from-form", "fix", by="automation")
    actors = [change.actor for change in await tracker.label_history(await read(tracker, key)) or []]
    assert actors == [
        Actor(id="customer", login="customer", form=True),
        Actor(id="automation", login="automation", bot=True, access=Access.WRITE),
    ]


async def test_a_name_that_anyone_may_choose_is_no_login(cloud: Jira, host: Host):
    cloud.user("mallory", name="me@example.com", hidden=True)
    tracker, key = tracker_of(cloud, host), cloud.create()
    cloud.label(key, "fix", by="mallory")
    (change,) = await tracker.label_history(await read(tracker, key)) or []
    assert change.actor is not None
    assert change.actor.login == "mallory"


async def test_a_server_that_shows_no_history_has_none(server: Jira, host: Host):
    tracker, key = tracker_of(server, host), server.create(labels=("fix",))
    ticket = await read(tracker, key)
    server.answers = [Answer(status=200, body=msgspec.json.encode({"id": ticket.id, "key": key, "fields": {}}))]
    assert await tracker.label_history(ticket) is None


async def test_a_history_that_cannot_be_read_is_an_error(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    ticket = await read(tracker, key)
    jira.answers = [Answer(status=503)]
    with pytest.raises(RetryLater):
        await tracker.label_history(ticket)


async def test_whoever_changed_a_label_may_write(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    jira.label(key, "fix", by="bob")
    (change,) = await tracker.label_history(await read(tracker, key)) or []
    assert change.actor is not None
    assert await tracker.access_of(change.actor) is Access.WRITE


async def test_whoever_created_a_ticket_may_write_if_jira_says_so(jira: Jira, host: Host):
    jira.user("bobby")
    bob, bobby = (Actor(id=id_of(jira, name), login=name) for name in ("bob", "bobby"))
    jira.editors = {"bobby"}
    tracker = tracker_of(jira, host)
    assert [await tracker.access_of(actor) for actor in (bob, bobby)] == [Access.UNKNOWN, Access.WRITE]
    assert await tracker_of(jira, host, "").access_of(bobby) is Access.UNKNOWN
    jira.admin = False
    assert await tracker.access_of(bobby) is Access.UNKNOWN
    jira.answers = [Answer(status=500)]
    with pytest.raises(RetryLater):
        await tracker.access_of(bobby)


async def test_our_own_account_is_known_by_the_id_that_histories_have(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    me = await tracker.own_account()
    assert me == Actor(id=id_of(jira, "me"), login="me@example.com" if jira.cloud else "me")
    await tracker.swap_labels(await read(tracker, key), ["harken:done"], [])
    assert await history(tracker, key) == [("harken:done", True, me.id)]


async def test_labels_need_no_making(jira: Jira, host: Host):
    assert list(await tracker_of(jira, host).ensure_labels(["harken:done"])) == []
    assert jira.seen == []


async def test_comments_are_read_from_all_pages_oldest_first(jira: Jira, host: Host, clock: HandClock):
    tracker, key = tracker_of(jira, host), jira.create()
    for number in range(230):
        jira.comment(key, f"comment {number}", "bob")
        clock.advance(1)
    ticket = await read(tracker, key)
    found = await tracker.comments(ticket)
    assert [one.text for one in found] == [f"comment {number}" for number in range(230)]
    assert await tracker.comments(ticket, found[200].created_at) == list(found[200:])
    login = "bob@example.com" if jira.cloud else "bob"
    assert found[0] == Comment(
        id=found[0].id,
        text="comment 0",
        author=Actor(id=id_of(jira, "bob"), login=login),
        created_at=jira.issue(key).comments[0]["created"],
        url=f"{jira.url}/browse/{key}?focusedCommentId={found[0].id}",
    )


async def test_a_comment_that_is_deleted_while_they_are_read_hides_no_other(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    ids = [jira.comment(key, f"comment {number}") for number in range(150)]
    ticket = await read(tracker, key)
    jira.after[len(jira.seen) + 1] = lambda: jira.delete_comment(key, ids[3])
    with pytest.raises(RetryLater, match="changed while they were read"):
        await tracker.comments(ticket)


async def test_a_comment_is_written_and_edited_in_the_form_of_this_jira(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    ticket = await read(tracker, key)
    written = await tracker.comment(ticket, "Hello 🙂\n\nworld")
    assert (written.text, written.author) == ("Hello 🙂\n\nworld", await tracker.own_account())
    edited = await tracker.edit_comment(ticket, written.id, "Done\nby run 1")
    assert edited == msgspec.structs.replace(written, text="Done\nby run 1")
    assert await tracker.comments(ticket) == [edited]
    (stored,) = jira.issue(key).comments
    assert isinstance(stored["text"], dict) is jira.cloud
    assert jira.mails == ([] if jira.cloud else [key])


async def test_a_text_that_is_longer_than_jira_takes_is_cut(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    written = await tracker.comment(await read(tracker, key), "x" * 40_000)
    assert (len(written.text), written.text[-1]) == (30_000, "…")


async def test_a_comment_that_was_deleted_before_the_edit_is_none(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    ticket = await read(tracker, key)
    written = await tracker.comment(ticket, "Hello")
    jira.answers = [Answer(status=400, body=b'{"errorMessages": ["Comment body is too long"]}')]
    with pytest.raises(NeedsAttention, match="too long"):
        await tracker.edit_comment(ticket, written.id, "text")
    jira.delete_comment(key, written.id)
    assert await tracker.edit_comment(ticket, written.id, "text") is None
    jira.answers = [Answer(status=400, body=b'{"errorMessages": ["Can not find a comment"]}')]
    assert await tracker.edit_comment(ticket, written.id, "text") is None


async def test_a_status_is_reached_by_its_whole_name(jira: Jira, host: Host):
    jira.workflow = {"41": ("Done", "Not Done"), "31": ("Finish", "Done")}
    tracker, key = tracker_of(jira, host), jira.create(status="In Progress")
    moved = await tracker.transition(await read(tracker, key), " done ")
    assert (moved.status, moved.closed) == ("Done", True)
    jira.seen.clear()
    assert (await tracker.transition(moved, "DONE")).status == "Done"
    assert [one.method for one in jira.seen] == ["GET"]


async def test_a_status_that_cannot_be_reached_now_names_those_that_can(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create()
    ticket = await read(tracker, key)
    jira.workflow = {"41": ("Done", "Not Done"), "21": ("Start", "In Progress")}
    with pytest.raises(NeedsAttention) as told:
        await tracker.transition(ticket, "Done")
    assert str(told.value) == (
        f"{key} cannot go to 'Done' from 'To Do'. It can do: Done (to Not Done), Start (to In Progress)"
    )
    jira.workflow = {}
    with pytest.raises(NeedsAttention, match="may not move it"):
        await tracker.transition(ticket, "Done")
    assert jira.issue(key).fields["status"] == "To Do"


async def test_a_ticket_that_was_closed_is_read_as_closed_and_can_be_written_to(jira: Jira, host: Host):
    tracker, key = tracker_of(jira, host), jira.create(labels=("fix", "harken:in-progress"))
    ticket = await read(tracker, key)
    jira.move(key, "Done")
    swapped = await tracker.swap_labels(ticket, [], ["harken:in-progress"])
    assert (swapped.closed, swapped.labels) == (True, ("fix",))
