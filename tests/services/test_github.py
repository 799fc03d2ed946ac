"""GitHub issues: all of them, in the order of their changes, over every border between pages and reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from harken.errors import RetryLater
from harken.source import Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.server import Answer
from harken.testing.source import Service, SourceContract
from tests.services.hub import SHOP, source
from tests.services.reading import events, page, read, subjects


def names(found: Sequence[str]) -> list[str]:
    return [subject.partition("@")[0] for subject in found]


class AtWork:
    """Issues that are opened, or with `labelling` labelled, one after the other or in one second."""

    page_size = 100
    since = START - timedelta(seconds=1)

    def __init__(self, clock: HandClock, hub: GitHub, source: PollSource, *, labelling: bool = False) -> None:
        self.source: PollSource = source
        self._clock = clock
        self._hub = hub
        self._labelling = labelling

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        made = []
        for _ in range(count):
            self._clock.advance(0 if tied else 2)
            made.append(self._hub.open(*([] if self._labelling else ["bug"]), to="mia", age=3600.0 * self._labelling))
            if self._labelling:
                self._hub.label(made[-1], "bug")
        return [f"{SHOP}#{issue.number}@{issue.id}" for issue in made]

    async def expire(self) -> bool:
        return False


class TestOpened(SourceContract):
    @pytest.fixture(params=[{}, {"labels": "BUG", "assignee": "mia", "state": "all", "kind": "both", "author": "leo"}])
    def service(self, request: Any, clock: HandClock, host: Host, hub: GitHub) -> Service:
        return AtWork(clock, hub, source(hub, host, **request.param))


class TestLabelled(SourceContract):
    @pytest.fixture
    def service(self, clock: HandClock, host: Host, hub: GitHub) -> Service:
        return AtWork(clock, hub, source(hub, host, labels="bug"), labelling=True)


async def test_the_request_is_the_one_that_github_documents(hub: GitHub, host: Host):
    await page(source(hub, host, labels=["bug", "good first issue"], assignee="@mia", state="all"))
    sent = hub.seen[-1]
    assert sent.path == "/repos/acme/shop/issues"
    assert sent.headers["authorization"] == "Bearer classic"
    assert sent.headers["accept"] == "application/vnd.github+json"
    assert sent.headers["x-github-api-version"] == "2022-11-28"
    assert sent.query == {
        "state": "all",
        "labels": "bug,good first issue",
        "assignee": "mia",
        "sort": "updated",
        "direction": "asc",
        "since": "2026-01-05T08:59:59Z",
        "per_page": "100",
    }


async def test_an_event_has_the_documented_fields(hub: GitHub, host: Host):
    made = hub.open("bug", title="Checkout is down 🔥", to="mia")
    made.milestone = "1.0"
    (event,) = events(await read(source(hub, host)))
    assert event.subject == f"acme/shop#1@{made.id}"
    assert (event.type, event.state, event.occurred_at) == ("github.issue", "open", START)
    assert event.data == {
        "id": made.id,
        "number": 1,
        "title": "Checkout is down 🔥",
        "body": "About Checkout is down 🔥",
        "state": "open",
        "state_reason": None,
        "labels": ["bug"],
        "author": {"login": "leo"},
        "assignees": [{"login": "mia"}],
        "milestone": {"number": 1, "title": "1.0"},
        "comments": 0,
        "created_at": "2026-01-05T09:00:00Z",
        "updated_at": "2026-01-05T09:00:00Z",
        "closed_at": None,
        "merged_at": None,
        "html_url": "https://github.com/acme/shop/issues/1",
        "repo": "acme/shop",
        "is_pull_request": False,
        "draft": False,
        "matched_at": "2026-01-05T09:00:00Z",
    }


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, [1, 3]),
        ({"kind": "pulls"}, [2]),
        ({"kind": "both"}, [1, 2, 3]),
        ({"author": ["MIA", "dependabot[bot]"], "kind": "both"}, [3]),
        ({"milestone": "1.0"}, [3]),
        ({"labels": "Bug"}, [3]),
        ({"assignee": "none", "kind": "both"}, [1, 2]),
    ],
)
async def test_filters(hub: GitHub, host: Host, query: Any, wanted: list[int]):
    hub.open()
    hub.open(pull=True)
    hub.open("bug", author="mia", to="mia").milestone = "1.0"
    found = names(subjects(await read(source(hub, host, **query))))
    assert found == [f"{SHOP}#{number}" for number in wanted]


async def test_several_repositories_are_read_one_after_the_other_each_from_its_own_mark(
    hub: GitHub, host: Host, clock: HandClock
):
    hub.add_repo("acme/search")
    reader = source(hub, host, repos=[SHOP, "acme/search", "ACME/Shop"])
    hub.open()
    hub.open(repo="acme/search")
    first = await read(reader)
    assert names(subjects(first)) == ["acme/shop#1", "acme/search#1"]
    assert [batch.more for batch in first] == [True, False]
    clock.advance(7200)
    second = await read(reader, first[-1].cursor)
    hub.open(repo="acme/search")
    assert names(subjects(await read(reader, second[-1].cursor))) == ["acme/search#2"]


async def test_250_new_issues_between_two_reads_are_all_shown(hub: GitHub, host: Host, clock: HandClock):
    reader = source(hub, host)
    cursor = (await read(reader))[-1].cursor
    for _ in range(250):
        clock.advance(1)
        hub.open()
    assert len(set(subjects(await read(reader, cursor)))) == 250


async def test_what_changes_while_pages_are_read_pushes_nothing_over_a_border(
    hub: GitHub, host: Host, clock: HandClock
):
    made = []
    for _ in range(250):
        clock.advance(1)
        made.append(hub.open())
    hub.after[1] = lambda: [hub.comment(issue) for issue in made[:50]]
    assert len(set(subjects(await read(source(hub, host))))) == 250


async def test_issues_of_one_second_that_fill_pages_are_followed_by_link(hub: GitHub, host: Host, clock: HandClock):
    for _ in range(230):
        hub.open()
    clock.advance(5)
    hub.open()
    batches = await read(source(hub, host))
    assert len(set(subjects(batches))) == 231
    assert [seen.query.get("page") for seen in hub.seen[:3]] == [None, "2", "3"]


async def test_an_issue_that_is_listed_late_is_found_within_ten_minutes(hub: GitHub, host: Host, clock: HandClock):
    reader = source(hub, host)
    hub.open(late=500)
    clock.advance(300)
    cursor = (await read(reader))[-1].cursor
    clock.advance(200)
    # the engine's own line may have gone on with other events
    found = await read(reader, cursor, since=START)
    assert names(subjects(found)) == ["acme/shop#1"]


async def test_a_read_begins_at_the_last_one_even_if_nothing_has_matched_for_weeks(
    hub: GitHub, host: Host, clock: HandClock
):
    reader = source(hub, host)
    cursor = (await read(reader))[-1].cursor
    clock.advance(86_400)
    hub.open(age=1)
    cursor = (await read(reader, cursor))[-1].cursor
    clock.advance(30)
    await read(reader, cursor)
    assert hub.seen[-1].query["since"] == "2026-01-06T08:49:59Z"


async def test_a_trigger_that_looks_back_is_shown_what_was_read_before(hub: GitHub, host: Host, clock: HandClock):
    reader = source(hub, host)
    hub.open(age=86_000)
    cursor = (await read(reader))[-1].cursor
    clock.advance(3600)
    found = await read(reader, cursor, since=START - timedelta(days=1))
    assert names(subjects(found)) == ["acme/shop#1"]


async def test_an_unchanged_list_is_asked_for_with_its_etag_and_costs_nothing(
    hub: GitHub, host: Host, clock: HandClock
):
    reader = source(hub, host)
    hub.open()
    clock.advance(120)
    first = await read(reader)
    left = hub.remaining
    clock.advance(30)
    quiet = await read(reader, first[-1].cursor)
    assert (hub.seen[-1].status, quiet[-1].unchanged, quiet[-1].events) == (304, True, ())
    assert quiet[-1].cursor == first[-1].cursor
    assert hub.remaining == left
    clock.advance(7200)
    later = await read(reader, quiet[-1].cursor)
    hub.open()
    found = await read(reader, later[-1].cursor)
    assert names(subjects(found)) == ["acme/shop#2"], "the first lies long before, and may be forgotten"


async def test_an_etag_is_not_kept_while_the_list_is_fresh_or_long(hub: GitHub, host: Host, clock: HandClock):
    reader = source(hub, host)
    hub.open()
    cursor = (await read(reader))[-1].cursor
    await read(reader, cursor)
    for _ in range(40):
        hub.open()
    clock.advance(120)
    cursor = (await read(reader, cursor))[-1].cursor
    await read(reader, cursor)
    assert not any("if-none-match" in seen.headers for seen in hub.seen)


async def test_another_query_begins_anew_and_a_broken_cursor_too(hub: GitHub, host: Host, clock: HandClock):
    for _ in range(101):
        clock.advance(1)
        hub.open("bug")
    half = await page(source(hub, host))
    assert half.more
    assert len(set(subjects(await read(source(hub, host, labels="bug"), half.cursor, since=clock.now())))) == 101
    for broken in ("x", {"marks": 3}, [1], {"name": SHOP}):
        assert len(set(subjects(await read(source(hub, host), broken)))) == 101


async def test_a_renamed_repository_is_followed(hub: GitHub, host: Host):
    hub.add_repo("acme/store")
    hub.open(repo="acme/store")
    hub.repos["acme/shop"].moved_to = "acme/store"
    assert names(subjects(await read(source(hub, host)))) == ["acme/shop#1"]
    assert "acme" not in hub.seen[-1].path


async def test_a_list_that_never_ends_is_an_error(hub: GitHub, host: Host):
    link = {"Link": f'<{hub.url}/repos/acme/shop/issues?page=2>; rel="next"'}
    hub.answers = [Answer(headers=link, body=b"[]"), Answer(headers=link, body=b"[]")]
    with pytest.raises(RetryLater, match="does not end"):
        await read(source(hub, host))


@pytest.mark.parametrize(
    "broken",
    [
        {"id": None, "number": None},
        {"created_at": None},
        {"updated_at": "yesterday", "user": 3, "labels": [None, 4, {"name": 5}], "milestone": "x"},
        {"title": None, "body": 7, "assignees": {}, "pull_request": 4, "state": [], "draft": "no", "future": {}},
    ],
)
async def test_an_odd_issue_is_an_event_too_and_hides_no_other(hub: GitHub, host: Host, broken: Any):
    hub.open("bug").broken = broken
    hub.open("bug")
    found = events(await read(source(hub, host, labels="bug")))
    assert len({event.subject for event in found}) == 2


async def test_an_item_that_is_no_object_is_an_event_too(hub: GitHub, host: Host):
    hub.answers = [Answer(body=b'["odd", null]')]
    assert len(events([await page(source(hub, host))])) == 2
