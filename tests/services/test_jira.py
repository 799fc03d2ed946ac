"""When an issue is an occurrence, on Cloud and on Server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from harken.event import Event
from harken.services.jira import Issues
from harken.source import Cursor, Host, PollSource
from harken.testing import START, HandClock
from harken.testing.fakes.jira import Jira
from harken.testing.source import Service, SourceContract
from tests.services.jira import serving, source
from tests.services.reading import events, read

BOTH = pytest.mark.parametrize("jira", ["cloud", "server"], indirect=True)
HOUR = 3600.0


@pytest.fixture
async def jira(request: Any, clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=getattr(request, "param", "cloud") == "cloud", cap=3) as served:
        served.user("bob", email="bob@example.com", name="Bob")
        yield served


class Watch:
    """Reads as the engine does: from the cursor, with the newest occurrence less the look-back as `since`."""

    def __init__(self, source: Issues, clock: HandClock) -> None:
        self.source = source
        self.clock = clock
        self.cursor: Cursor = None
        self.start = clock.now()
        self.newest = clock.now()

    async def sees(self, after: float = 60.0) -> list[Event]:
        """What a read shows after a minute that happened since the start."""
        self.clock.advance(after)
        pages = await read(self.source, self.cursor, max(self.start, self.newest - timedelta(seconds=600)))
        self.cursor = pages[-1].cursor
        shown = events(pages)
        self.newest = max([self.newest, *(event.occurred_at for event in shown if event.occurred_at)])
        return [event for event in shown if event.occurred_at is None or event.occurred_at >= self.start]

    async def keys(self, after: float = 60.0) -> list[str]:
        return [event.data["key"] for event in await self.sees(after)]


class OnJira:
    page_size = 3
    since = START - timedelta(seconds=1)

    def __init__(self, clock: HandClock, jira: Jira, source: PollSource) -> None:
        self.source = source
        self._clock = clock
        self._jira = jira

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = []
        for _ in range(count):
            self._clock.advance(0 if tied else 10)
            names.append(self._jira.issue(self._jira.create(assignee="me")).id)
        return names

    async def expire(self) -> bool:
        return False


class TestContract(SourceContract):
    @pytest.fixture(params=["cloud", "server", "cloud-jql", "server-jql"])
    async def service(self, request: Any, clock: HandClock, host: Host) -> AsyncIterator[Service]:
        cloud, raw = request.param.startswith("cloud"), request.param.endswith("jql")
        query: dict[str, Any] = {"jql": "project = TEAM", "allow_jql": True} if raw else {"assignee": "me"}
        async with serving(clock, cloud=cloud, cap=3) as jira:
            yield OnJira(clock, jira, source(jira, host, **query))


@BOTH
async def test_an_issue_that_matches_from_its_creation_is_shown_as_one_occurrence(
    jira: Jira, clock: HandClock, host: Host
):
    watch = Watch(source(jira, host, assignee="me", project="TEAM"), clock)
    clock.advance(5)
    key = jira.create(summary="Printer on fire", assignee="me", labels=("hot",), description="Help [~bob]")
    (event,) = await watch.sees()
    assert (event.subject, event.type) == (jira.issue(key).id, "jira.created")
    assert event.occurred_at == jira.issue(key).created
    assert event.data["summary"] == "Printer on fire"
    clock.advance(120)
    jira.edit(key, "Printer still on fire")
    assert {event.subject for event in await watch.sees()} <= {event.subject}


@BOTH
async def test_an_occurrence_of_long_ago_is_not_shown_again_when_its_issue_is_edited(
    jira: Jira, clock: HandClock, host: Host
):
    watch = Watch(source(jira, host, assignee="me"), clock)
    clock.advance(5)
    key = jira.create(assignee="me")
    assert await watch.keys() == [key]
    await watch.sees(after=48 * HOUR)
    jira.edit(key, "two days later, when memory may have forgotten it")
    assert await watch.sees() == []


@BOTH
async def test_an_old_issue_that_is_assigned_to_me_is_an_occurrence_at_that_moment(
    jira: Jira, clock: HandClock, host: Host
):
    key = jira.create(assignee="bob")
    clock.advance(30 * HOUR)
    watch = Watch(source(jira, host, assignee="me"), clock)
    assert await watch.keys() == []
    jira.assign(key, "me")
    assigned = clock.now()
    (event,) = await watch.sees()
    assert (event.occurred_at, event.type) == (assigned, "jira.matched")
    assert event.data["assignee"]["id"] == "me"


@BOTH
async def test_an_old_issue_of_mine_that_is_merely_edited_is_no_occurrence(jira: Jira, clock: HandClock, host: Host):
    key = jira.create(assignee="me", labels=("a",))
    clock.advance(30 * HOUR)
    watch = Watch(source(jira, host, assignee="me"), clock)
    jira.edit(key, "another summary")
    jira.label(key, "a", "b")
    jira.move(key, "In Progress")
    jira.comment(key, "any news?")
    assert await watch.sees() == []


@BOTH
async def test_an_issue_that_moves_into_the_statuses_is_an_occurrence(jira: Jira, clock: HandClock, host: Host):
    key = jira.create(assignee="me")
    clock.advance(HOUR)
    watch = Watch(source(jira, host, statuses=["in progress", "In Review"]), clock)
    jira.move(key, "In Progress")
    (event,) = await watch.sees()
    assert (event.state, event.data["previous_status"]) == ("In Progress", "To Do")
    jira.move(key, "In Review")
    assert {again.subject for again in await watch.sees()} == {event.subject}


@BOTH
async def test_with_transition_each_change_of_status_is_an_occurrence_also_between_two_reads(
    jira: Jira, clock: HandClock, host: Host
):
    key = jira.create(assignee="me")
    clock.advance(HOUR)
    watch = Watch(source(jira, host, identity="transition", assignee="me"), clock)
    jira.move(key, "In Progress")
    clock.advance(1)
    jira.move(key, "To Do")
    clock.advance(1)
    jira.edit(key, "not a change of status")
    jira.move(key, "In Progress")
    shown = await watch.sees()
    assert [event.state for event in shown] == ["In Progress", "To Do", "In Progress"]
    assert len({event.subject for event in shown}) == 3
    assert {event.subject for event in await watch.sees()} == {event.subject for event in shown}


@BOTH
async def test_assigned_away_and_back_is_another_occurrence(jira: Jira, clock: HandClock, host: Host):
    watch = Watch(source(jira, host, assignee="me"), clock)
    key = jira.create(assignee="me")
    (first,) = await watch.sees()
    jira.assign(key, "bob")
    await watch.sees()
    jira.assign(key, "me")
    again = await watch.sees()
    assert first.subject in {event.subject for event in again}
    assert len({event.subject for event in again}) == 2


@BOTH
async def test_labels_types_and_moves_between_projects_make_an_issue_match(jira: Jira, clock: HandClock, host: Host):
    jira.project("OTHER")
    labelled, moved = jira.create(labels=("x",)), jira.create("OTHER", labels=("urgent",))
    clock.advance(HOUR)
    watch = Watch(source(jira, host, project="TEAM", labels=["urgent", "Very Hot"]), clock)
    jira.label(labelled, "x", "urgent")
    assert await watch.keys() == [labelled]
    moved = jira.relocate(moved, "TEAM")
    assert (await watch.keys())[-1] == moved
    jira.label(labelled, "urgent", "y")
    assert len({event.subject for event in await watch.sees()}) == 2


@BOTH
async def test_with_change_each_update_is_an_occurrence(jira: Jira, clock: HandClock, host: Host):
    key = jira.create(assignee="me")
    clock.advance(HOUR)
    watch = Watch(source(jira, host, identity="change", assignee="me"), clock)
    jira.edit(key, "one")
    (first,) = await watch.sees()
    jira.comment(key, "two")
    (second,) = await watch.sees()
    assert first.subject == second.subject
    assert first.state != second.state
    assert first.key != second.key


@BOTH
async def test_each_comment_that_mentions_me_is_an_occurrence_and_no_other(jira: Jira, clock: HandClock, host: Host):
    key = jira.create()
    jira.comment(key, "old [~me]", "bob")
    clock.advance(HOUR)
    watch = Watch(source(jira, host, mentioned="me"), clock)
    jira.comment(key, "hello [~me], and [~bob]", "bob")
    jira.comment(key, "hello [~bob], [~melanie] and me", "bob")
    (event,) = await watch.sees()
    assert event.data["comment"]["text"] in ("hello @me, and @bob", "hello [~me], and [~bob]")
    assert event.data["comment"]["author"] == "Bob"
    jira.comment(key, "again [~me]", "bob")
    assert len(await watch.sees()) == 2


@BOTH
async def test_a_mention_in_a_description_is_an_occurrence_when_it_is_written(jira: Jira, clock: HandClock, host: Host):
    key = jira.create(description="nobody")
    clock.advance(HOUR)
    watch = Watch(source(jira, host, mentioned="me"), clock)
    jira.describe(key, "ask [~me]" if not jira.cloud else "ask [~accountid:me]")
    described = clock.now()
    fresh = jira.create(description="[~me] knows")
    shown = {event.data["key"]: event for event in await watch.sees()}
    assert set(shown) == {key, fresh}
    assert shown[key].occurred_at == described
    assert {event.type for event in shown.values()} == {"jira.mention"}


async def test_a_mention_behind_twenty_comments_is_found(jira: Jira, clock: HandClock, host: Host):
    key = jira.create()
    for number in range(150):
        jira.comment(key, f"comment {number}", "bob")
    watch = Watch(source(jira, host, mentioned="me"), clock)
    clock.advance(1)
    jira.comment(key, "[~me]?", "bob")
    assert await watch.keys() == [key]


@BOTH
async def test_an_assignment_behind_hundreds_of_changes_is_found(jira: Jira, clock: HandClock, host: Host):
    key = jira.create(assignee="bob")
    watch = Watch(source(jira, host, assignee="me"), clock)
    for number in range(30):
        jira.edit(key, f"before {number}")
    clock.advance(1)
    jira.assign(key, "me")
    assigned = clock.now()
    for number in range(230):
        clock.advance(0.01)
        jira.edit(key, f"edit {number}")
    (event,) = await watch.sees()
    assert event.occurred_at == assigned


@BOTH
async def test_250_issues_between_two_reads_are_all_shown_oldest_first(jira: Jira, clock: HandClock, host: Host):
    jira.cap = 100
    watch = Watch(source(jira, host, project="TEAM"), clock)
    await watch.sees()
    wanted = []
    for _ in range(250):
        clock.advance(0.5)
        wanted.append(jira.create())
    assert list(dict.fromkeys(await watch.keys())) == wanted


@BOTH
async def test_an_issue_that_the_index_shows_late_is_not_missed(jira: Jira, clock: HandClock, host: Host):
    watch = Watch(source(jira, host, assignee="me"), clock)
    jira.late = 300
    late = jira.create(assignee="me")
    jira.late = 0
    clock.advance(30)
    jira.create(assignee="me")
    assert late not in await watch.keys()
    jira.create(assignee="me")
    assert late in await watch.keys(after=290)


async def test_a_quiet_feed_does_not_read_all_that_changed_since_its_last_occurrence(
    jira: Jira, clock: HandClock, host: Host
):
    mine = [jira.create(assignee="me") for _ in range(9)]
    watch = Watch(source(jira, host, assignee="me"), clock)
    clock.advance(60)
    for key in mine:
        jira.edit(key, "edited")
    await watch.sees()
    await watch.sees(after=2 * HOUR)
    before = len(jira.seen)
    await watch.sees(after=60)
    assert len(jira.seen) == before + 1


async def test_a_laptop_whose_clock_is_ahead_misses_nothing(jira: Jira, clock: HandClock, host: Host):
    jira.skew = -2 * HOUR
    watch = Watch(source(jira, host, assignee="me"), clock)
    watch.start = watch.newest = clock.now() - timedelta(hours=2)
    await watch.sees()
    await watch.sees()
    key = jira.create(assignee="me")
    assert await watch.keys() == [key]


async def test_an_issue_that_the_index_still_shows_but_that_left_is_not_shown(jira: Jira, clock: HandClock, host: Host):
    watch = Watch(source(jira, host, assignee="me"), clock)
    clock.advance(10)
    key = jira.create(assignee="me")
    jira.late = 600
    clock.advance(1)
    jira.assign(key, "bob")
    assert await watch.sees() == []


async def test_raw_jql_shows_all_it_finds_without_a_time(jira: Jira, clock: HandClock, host: Host):
    for _ in range(7):
        jira.create(priority="Highest", assignee="me")
    jira.create(priority="Highest", assignee="bob")
    clock.advance(40 * HOUR)
    found = source(jira, host, jql="priority = Highest", allow_jql=True, assignee="me")
    shown = events(await read(found))
    assert len(shown) == 7
    assert {event.occurred_at for event in shown} == {None}


@BOTH
async def test_links_lead_to_the_address_for_people(jira: Jira, clock: HandClock, host: Host):
    jira.home = "https://tickets.example/"
    watch = Watch(source(jira, host, assignee="me"), clock)
    key = jira.create(assignee="me")
    (event,) = await watch.sees()
    assert event.data["url"] == f"https://tickets.example/browse/{key}"


@BOTH
async def test_an_issue_that_moves_to_another_project_keeps_its_name(jira: Jira, clock: HandClock, host: Host):
    jira.project("OTHER")
    watch = Watch(source(jira, host, assignee="me"), clock)
    key = jira.create(assignee="me")
    (before,) = await watch.sees()
    new = jira.relocate(key, "OTHER")
    (after,) = await watch.sees()
    assert (before.subject, after.data["key"]) == (after.subject, new)
    assert after.data["url"] == f"{jira.url}/browse/{new}"
