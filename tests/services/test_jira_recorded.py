"""Issues that a Jira Cloud and a Jira Server once sent, out of the source distributions of tools that collect them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from harken.kit.values_from_payload import instant
from harken.services.jira.events_from_issue_history import data_of
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.server import Answer
from tests.downloads.corpora import corpus
from tests.services.jira import serving, source
from tests.services.reading import events, read

pytestmark = [pytest.mark.worker_group("collector-corpora"), pytest.mark.timeout(300)]

LONG_AGO = datetime(2010, 1, 1, tzinfo=UTC)
AARON = "557058:d40693ec-2876-4c4d-8fc7-e3b3f923e155"


@pytest.fixture(scope="module")
def of_cloud() -> list[dict[str, Any]]:
    """Issues with their histories; one was stripped of its fields by those who recorded it."""
    items = msgspec.json.decode((corpus("grimoire-elk") / "tests/data/jira.json").read_bytes())
    return [item["data"] for item in items if "fields" in item["data"]]


@pytest.fixture(scope="module")
def of_server() -> list[dict[str, Any]]:
    pages = (corpus("perceval") / "tests/data/jira").glob("jira_issues_page_[12].json")
    return [issue for page in sorted(pages) for issue in msgspec.json.decode(page.read_bytes())["issues"]]


async def shown(issues: list[dict[str, Any]], clock: HandClock, host: Host, *, cloud: bool, **query: Any) -> list[Any]:
    """The events of a search that finds these issues."""
    async with serving(clock, cloud=cloud) as jira:
        jira.user(AARON, name="Aaron Williamson")
        watched = source(jira, host, **query)
        await read(watched)
        whole = {"expand": "schema,names", "startAt": 0, "maxResults": 50, "total": len(issues), "issues": issues}
        jira.answers = [Answer(body=msgspec.json.encode(whole))]
        return events(await read(watched, None, LONG_AGO))


def test_fields_agree_with_what_was_recorded(of_cloud: list[dict[str, Any]], of_server: list[dict[str, Any]]):
    assert len(of_cloud) + len(of_server) >= 7
    for issue in [*of_cloud, *of_server]:
        data, fields = data_of(issue, ""), issue["fields"]
        assert (data["id"], data["key"], data["summary"]) == (issue["id"], issue["key"], fields["summary"])
        assert (data["status"], data["priority"]) == (fields["status"]["name"], fields["priority"]["name"])
        assert (data["issue_type"], data["labels"]) == (fields["issuetype"]["name"], fields.get("labels", []))
        assert data["project"] == {"key": fields["project"]["key"], "name": fields["project"]["name"]}
        assert data["description"] == fields["description"]
        assert (instant(data["created"]), instant(data["updated"])) == (
            instant(fields["created"]),
            instant(fields["updated"]),
        )


def test_people_of_a_cloud_have_account_ids_and_those_of_a_server_names(
    of_cloud: list[dict[str, Any]], of_server: list[dict[str, Any]]
):
    ids = [data_of(issue, "")["assignee"]["id"] for issue in [*of_cloud, *of_server]]
    assert AARON in ids
    assert {"user1", "user3"} <= set(ids)


@pytest.mark.parametrize("identity", ["once", "change"])
async def test_each_recorded_issue_is_shown(
    of_cloud: list[dict[str, Any]], of_server: list[dict[str, Any]], clock: HandClock, host: Host, identity: Any
):
    here = await shown(of_cloud, clock, host, cloud=True, identity=identity)
    there = await shown(of_server, clock, host, cloud=False, identity=identity)
    assert {event.subject for event in here} == {issue["id"] for issue in of_cloud}
    assert {event.subject for event in there} == {issue["id"] for issue in of_server}


async def test_each_recorded_change_of_status_is_a_transition(
    of_cloud: list[dict[str, Any]], clock: HandClock, host: Host
):
    found = await shown(of_cloud, clock, host, cloud=True, identity="transition")
    moved = [event for event in found if event.type == "jira.status"]
    changes = [change for issue in of_cloud for change in issue["changelog"]["histories"]]
    recorded = {
        (instant(change["created"]), item["toString"], item["fromString"])
        for change in changes
        for item in change["items"]
        if item["field"] == "status"
    }
    assert {(one.occurred_at, one.state, one.data["previous_status"]) for one in moved} == recorded
    assert len(recorded) >= 8


async def test_whoever_was_assigned_later_has_it_since_then(
    of_cloud: list[dict[str, Any]], clock: HandClock, host: Host
):
    mine = [issue for issue in of_cloud if issue["fields"]["assignee"]["accountId"] == AARON]
    (event,) = await shown(mine, clock, host, cloud=True, assignee=AARON)
    assert (event.type, event.occurred_at) == ("jira.matched", instant("2018-05-21T23:31:30.536+00:00"))
