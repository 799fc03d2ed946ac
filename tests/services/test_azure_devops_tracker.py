"""Azure DevOps as a tracker: every ticket is found, nobody's tag is lost, and what cannot be done is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from harken.clock import from_unix
from harken.errors import Deferred, Misconfigured, NeedsAttention, Refused, RetryLater
from harken.http import Client, Metered
from harken.outgoing_rate_limit import RateLimit
from harken.services.azure_devops import plugin, tracker
from harken.services.azure_devops.events_from_work_item_history import tags_of
from harken.services.azure_devops.tracker import WorkItemTracker
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.azure_devops import AzureDevOps, WorkItem
from harken.testing.fakes.server import Answer
from harken.ticket import Access, Actor, CodeHost, PullRequest, Ticket, TicketPage, TicketTracker
from harken.tickets.labeller_trust import Trust, judge
from tests.services.azure_devops import SHOP, account
from tests.services.ticket_tracker_contract import ASKS, TicketTrackerContract

ODD_TAGS = [
    "a b",
    "a/b",
    "it's",
    '"quoted"',
    "größe 🔥",
    "..",
    "x' OR [System.Id] > 0 OR '' = '",
    "@project",
    "[x]",
    "%_",
]
PULL_REQUEST = PullRequest(repo="web", head="harken/1", base="main", title="Fix it", text="As asked")


def make(board: AzureDevOps, host: Host, token: str = "coder", *, project: str = SHOP) -> WorkItemTracker:
    return WorkItemTracker(project, account(board, token), host)


@pytest.fixture
def shop(board: AzureDevOps, host: Host) -> WorkItemTracker:
    return make(board, host)


async def seen_as_ticket(shop: WorkItemTracker, item: WorkItem) -> Ticket:
    ticket = await shop.get(str(item.id))
    assert ticket is not None
    return ticket


async def all_pages(read: Callable[[str | None], Any]) -> tuple[list[Ticket], int]:
    """The tickets of all pages, and how many pages there were."""
    page: TicketPage = await read(None)
    tickets, pages = list(page.tickets), 1
    while page.next is not None:
        page = await read(page.next)
        tickets, pages = [*tickets, *page.tickets], pages + 1
    return tickets, pages


async def labelled(shop: WorkItemTracker, *labels: str, closed: bool = False) -> list[int]:
    tickets, _ = await all_pages(lambda page: shop.list_labelled(labels, closed=closed, page=page))
    return [int(ticket.number) for ticket in tickets]


def patches(board: AzureDevOps) -> list[Any]:
    return [msgspec.json.decode(seen.body) for seen in board.seen if seen.method == "PATCH"]


class WorkItemBoard:
    """Somebody else than us is leo."""

    def __init__(self, fake: AzureDevOps, host: Host) -> None:
        self.fake = fake
        self.tracker = make(fake, host)

    def open(self, *labels: str) -> str:
        return str(self.fake.create(*labels).id)

    def close(self, number: str) -> None:
        self.fake.move(self._item(number), "Closed")

    def delete(self, number: str) -> None:
        self._item(number).deleted = True

    def label(self, number: str, label: str) -> None:
        self.fake.tag(self._item(number), label)

    def unlabel(self, number: str, label: str) -> None:
        self.fake.untag(self._item(number), label)

    def labels(self, number: str) -> set[str]:
        return set(tags_of(self._item(number).fields))

    def comment(self, number: str, text: str) -> str:
        self.fake.comment(self._item(number), text)
        return str(self._item(number).comments[-1]["id"])

    def delete_comment(self, number: str, id: str) -> None:
        item = self._item(number)
        item.comments = [comment for comment in item.comments if str(comment["id"]) != id]

    def answer_next_with(self, status: int) -> None:
        self.fake.answers = [Answer(status=status, body=b"{}")]

    def after_next_answer(self, change: Callable[[], object]) -> None:
        self.fake.after[len(self.fake.seen) + 1] = change

    def _item(self, number: str) -> WorkItem:
        return self.fake.items[int(number)]


class TestAzureDevOpsTickets(TicketTrackerContract):
    page_size, odd_labels = 200, tuple(ODD_TAGS)
    # an account has the access that the history proved, and tags need no making
    asks = tuple(ask for ask in ASKS if ask not in ("access_of", "ensure_labels"))

    @pytest.fixture
    def board(self, board: AzureDevOps, host: Host) -> WorkItemBoard:
        return WorkItemBoard(board, host)


def test_it_is_the_tracker_of_the_service_and_a_code_host(board: AzureDevOps, host: Host):
    assert plugin.tracker is not None
    made: TicketTracker = plugin.tracker(SHOP, account(board), host)
    code: CodeHost = WorkItemTracker(SHOP, account(board), host)
    assert isinstance(made, WorkItemTracker)
    assert code is not made


@pytest.mark.parametrize("project", ["", "..", "a/b", "a?b", "a\nb", "x" * 65])
def test_what_cannot_be_a_project_is_refused(board: AzureDevOps, host: Host, project: str):
    with pytest.raises(Misconfigured, match="no project of Azure DevOps"):
        make(board, host, project=project)


async def test_a_work_item_as_a_ticket(board: AzureDevOps, shop: WorkItemTracker, clock: HandClock):
    item = board.create("bug", "a b", title="Till is down", area="Shop\\Checkout")
    board.change(item, {"Microsoft.VSTS.TCM.ReproSteps": "<p>Press <b>pay</b></p>"})
    now = from_unix(clock.time())
    assert await shop.get("1") == Ticket(
        id="1",
        ref="#1",
        number="1",
        title="Till is down",
        url=f"{board.url}/acme/Shop/_workitems/edit/1",
        status="New",
        closed=False,
        text="About <1>\n\nPress pay",
        labels=("bug", "a b"),
        area_path="Shop\\Checkout",
        author="leo@acme.example",
        created_at=now,
        updated_at=now,
        version="2",
    )


async def test_all_pages_of_labelled_tickets_are_read_while_tickets_change(board: AzureDevOps, shop: WorkItemTracker):
    for _ in range(450):
        board.create("fix")
    board.create("other")
    board.after = {number: lambda: board.comment(board.items[1]) for number in range(1, 9)}
    tickets, pages = await all_pages(lambda page: shop.list_labelled(["fix"], closed=False, page=page))
    assert [int(ticket.number) for ticket in tickets] == list(range(1, 451))
    assert pages == 3


async def test_exactly_a_full_page_is_all(board: AzureDevOps, shop: WorkItemTracker):
    for _ in range(200):
        board.create("fix")
    assert len(await labelled(shop, "fix")) == 200


async def test_more_tickets_than_a_query_may_find_are_all_read(
    board: AzureDevOps, shop: WorkItemTracker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tracker, "MAX_RESULTS", 300)
    board.cap = 300
    for number in range(1300):
        board.create(*(["fix"] if number % 2 or number > 1000 else []))
    for id in range(1, 400):
        board.items[id].deleted = True
    found = await labelled(shop, "fix")
    assert found == [id for id, item in board.items.items() if "System.Tags" in item.fields and not item.deleted]
    assert any(seen.status == 400 for seen in board.seen)


async def test_any_label_is_enough_and_only_whole_ones_count_whatever_their_case(
    board: AzureDevOps, shop: WorkItemTracker
):
    for tags in (["Fix"], ["review", "x"], ["fixed"], ["fix it"], []):
        board.create(*tags)
    board.create("fix", project="Search")
    assert await labelled(shop, "fIX", "review") == [1, 2]
    assert await labelled(shop) == []


async def test_a_ticket_that_loses_its_label_or_is_closed_after_the_query_is_left_out(
    board: AzureDevOps, shop: WorkItemTracker
):
    def change() -> None:
        board.untag(first, "fix")
        board.move(second, "Closed")

    first, second, third = (board.create("fix") for _ in range(3))
    # after the states and the query
    board.after[2] = change
    assert await labelled(shop, "fix") == [third.id]


@pytest.mark.parametrize("tag", ODD_TAGS)
async def test_odd_labels_are_found_and_swapped_and_find_nothing_else(
    board: AzureDevOps, shop: WorkItemTracker, tag: str
):
    board.create("people's")
    item = board.create("keep", tag)
    assert await labelled(shop, tag) == [2]
    gone = await shop.swap_labels(await seen_as_ticket(shop, item), ["harken:done"], [tag])
    assert gone.labels == ("keep", "harken:done")
    back = await shop.swap_labels(gone, [tag], ["harken:done"])
    assert back.labels == ("keep", tag)


@pytest.mark.parametrize("label", ["", " ", "a;b", "a,b", "a\nb", "a\x00b", "x" * 300])
async def test_what_cannot_be_a_tag_is_refused_and_nothing_is_sent(
    board: AzureDevOps, shop: WorkItemTracker, label: str
):
    ticket = await seen_as_ticket(shop, board.create("fix"))
    sent = len(board.seen)
    with pytest.raises(Refused):
        await shop.swap_labels(ticket, [label], [])
    with pytest.raises(Refused):
        await shop.swap_labels(ticket, [], [label])
    with pytest.raises(Refused):
        await shop.list_labelled(["fix", label], closed=True)
    assert len(board.seen) == sent


async def test_a_query_that_is_too_long_is_said(board: AzureDevOps, shop: WorkItemTracker):
    with pytest.raises(NeedsAttention, match="fewer or shorter labels"):
        await shop.list_labelled([f"{number:0200d}" for number in range(160)], closed=True)


async def test_closed_tickets_are_listed_only_if_wanted(board: AzureDevOps, shop: WorkItemTracker):
    for kind, state in (("Bug", "Closed"), ("Task", "Done"), ("Task", "Not Done"), ("Bug", "Resolved"), ("Bug", "New")):
        board.move(board.create("fix", kind=kind), state)
    board.create("fix").deleted = True
    assert await labelled(shop, "fix") == [3, 4, 5]
    assert await labelled(shop, "fix", closed=True) == [1, 2, 3, 4, 5]


async def test_a_state_that_is_closed_in_one_type_only_is_told_by_the_type(
    board: AzureDevOps, shop: WorkItemTracker, monkeypatch: pytest.MonkeyPatch
):
    states = board._states_of
    monkeypatch.setattr(
        board,
        "_states_of",
        lambda kind: [
            {**state, "category": "InProgress"} if (kind, state["name"]) == ("Epic", "Closed") else state
            for state in states(kind)
        ],
    )
    board.states["Epic"] = ["New", "Closed"]
    board.move(board.create("fix"), "Closed")
    epic = board.create("fix")
    board.change(epic, {"System.WorkItemType": "Epic", "System.State": "Closed"})
    assert await labelled(shop, "fix") == [2]


async def test_a_state_that_is_new_is_looked_up(board: AzureDevOps, shop: WorkItemTracker, clock: HandClock):
    item = board.create("fix")
    assert not (await seen_as_ticket(shop, item)).closed
    board.states["Bug"].append("Cut")
    board.move(item, "Cut")
    clock.advance(11)
    assert (await seen_as_ticket(shop, item)).closed
    assert await labelled(shop, "fix") == []


async def test_all_changed_tickets_are_read_oldest_change_first(
    board: AzureDevOps, shop: WorkItemTracker, clock: HandClock
):
    for number in range(450):
        board.create(age=1000 - number)
    since = from_unix(clock.time()) - timedelta(seconds=900)
    tickets, pages = await all_pages(lambda page: shop.list_changed(since, page=page))
    assert sorted({int(ticket.number) for ticket in tickets}) == list(range(101, 451))
    times = [ticket.updated_at for ticket in tickets if ticket.updated_at is not None]
    assert times == sorted(times)
    assert pages > 1


async def test_a_ticket_that_changes_between_two_pages_is_not_missed(
    board: AzureDevOps, shop: WorkItemTracker, clock: HandClock
):
    for number in range(250):
        board.create(age=1000 - number)
    since = from_unix(clock.time()) - timedelta(seconds=2000)
    first = await shop.list_changed(since)
    assert first.next is not None
    board.comment(board.items[1])
    board.comment(board.items[250])
    rest, _ = await all_pages(lambda page: shop.list_changed(since, page=page or first.next))
    assert {int(one.number) for one in [*first.tickets, *rest]} == set(range(1, 251))


async def test_more_changes_than_a_query_may_find_are_all_read(
    board: AzureDevOps, shop: WorkItemTracker, clock: HandClock
):
    board.cap = 300
    for number in range(700):
        board.create(age=1000 - number)
    since = from_unix(clock.time()) - timedelta(seconds=2000)
    tickets, _ = await all_pages(lambda page: shop.list_changed(since, page=page))
    assert {int(one.number) for one in tickets} == set(range(1, 701))


@pytest.mark.parametrize("id", ["99", "0", "x", "", "..", "1/../2", "-1", "٣", "9" * 30])
async def test_what_is_not_there_is_none(board: AzureDevOps, shop: WorkItemTracker, id: str):
    board.create()
    assert await shop.get(id) is None


async def test_a_deleted_ticket_is_gone_everywhere(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create("fix")
    ticket = await seen_as_ticket(shop, item)
    said = await shop.comment(ticket, "hello")
    item.deleted = True
    assert await shop.get("1") is None
    assert await shop.label_history(ticket) is None
    assert await shop.edit_comment(ticket, said.id, "bye") is None
    assert await labelled(shop, "fix", closed=True) == []
    for write in (shop.swap_labels(ticket, ["x"], []), shop.transition(ticket, "Active"), shop.comment(ticket, "x")):
        with pytest.raises(NeedsAttention, match="404"):
            await write


async def test_a_ticket_of_another_project_is_gone_and_one_of_a_renamed_project_is_not(
    board: AzureDevOps, shop: WorkItemTracker
):
    item = board.create()
    board.change(item, {"System.TeamProject": "Search"})
    assert await shop.get("1") is None
    board.answers = [
        Answer(body=msgspec.json.encode(item.to_json())),
        Answer(body=b'{"workItems": [{"id": 1}]}'),
    ]
    assert (await seen_as_ticket(shop, item)).id == "1"


async def test_a_404_of_the_project_or_the_organization_is_an_error(board: AzureDevOps, host: Host):
    board.create("fix")
    elsewhere = WorkItemTracker(SHOP, account(board, "coder", "nobody"), host)
    with pytest.raises(NeedsAttention, match="404"):
        await elsewhere.get("1")
    with pytest.raises(NeedsAttention, match="404"):
        await make(board, host, project="Gone").list_labelled(["fix"], closed=True)
    board.answers = [Answer(status=404, body=b"<html>not here</html>")]
    with pytest.raises(NeedsAttention, match="404 to work item 1"):
        await make(board, host).get("1")


@pytest.mark.parametrize("status", [401, 403, 429, 500, 203])
async def test_a_list_that_cannot_be_read_raises(board: AzureDevOps, shop: WorkItemTracker, status: int):
    ticket = await seen_as_ticket(shop, board.create("fix"))
    reads: list[Callable[[], Any]] = [
        lambda: shop.list_labelled(["fix"], closed=True),
        lambda: shop.list_changed(datetime(2020, 1, 1, tzinfo=UTC)),
        lambda: shop.label_history(ticket),
        lambda: shop.comments(ticket),
        lambda: shop.ensure_pull_request(PULL_REQUEST),
        shop.own_account,
        lambda: shop.get("1"),
    ]
    for read in reads:
        board.answers = [Answer(status=status, body=b"{}")]
        with pytest.raises((NeedsAttention, RetryLater)):
            await read()


async def test_hydration_that_fails_is_no_empty_list(board: AzureDevOps, shop: WorkItemTracker):
    board.create("fix")
    board.after[1] = lambda: board.answers.append(Answer(status=500))
    with pytest.raises(RetryLater):
        await shop.list_labelled(["fix"], closed=True)


async def test_labels_are_swapped_in_one_write_and_others_stay(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create("Fix", "harken:pending", "harken:mine")
    ticket = await seen_as_ticket(shop, item)
    swapped = await shop.swap_labels(ticket, ["harken:enqueued"], ["Harken:Pending"])
    assert (swapped.labels, swapped.version) == (("Fix", "harken:mine", "harken:enqueued"), "2")
    assert patches(board) == [
        [
            {"op": "test", "path": "/rev", "value": 1},
            {"op": "replace", "path": "/fields/System.Tags", "value": "Fix; harken:mine; harken:enqueued"},
        ]
    ]


async def test_labels_that_are_there_or_gone_already_are_not_written(board: AzureDevOps, shop: WorkItemTracker):
    ticket = await seen_as_ticket(shop, board.create("Fix"))
    assert await shop.swap_labels(ticket, ["fix"], ["gone"]) == ticket
    assert (await shop.swap_labels(ticket, ["fix"], ["FIX"])).labels == ("Fix",)
    assert patches(board) == []


async def test_the_first_label_and_the_last_one(board: AzureDevOps, shop: WorkItemTracker):
    ticket = await seen_as_ticket(shop, board.create())
    assert (await shop.swap_labels(ticket, ["x", "X"], [])).labels == ("x",)
    assert (await shop.swap_labels(ticket, [], ["x"])).labels == ()


async def test_labels_that_others_change_meanwhile_are_kept(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create("fix", "theirs")
    ticket = await seen_as_ticket(shop, item)
    board.tag(item, "before our read")
    sent = len(board.seen)
    board.after = {sent + 1: lambda: board.tag(item, "new"), sent + 3: lambda: board.untag(item, "theirs")}
    swapped = await shop.swap_labels(ticket, ["harken:done"], ["fix"])
    assert swapped.labels == ("before our read", "new", "harken:done")
    assert [seen.status for seen in board.seen[sent:]] == [200, 412, 200, 412, 200, 200]


async def test_a_ticket_that_others_change_all_the_time_is_tried_later(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create("fix")
    ticket = await seen_as_ticket(shop, item)
    board.after = {number: lambda: board.comment(item) for number in range(1, 40)}
    with pytest.raises(RetryLater, match="all the time"):
        await shop.swap_labels(ticket, ["x"], [])
    assert len(patches(board)) == 5
    assert item.fields["System.Tags"] == "fix"


async def test_nobody_is_notified_where_the_token_may_do_that(board: AzureDevOps, shop: WorkItemTracker):
    ticket = await seen_as_ticket(shop, board.create("fix"))
    await shop.swap_labels(ticket, ["x"], [])
    await shop.transition(ticket, "Active")
    assert board.notified == []


async def test_where_the_token_may_not_it_is_written_all_the_same_and_asked_once(
    board: AzureDevOps, shop: WorkItemTracker
):
    board.may_suppress = False
    ticket = await seen_as_ticket(shop, board.create("fix"))
    await shop.swap_labels(ticket, ["x"], [])
    await shop.swap_labels(ticket, ["y"], [])
    assert [seen.status for seen in board.seen if seen.method == "PATCH"] == [403, 200, 200]
    assert board.notified == [1, 1]


async def test_a_token_that_may_not_write_is_said(board: AzureDevOps, host: Host):
    reader = make(board, host, "reader")
    ticket = await seen_as_ticket(reader, board.create("fix"))
    for write in (
        reader.swap_labels(ticket, ["x"], []),
        reader.comment(ticket, "x"),
        reader.edit_comment(ticket, "7", "x"),
        reader.transition(ticket, "Active"),
        reader.ensure_pull_request(PULL_REQUEST),
    ):
        with pytest.raises(NeedsAttention, match="403"):
            await write


async def test_an_account_that_may_not_create_tags_is_told_what_to_do(board: AzureDevOps, shop: WorkItemTracker):
    ticket = await seen_as_ticket(shop, board.create("fix"))
    board.may_create_tags = False
    with pytest.raises(NeedsAttention, match="Create tag definition"):
        await shop.swap_labels(ticket, ["harken:done"], [])
    board.create("harken:done")
    assert (await shop.swap_labels(ticket, ["harken:done"], [])).labels == ("fix", "harken:done")


async def test_tags_need_no_making(board: AzureDevOps, shop: WorkItemTracker):
    assert await shop.ensure_labels(["harken:done"]) == ()
    assert board.seen == []


async def test_who_put_which_label_on_and_off(board: AzureDevOps, shop: WorkItemTracker, clock: HandClock):
    item = board.create("a b", by="ann")
    clock.advance(60)
    board.tag(item, "fix", "it's", by="bob")
    board.comment(item, by="eve")
    board.change(item, {"System.Tags": "it's; FIX; new"}, by="cat")
    history = await shop.label_history(await seen_as_ticket(shop, item))
    assert history is not None
    assert [(one.label, one.added, one.actor.login if one.actor else "") for one in history] == [
        ("a b", True, "ann@acme.example"),
        ("fix", True, "bob@acme.example"),
        ("it's", True, "bob@acme.example"),
        ("a b", False, "cat@acme.example"),
        ("new", True, "cat@acme.example"),
    ]
    assert history[1].at == from_unix(clock.time())
    assert {one.actor.id for one in history if one.actor} == {"id-ann", "id-bob", "id-cat"}


async def test_the_history_is_read_to_its_end(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create()
    for _ in range(410):
        board.comment(item)
    board.tag(item, "fix", by="bob")
    history = await shop.label_history(await seen_as_ticket(shop, item))
    assert [one.label for one in history or ()] == ["fix"]


async def test_a_history_with_no_end_is_not_known(
    board: AzureDevOps, shop: WorkItemTracker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tracker, "MAX_HISTORY_PAGES", 1)
    item = board.create("fix")
    for _ in range(210):
        board.comment(item)
    assert await shop.label_history(await seen_as_ticket(shop, item)) is None


async def test_a_history_that_is_behind_is_read_later(board: AzureDevOps, shop: WorkItemTracker, clock: HandClock):
    item = board.create()
    board.tag(item, "fix")
    item.history_visible_at = clock.time() + 30
    ticket = await seen_as_ticket(shop, item)
    with pytest.raises(RetryLater, match="is behind"):
        await shop.label_history(ticket)
    clock.advance(30)
    assert await shop.label_history(ticket)


@pytest.mark.parametrize(
    "who", [{"isDeletedInOrigin": True}, {"inactive": True}, {"id": ""}, {"id": None}], ids=["gone", "left", "", "null"]
)
async def test_an_account_that_is_gone_is_nobody(board: AzureDevOps, shop: WorkItemTracker, who: dict[str, Any]):
    board.people["eve"] = who
    history = await shop.label_history(await seen_as_ticket(shop, board.create("fix", by="eve")))
    assert [one.actor for one in history or ()] == [None]


async def test_a_history_that_names_two_accounts_for_one_change_names_none(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create("fix", by="ann")
    item.updates[0]["revisedBy"] = board.person("bob")
    history = await shop.label_history(await seen_as_ticket(shop, item))
    assert [one.actor for one in history or ()] == [None]


@pytest.mark.parametrize(
    "who",
    [
        {"descriptor": "svc.NzQ1"},
        {"descriptor": "aadsp.M2Q4"},
        {"descriptor": "s2s.MDAw"},
        {"uniqueName": "Build\\3f9a-0c1d"},
    ],
)
async def test_services_are_bots(board: AzureDevOps, shop: WorkItemTracker, who: dict[str, str]):
    board.people["ci"] = who
    (change,) = await shop.label_history(await seen_as_ticket(shop, board.create("fix", by="ci"))) or ()
    assert change.actor is not None
    assert change.actor.bot
    assert not judge(change.actor, Trust(), "").yes


async def test_who_has_edited_may_edit_and_of_others_nothing_is_known(board: AzureDevOps, shop: WorkItemTracker):
    (change,) = await shop.label_history(await seen_as_ticket(shop, board.create("fix"))) or ()
    assert change.actor is not None
    assert await shop.access_of(change.actor) is Access.WRITE
    assert judge(change.actor, Trust(), "7f1c").yes
    assert await shop.access_of(Actor(id="id-eve", login="eve@acme.example")) is Access.UNKNOWN


async def test_our_own_account_is_the_one_that_our_writes_have(board: AzureDevOps, shop: WorkItemTracker):
    ticket = await shop.swap_labels(await seen_as_ticket(shop, board.create()), ["fix"], [])
    (change,) = await shop.label_history(ticket) or ()
    own = await shop.own_account()
    assert change.actor is not None
    assert (own.id, own.login) == (change.actor.id, change.actor.login) == ("7f1c", "mia@acme.example")
    assert not judge(change.actor, Trust(label="anyone"), own.id).yes


async def test_all_comments_oldest_first_or_those_since(board: AzureDevOps, shop: WorkItemTracker, clock: HandClock):
    item = board.create()
    ticket = await seen_as_ticket(shop, item)
    assert await shop.comments(ticket) == []
    start = clock.time()
    for number in range(450):
        board.comment(item, f"<div>no {number} &amp; on</div>", by="ann")
        clock.advance(1)
    every = await shop.comments(ticket)
    assert [one.text for one in every] == [f"no {number} & on" for number in range(450)]
    assert every[0].author == Actor(id="id-ann", login="ann@acme.example")
    assert (every[0].created_at, every[0].url) == (from_unix(start), f"{ticket.url}#{every[0].id}")
    sent = len(board.seen)
    since = await shop.comments(ticket, from_unix(start + 440))
    assert [one.text for one in since] == [f"no {number} & on" for number in range(440, 450)]
    assert len(board.seen) == sent + 1


async def test_a_comment_is_shown_as_it_was_written_and_edited(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create()
    ticket = await seen_as_ticket(shop, item)
    text = "<b>1 & 2</b>\n<!-- harken 3f9a -->"
    written = await shop.comment(ticket, text)
    assert item.comments[0]["text"] == "&lt;b&gt;1 &amp; 2&lt;/b&gt;<br>&lt;!-- harken 3f9a --&gt;"
    assert (written.text, written.author and written.author.id) == (text, "7f1c")
    edited = await shop.edit_comment(ticket, written.id, "later")
    assert edited is not None
    assert (edited.id, edited.text) == (written.id, "later")
    assert [one.text for one in await shop.comments(ticket)] == ["later"]


async def test_markdown_where_the_service_has_it(board: AzureDevOps, host: Host):
    services = WorkItemTracker(SHOP, account(board, "writer"), host, markdown=True)
    item = board.create()
    ticket = await seen_as_ticket(services, item)
    written = await services.comment(ticket, "**done** <!-- harken 3f9a -->")
    assert item.comments[0]["text"] == written.text == "**done** <!-- harken 3f9a -->"
    assert board.seen[-1].query == {"api-version": "7.1-preview.4", "format": "markdown"}
    await services.edit_comment(ticket, written.id, "**a** & b")
    assert [one.text for one in await services.comments(ticket)] == ["**a** & b"]


async def test_a_comment_that_was_deleted_before_the_edit_is_none(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create()
    ticket = await seen_as_ticket(shop, item)
    written = await shop.comment(ticket, "one")
    item.comments[0]["isDeleted"] = True
    assert await shop.edit_comment(ticket, written.id, "two") is None
    assert await shop.edit_comment(ticket, "..", "two") is None
    board.answers = [Answer(body=b'{"id": 1000, "text": "two", "isDeleted": true}')]
    assert await shop.edit_comment(ticket, written.id, "two") is None
    assert await shop.comments(ticket) == []


async def test_a_status_is_compared_whole(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create(kind="Task")
    ticket = await seen_as_ticket(shop, item)
    moved = await shop.transition(ticket, "not done")
    assert (moved.status, moved.closed) == ("Not Done", False)
    moved = await shop.transition(ticket, "done")
    assert (moved.status, moved.closed) == ("Done", True)
    assert await shop.transition(moved, "Done") == moved
    assert len(patches(board)) == 2
    for wanted in ("Do", "Don", "Done ✓", "", "Closed"):
        with pytest.raises(NeedsAttention, match="To Do, Doing, Not Done, Done"):
            await shop.transition(ticket, wanted)


async def test_a_transition_survives_what_others_change_meanwhile(board: AzureDevOps, shop: WorkItemTracker):
    item = board.create("theirs")
    ticket = await seen_as_ticket(shop, item)
    board.after[len(board.seen) + 1] = lambda: board.tag(item, "new")
    moved = await shop.transition(ticket, "Resolved")
    assert (moved.status, moved.labels) == ("Resolved", ("theirs", "new"))


async def test_a_transition_that_a_rule_forbids_is_said(board: AzureDevOps, shop: WorkItemTracker):
    ticket = await seen_as_ticket(shop, board.create())
    sent = len(board.seen)
    board.after[sent + 1] = lambda: board.answers.extend([Answer(status=400, body=b"{}")] * 2)
    with pytest.raises(NeedsAttention, match="cannot go from 'New' to 'Closed'"):
        await shop.transition(ticket, "Closed")


async def test_a_pull_request_is_opened_once(board: AzureDevOps, shop: WorkItemTracker):
    opened = await shop.ensure_pull_request(PULL_REQUEST)
    again = await shop.ensure_pull_request(msgspec.structs.replace(PULL_REQUEST, repo="Shop/web", title="Other"))
    by_id = await shop.ensure_pull_request(msgspec.structs.replace(PULL_REQUEST, repo="5febef5a"))
    assert opened == again == by_id == f"{board.url}/acme/Shop/_git/web/pullrequest/1"
    (made,) = board.pull_requests
    assert (made["sourceRefName"], made["targetRefName"]) == ("refs/heads/harken/1", "refs/heads/main")
    assert (made["title"], made["description"]) == ("Fix it", "As asked")


async def test_a_pull_request_that_somebody_opens_meanwhile_is_taken(board: AzureDevOps, shop: WorkItemTracker):
    theirs = {"sourceRefName": "refs/heads/harken/1", "targetRefName": "refs/heads/main", "title": "theirs"}
    board.after[1] = lambda: board._open_pull_request("web", theirs)
    assert (await shop.ensure_pull_request(PULL_REQUEST)).endswith("/pullrequest/1")
    assert len(board.pull_requests) == 1


async def test_requests_from_forks_and_closed_ones_are_not_taken(board: AzureDevOps, shop: WorkItemTracker):
    fork = {"sourceRefName": "refs/heads/harken/1", "targetRefName": "refs/heads/other", "status": "active"}
    board.pull_requests = [{**fork, "pullRequestId": 1, "forkSource": {"name": "x"}} for _ in range(205)]
    board.pull_requests += [{**fork, "pullRequestId": 2, "status": "completed"}]
    assert (await shop.ensure_pull_request(PULL_REQUEST)).endswith("/pullrequest/207")


async def test_the_one_into_the_wanted_branch_comes_first(board: AzureDevOps, shop: WorkItemTracker):
    for number, target in enumerate(["release", "main"], start=1):
        refs = {"sourceRefName": "refs/heads/harken/1", "targetRefName": f"refs/heads/{target}"}
        board.pull_requests.append({**refs, "pullRequestId": number, "status": "active"})
    assert (await shop.ensure_pull_request(PULL_REQUEST)).endswith("/pullrequest/2")


async def test_a_pull_request_that_cannot_be_opened_is_said(board: AzureDevOps, shop: WorkItemTracker):
    with pytest.raises(NeedsAttention, match="400 to a pull request in web"):
        await shop.ensure_pull_request(msgspec.structs.replace(PULL_REQUEST, head="gone"))
    with pytest.raises(NeedsAttention, match="404"):
        await shop.ensure_pull_request(msgspec.structs.replace(PULL_REQUEST, repo="gone"))
    with pytest.raises(Refused):
        await shop.ensure_pull_request(msgspec.structs.replace(PULL_REQUEST, repo="../.."))


async def test_a_long_title_and_text_are_cut_to_what_is_allowed(board: AzureDevOps, shop: WorkItemTracker):
    await shop.ensure_pull_request(msgspec.structs.replace(PULL_REQUEST, title="t" * 900, text="x" * 9000))
    assert (len(board.pull_requests[0]["title"]), len(board.pull_requests[0]["description"])) == (400, 4000)


async def test_a_delayed_success_makes_the_next_call_wait(board: AzureDevOps, host: Host, clock: HandClock):
    async def keep() -> None:
        kept.append(limit.blocked_until)

    kept: list[float | None] = []
    limit = RateLimit(clock)
    assert isinstance(host.http, Client)
    metered = make(board, replace(host, http=Metered(host.http, limit, "tickets", keep)))
    item = board.create("fix")
    ticket = await seen_as_ticket(metered, item)
    board.slowed = 30
    with pytest.raises(Deferred) as waited:
        await metered.swap_labels(ticket, ["x"], [])
    assert waited.value.after == 30.0
    assert kept == [clock.time() + 30]
    assert item.fields["System.Tags"] == "fix"
    board.slowed = 0
    clock.advance(30)
    assert (await metered.swap_labels(ticket, ["x"], [])).labels == ("fix", "x")


async def test_a_limit_is_waited_for_as_long_as_it_says(board: AzureDevOps, shop: WorkItemTracker):
    ticket = await seen_as_ticket(shop, board.create())
    board.limit(47)
    with pytest.raises(RetryLater) as limited:
        await shop.swap_labels(ticket, ["x"], [])
    assert (limited.value.reason, limited.value.after) == ("rate_limited", 47.0)


async def test_a_limit_on_writes_is_not_taken_for_a_missing_permission(board: AzureDevOps, shop: WorkItemTracker):
    ticket = await seen_as_ticket(shop, board.create())
    limited = Answer(status=403, headers={"Retry-After": "9"}, body=b"{}")
    board.after[len(board.seen) + 1] = lambda: board.answers.append(limited)
    with pytest.raises(RetryLater) as waited:
        await shop.swap_labels(ticket, ["x"], [])
    assert waited.value.after == 9.0
    assert len(patches(board)) == 1


async def test_a_server_of_ones_own_has_its_path_and_version(board: AzureDevOps, host: Host):
    there = {"organization": "Default Collection", "token": "t", "base_url": f"{board.url}/tfs/", "api_version": "6.0"}
    assert plugin.account is not None
    assert plugin.tracker is not None
    made = plugin.tracker("My Shop", plugin.account.model_validate(there), host)
    board.answers = [Answer(body=b'{"comments": []}')]
    ticket = Ticket(id="1", ref="#1", number="1", title="", url="", status="", closed=False)
    assert await made.comments(ticket) == []
    assert board.seen[-1].path == "/tfs/Default Collection/My Shop/_apis/wit/workItems/1/comments"
    assert board.seen[-1].query["api-version"] == "6.0-preview.3"


async def test_a_number_that_is_none_never_becomes_an_address(board: AzureDevOps, shop: WorkItemTracker):
    ticket = Ticket(id="1", ref="", number="../../x", title="", url="", status="", closed=False)
    with pytest.raises(Refused):
        await shop.comment(ticket, "x")
    with pytest.raises(Refused):
        await shop.swap_labels(ticket, ["x"], [])
    assert board.seen == []
