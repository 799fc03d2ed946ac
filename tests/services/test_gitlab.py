"""GitLab issues: all of them, from the moment they match, and nothing for a mere change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from harken.event import Event
from harken.source import Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.server import Answer
from harken.testing.source import Service, SourceContract
from tests.services.lab import SHOP, source
from tests.services.reading import events, page, read, subjects

DAY = 86_400.0


async def shown(lab: GitLab, host: Host, **query: Any) -> list[Event]:
    return events(await read(source(lab, host, **query)))


async def times(lab: GitLab, host: Host, **query: Any) -> list[datetime | None]:
    return [event.occurred_at for event in await shown(lab, host, **query)]


def histories(lab: GitLab) -> int:
    return sum(seen.path.endswith(("_events", "/notes")) for seen in lab.seen)


class AtWork:
    """Issues that are opened, or with `labelling` labelled, one after the other or at one moment."""

    page_size = 100
    since = START - timedelta(seconds=1)

    def __init__(self, clock: HandClock, lab: GitLab, source: PollSource, *, labelling: bool = False) -> None:
        self.source: PollSource = source
        self._clock = clock
        self._lab = lab
        self._labelling = labelling

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        made = []
        for _ in range(count):
            self._clock.advance(0 if tied else 0.25)
            made.append(self._lab.open(*([] if self._labelling else ["bug"]), to="mia", age=3600.0 * self._labelling))
            if self._labelling:
                self._lab.label(made[-1], "bug")
        return [f"{SHOP}#{issue.iid}@{issue.id}" for issue in made]

    async def expire(self) -> bool:
        return False


class TestOpened(SourceContract):
    @pytest.fixture(params=[{}, {"labels": "bug", "assignee": "@mia", "state": "all", "author": "leo"}])
    def service(self, request: Any, clock: HandClock, host: Host, lab: GitLab) -> Service:
        return AtWork(clock, lab, source(lab, host, **request.param))


class TestLabelled(SourceContract):
    @pytest.fixture
    def service(self, clock: HandClock, host: Host, lab: GitLab) -> Service:
        return AtWork(clock, lab, source(lab, host, labels="bug"), labelling=True)


async def test_the_request_is_the_one_that_gitlab_documents_and_the_path_is_encoded_once(lab: GitLab, host: Host):
    await page(source(lab, host, labels=["bug", "area::ui ü/?"], assignee="mia", state="open"))
    sent = lab.seen[-1]
    assert sent.path == "/api/v4/projects/acme/web/shop/issues"
    assert sent.headers["private-token"] == "glpat-full"
    assert sent.query == {
        "state": "opened",
        "labels": "bug,area::ui ü/?",
        "assignee_username": "mia",
        "order_by": "updated_at",
        "sort": "asc",
        "updated_after": "2026-01-05T08:59:59.999Z",
        "per_page": "100",
    }


async def test_an_event_has_the_documented_fields(lab: GitLab, host: Host):
    made = lab.open("bug", to="mia")
    made.milestone = "1.0"
    (event,) = await shown(lab, host)
    assert (event.subject, event.type, event.state) == (f"{SHOP}#1@{made.id}", "gitlab.issue", "opened")
    assert event.data == {
        "id": made.id,
        "iid": 1,
        "title": "Trouble 1",
        "description": "About Trouble 1",
        "state": "opened",
        "type": "issue",
        "labels": ["bug"],
        "author": {"username": "leo", "name": "Leo"},
        "assignees": [{"username": "mia", "name": "Mia"}],
        "milestone": {"title": "1.0"},
        "comments": 0,
        "created_at": "2026-01-05T09:00:00.000Z",
        "updated_at": "2026-01-05T09:00:00.000Z",
        "closed_at": None,
        "due_date": None,
        "confidential": False,
        "web_url": "https://gitlab.com/acme/web/shop/-/issues/1",
        "project": SHOP,
        "matched_at": "2026-01-05T09:00:00.000Z",
    }


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ({}, [1, 2]),
        ({"author": "MIA"}, [2]),
        ({"milestone": "1.0"}, [2]),
        ({"labels": "bug"}, [2]),
        ({"labels": "Bug"}, []),
        ({"assignee": "none"}, [1]),
    ],
)
async def test_filters(lab: GitLab, host: Host, query: Any, wanted: list[int]):
    lab.open()
    lab.open("bug", author="mia", to="mia").milestone = "1.0"
    assert [event.data["iid"] for event in await shown(lab, host, **query)] == wanted


async def test_several_projects_are_read(lab: GitLab, host: Host):
    lab.projects["acme/search"] = {}
    lab.open()
    lab.open(project="acme/search")
    assert len(await shown(lab, host, projects=[SHOP, "acme/search", SHOP.upper()])) == 2


async def test_250_issues_at_one_moment_and_250_that_change_while_they_are_read_are_all_shown(
    lab: GitLab, host: Host, clock: HandClock
):
    for _ in range(250):
        lab.open()
    assert len({event.subject for event in await shown(lab, host)}) == 250
    made = []
    for _ in range(250):
        clock.advance(0.01)
        made.append(lab.open())
    lab.after[len(lab.seen) + 4] = lambda: [lab.comment(issue) for issue in made[:50]]
    assert len({event.subject for event in await shown(lab, host)}) == 500


async def test_an_unchanged_list_is_asked_for_with_its_etag(lab: GitLab, host: Host, clock: HandClock):
    reader = source(lab, host)
    lab.open()
    clock.advance(120)
    first = await read(reader)
    quiet = await read(reader, first[-1].cursor)
    assert (lab.seen[-1].status, quiet[-1].unchanged) == (304, True)
    lab.open()
    assert len(subjects(await read(reader, quiet[-1].cursor))) == 2


async def test_an_issue_that_is_listed_late_is_found_within_ten_minutes(lab: GitLab, host: Host, clock: HandClock):
    reader = source(lab, host)
    lab.open(late=500)
    clock.advance(300)
    cursor = (await read(reader))[-1].cursor
    clock.advance(200)
    assert len(subjects(await read(reader, cursor))) == 1


async def test_a_moved_project_is_followed(lab: GitLab, host: Host):
    lab.projects["acme/store"] = {}
    lab.open(project="acme/store")
    lab.moved[SHOP] = "acme/store"
    assert [event.data["project"] for event in await shown(lab, host)] == [SHOP]


async def test_a_comment_on_an_old_issue_is_no_occurrence(lab: GitLab, host: Host):
    for query in ({}, {"labels": "bug"}, {"assignee": "mia"}, {"state": "all"}, {"identity": "transition"}):
        lab.comment(lab.open("bug", to="mia", age=DAY))
        assert await shown(lab, host, **query) == []


@pytest.mark.parametrize(
    ("happen", "query"),
    [
        (lambda lab, issue: lab.label(issue, "bug"), {"labels": "bug"}),
        (lambda lab, issue: lab.assign(issue, "mia"), {"assignee": "Mia"}),
        (lambda lab, issue: lab.unassign(issue), {"assignee": "none"}),
        (lambda lab, issue: lab.plan(issue, "1.0"), {"milestone": "1.0"}),
        (lambda lab, issue: lab.close(issue), {"state": "closed"}),
        (lambda lab, issue: (lab.close(issue), lab.reopen(issue)), {}),
    ],
)
async def test_an_old_issue_happens_when_it_comes_to_match(
    lab: GitLab, host: Host, clock: HandClock, happen: Any, query: Any
):
    old = lab.open(to="leo", age=DAY)
    clock.advance(10)
    happen(lab, old)
    came = clock.now()
    clock.advance(10)
    lab.comment(old)
    assert await times(lab, host, **query) == [came]


async def test_what_is_taken_away_or_given_to_others_is_no_occurrence(lab: GitLab, host: Host):
    old = lab.open("bug", "ui", to="mia", age=DAY)
    lab.unlabel(old, "ui")
    assert await shown(lab, host, labels="bug") == []
    assert await shown(lab, host, assignee="mia") == []


async def test_histories_are_asked_for_once_per_change_and_only_where_they_tell_something(
    lab: GitLab, host: Host, clock: HandClock
):
    reader = source(lab, host, labels="bug", state="all")
    lab.open("bug")
    lab.comment(lab.open("bug", age=DAY))
    clock.advance(90)
    cursor = None
    for _ in range(3):
        cursor = (await read(reader, cursor))[-1].cursor
    assert histories(lab) == 1
    await shown(lab, host, state="all")
    await shown(lab, host, identity="change")
    assert histories(lab) == 1


async def test_an_issue_that_is_deleted_while_it_is_read_is_left_out_and_others_are_not(
    lab: GitLab, host: Host, clock: HandClock
):
    gone, other = lab.open(age=DAY), lab.open(age=DAY)
    clock.advance(1)
    lab.label(gone, "bug")
    lab.label(other, "bug")
    lab.after[1] = lambda: setattr(gone, "deleted", True)
    assert [event.data["iid"] for event in await shown(lab, host, labels="bug")] == [2]


async def test_every_change_of_state_is_a_transition_and_every_update_a_change(
    lab: GitLab, host: Host, clock: HandClock
):
    old = lab.open(age=DAY)
    states = []
    for happen in (lab.close, lab.reopen, lab.close):
        clock.advance(60)
        happen(old)
        (event,) = await shown(lab, host, state="all", identity="transition")
        states.append(event.state)
        assert event.occurred_at == clock.now()
    assert states == ["closed", "opened", "closed"]
    (event,) = await shown(lab, host, state="closed", identity="transition")
    assert event.state == "closed 2026-01-05T09:03:00.000Z"
    (event,) = await shown(lab, host, state="all", identity="change")
    assert event.state == "2026-01-05T09:03:00.000Z"


@pytest.mark.parametrize(
    "broken",
    [
        {"id": None, "iid": None},
        {"created_at": None, "updated_at": "yesterday"},
        {"author": 3, "labels": [None, 4, {"name": "bug"}], "milestone": "x", "assignees": {}},
        {"title": None, "description": 7, "state": [], "confidential": "no", "future": {}},
    ],
)
async def test_an_odd_issue_is_an_event_too_and_hides_no_other(lab: GitLab, host: Host, broken: Any):
    lab.open("bug").broken = broken
    lab.open("bug")
    assert len({event.subject for event in await shown(lab, host, labels="bug")}) == 2


async def test_an_item_that_is_no_object_is_an_event_too(lab: GitLab, host: Host):
    lab.answers = [Answer(body=b'["odd", null]')]
    assert len(events([await page(source(lab, host))])) == 2
