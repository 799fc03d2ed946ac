"""Azure DevOps work items: all of them, slice by slice of time, whatever is changed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from harken.errors import NeedsAttention
from harken.services.azure_devops import plugin
from harken.source import Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.testing.fakes.server import Answer, Seen
from harken.testing.source import Service, SourceContract
from tests.services.boards import SHOP, source
from tests.services.reading import events, page, read, subjects


def wiql(seen: Seen) -> str:
    return str(msgspec.json.decode(seen.body)["query"])


class AtWork:
    """Work items that are created, or with `tagging` tagged, one after the other or at one instant."""

    page_size = 200
    since = START - timedelta(seconds=1)

    def __init__(self, clock: HandClock, board: AzureDevOps, source: PollSource, *, tagging: bool = False) -> None:
        self.source: PollSource = source
        self._clock = clock
        self._board = board
        self._tagging = tagging

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        made = []
        for _ in range(count):
            self._clock.advance(0 if tied else 2)
            made.append(
                self._board.create(*([] if self._tagging else ["urgent"]), to="mia", age=3600.0 * self._tagging)
            )
            if self._tagging:
                self._board.tag(made[-1], "urgent")
        return [str(item.id) for item in made]

    async def expire(self) -> bool:
        return False


class TestCreated(SourceContract):
    @pytest.fixture(
        params=[{}, {"tags": "URGENT", "assigned_to": "mia@acme.example", "states": ["new", "Active"], "types": "bug"}]
    )
    def service(self, request: Any, clock: HandClock, host: Host, board: AzureDevOps) -> Service:
        return AtWork(clock, board, source(board, host, **request.param))


class TestTagged(SourceContract):
    @pytest.fixture
    def service(self, clock: HandClock, host: Host, board: AzureDevOps) -> Service:
        return AtWork(clock, board, source(board, host, tags="urgent"), tagging=True)


async def test_the_requests_are_the_ones_that_are_documented(board: AzureDevOps, host: Host):
    board.create("a b")
    asked: Any = {"types": ["Bug", "Task"], "states": "New", "tags": "a b", "assigned_to": "none", "area_path": "Shop"}
    await page(source(board, host, **asked))
    query, items = board.seen
    assert (query.method, query.path) == ("POST", "/acme/Shop/_apis/wit/wiql")
    assert query.query == {"timePrecision": "true", "$top": "201", "api-version": "7.1"}
    assert query.headers["authorization"] == "Basic OnJlYWRlcg=="
    assert query.headers["x-tfs-fedauthredirect"] == "Suppress"
    assert wiql(query) == (
        "SELECT [System.Id] FROM WorkItems WHERE [System.TeamProject] = @project "
        "AND [System.WorkItemType] IN ('Bug', 'Task') AND [System.State] IN ('New') "
        "AND [System.Tags] CONTAINS 'a b' AND [System.AssignedTo] = '' AND [System.AreaPath] UNDER 'Shop' "
        "AND [System.ChangedDate] >= '2026-01-05T09:00:00.000Z' ORDER BY [System.ChangedDate], [System.Id]"
    )
    assert (items.method, items.path) == ("GET", "/acme/_apis/wit/workitems")
    assert (items.query["ids"], items.query["errorPolicy"], items.query["api-version"]) == ("1", "omit", "7.1")


async def test_an_event_has_the_documented_fields(board: AzureDevOps, host: Host):
    board.create("ui", "needs review", title="Checkout is down 🔥", to="mia", area="Shop\\Checkout")
    (event,) = events(await read(source(board, host)))
    assert (event.subject, event.type, event.state) == ("1", "azure_devops.work_item", "New")
    assert event.occurred_at == START
    leo = {"id": "id-leo", "name": "Leo", "email": "leo@acme.example"}
    assert event.data == {
        "id": 1,
        "rev": 1,
        "title": "Checkout is down 🔥",
        "description": "About <1>",
        "type": "Bug",
        "state": "New",
        "reason": "New",
        "tags": ["ui", "needs review"],
        "project": "Shop",
        "area_path": "Shop\\Checkout",
        "iteration_path": "Shop",
        "priority": 2,
        "assigned_to": {"id": "id-mia", "name": "Mia", "email": "mia@acme.example"},
        "created_by": leo,
        "changed_by": leo,
        "comments": 0,
        "created_at": "2026-01-05T09:00:00Z",
        "changed_at": "2026-01-05T09:00:00Z",
        "state_changed_at": "2026-01-05T09:00:00Z",
        "url": f"{board.url}/acme/Shop/_workitems/edit/1",
        "matched_at": "2026-01-05T09:00:00Z",
    }


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, ["1", "2", "3"]),
        ({"types": "task"}, ["2"]),
        ({"states": ["To Do", "Closed"]}, ["2"]),
        ({"tags": "Bug"}, ["3"]),
        ({"tags": ["bug", "o'neil"]}, ["3"]),
        ({"tags": "bu"}, []),
        ({"assigned_to": "mia@acme.example"}, ["3"]),
        ({"assigned_to": "none"}, ["1", "2"]),
        ({"area_path": "shop\\checkout"}, ["1"]),
    ],
)
async def test_filters(board: AzureDevOps, host: Host, query: Any, wanted: list[str]):
    board.create(area="Shop\\Checkout")
    board.create(kind="Task")
    board.create("bug", "o'neil", to="mia")
    assert subjects(await read(source(board, host, **query))) == wanted


async def test_several_projects_are_read_one_after_the_other(board: AzureDevOps, host: Host, clock: HandClock):
    reader = source(board, host, projects=[SHOP, "Search", "shop"])
    board.create()
    board.create(project="Search")
    first = await read(reader)
    assert subjects(first) == ["1", "2"]
    assert [batch.more for batch in first] == [True, False]
    clock.advance(7200)
    second = await read(reader, first[-1].cursor)
    board.create(project="Search")
    assert subjects(await read(reader, second[-1].cursor)) == ["3"]


async def test_250_new_work_items_between_two_reads_are_all_shown_in_few_requests(
    board: AzureDevOps, host: Host, clock: HandClock
):
    reader = source(board, host)
    cursor = (await read(reader))[-1].cursor
    for _ in range(250):
        clock.advance(1)
        board.create()
    board.seen.clear()
    assert len(set(subjects(await read(reader, cursor)))) == 250
    assert len(board.seen) <= 6


@pytest.mark.parametrize("request_number", [1, 2, 3])
async def test_a_page_that_is_changed_between_the_query_and_the_reading_of_it_hides_nothing(
    board: AzureDevOps, host: Host, clock: HandClock, request_number: int
):
    made = []
    for _ in range(450):
        clock.advance(60)
        made.append(board.create())

    # half a day's work, of which the first page is changed while it is looked for
    def change() -> None:
        for item in made[100:201]:
            board.comment(item)

    board.after[request_number] = change
    assert len(set(subjects(await read(source(board, host))))) == 450


async def test_a_bulk_edit_at_one_instant_is_read_whole(board: AzureDevOps, host: Host, clock: HandClock):
    for _ in range(430):
        board.create()
    clock.advance(5)
    board.create()
    assert len(set(subjects(await read(source(board, host))))) == 431
    assert all(len(seen.query["ids"].split(",")) <= 200 for seen in board.seen if "ids" in seen.query)


async def test_more_than_can_be_read_of_one_instant_is_said(board: AzureDevOps, host: Host):
    for _ in range(1001):
        board.create()
    with pytest.raises(NeedsAttention, match=r"more than 1,000 work items of Shop.*narrower"):
        await read(source(board, host))


async def test_a_query_that_finds_more_than_are_listed_is_cut_into_slices_of_time(
    board: AzureDevOps, host: Host, clock: HandClock
):
    board.cap = 300
    for _ in range(900):
        clock.advance(60)
        board.create()
    assert len(set(subjects(await read(source(board, host))))) == 900


async def test_a_work_item_that_queries_find_late_is_shown_within_ten_minutes(
    board: AzureDevOps, host: Host, clock: HandClock
):
    reader = source(board, host)
    board.create(late=500)
    clock.advance(300)
    cursor = (await read(reader))[-1].cursor
    clock.advance(200)
    # the engine's own line may have gone on with other events
    assert subjects(await read(reader, cursor, since=START)) == ["1"]


async def test_a_read_begins_ten_minutes_before_the_last_one(board: AzureDevOps, host: Host, clock: HandClock):
    reader = source(board, host)
    cursor = (await read(reader))[-1].cursor
    clock.advance(86_400)
    cursor = (await read(reader, cursor))[-1].cursor
    clock.advance(30)
    await read(reader, cursor)
    assert ">= '2026-01-06T08:50:00.000Z'" in wiql(board.seen[-1])


@pytest.mark.parametrize("skew", [-3000.0, 3000.0])
async def test_a_clock_that_is_wrong_by_an_hour_hides_nothing(host: Host, clock: HandClock, skew: float):
    board = AzureDevOps(clock, skew=skew)
    async with board.serve():
        reader, since = source(board, host), START - timedelta(hours=2)
        cursor = (await read(reader, since=since))[-1].cursor
        for number in range(3):
            clock.advance(90)
            board.create()
            batches = await read(reader, cursor, since=since)
            cursor = batches[-1].cursor
            assert str(number + 1) in subjects(batches)


async def test_a_trigger_that_looks_back_is_shown_what_was_read_before(
    board: AzureDevOps, host: Host, clock: HandClock
):
    reader = source(board, host)
    board.create(age=86_000)
    cursor = (await read(reader))[-1].cursor
    clock.advance(3600)
    assert subjects(await read(reader, cursor, since=START - timedelta(days=1))) == ["1"]


async def test_another_query_begins_anew_and_a_broken_cursor_too(board: AzureDevOps, host: Host, clock: HandClock):
    for _ in range(201):
        clock.advance(1)
        board.create("bug")
    half = await page(source(board, host))
    assert half.more
    assert len(set(subjects(await read(source(board, host, tags="bug"), half.cursor, since=clock.now())))) == 201
    for broken in ("x", {"marks": 3}, [1], {"name": SHOP}):
        assert len(set(subjects(await read(source(board, host), broken)))) == 201


async def test_what_does_not_match_any_more_or_is_deleted_meanwhile_is_left_out_and_nothing_else(
    board: AzureDevOps, host: Host
):
    moved, gone, there = (board.create() for _ in range(3))

    def change() -> None:
        board.move(moved, "Closed")
        gone.deleted = True

    board.after[1] = change
    assert subjects(await read(source(board, host, states="New"))) == [str(there.id)]


@pytest.mark.parametrize(
    "broken",
    [
        {"System.CreatedDate": None, "System.ChangedDate": None},
        {"System.State": None, "System.WorkItemType": 4, "System.Title": {"a": 1}},
        {"System.ChangedDate": "yesterday", "System.AssignedTo": 3, "System.Tags": ["x"]},
        {"System.CreatedBy": "Leo Park <leo@acme.example>", "Microsoft.VSTS.Common.Priority": "high", "Custom.New": {}},
    ],
)
async def test_an_odd_work_item_is_an_event_too_and_hides_no_other(board: AzureDevOps, host: Host, broken: Any):
    board.create("bug").broken = broken
    board.create("bug")
    assert len(set(subjects(await read(source(board, host, types="Bug"))))) == 2


async def test_a_work_item_that_is_no_object_is_an_event_too(board: AzureDevOps, host: Host):
    board.create()
    board.after[1] = lambda: board.answers.append(Answer(body=b'{"value": ["odd", null, {"fields": 3}]}'))
    assert len(events([await page(source(board, host))])) == 2


async def test_a_message_about_a_work_item_has_only_fields_that_it_has(board: AzureDevOps, host: Host):
    board.create()
    (event,) = events(await read(source(board, host)))
    assert plugin.delivery is not None
    template = plugin.delivery(None, "azure_devops").template
    assert template.format_map(event.data) == f"[Bug 1] Trouble 1 (New)\n{board.url}/acme/Shop/_workitems/edit/1"


async def test_people_of_old_servers_are_read_from_their_text(board: AzureDevOps, host: Host):
    board.create().broken = {"System.CreatedBy": "Leo Park <leo@acme.example>"}
    (event,) = events(await read(source(board, host)))
    assert event.data["created_by"] == {"id": "", "name": "Leo Park", "email": "leo@acme.example"}
