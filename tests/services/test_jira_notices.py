"""Jira's webhooks about issues, of Cloud and Data Center: signatures, HTTP Basic, and what they tell."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from harken.errors import Unauthorized
from harken.services.jira import plugin
from harken.services.jira.issue_to_ticket import FIELDS
from harken.services.jira.tracker_webhooks import JiraNotices
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.jira import Jira
from harken.ticket import Actor, Notice
from tests.services.jira import account, serving
from tests.services.notice_contract import CLOCK, SECRET, NoticeReaderContract, SignatureContract, request

MIA = {"accountId": "557058:mia", "accountType": "atlassian", "displayName": "Mia", "active": True}
# shaped as https://developer.atlassian.com/cloud/jira/platform/webhooks/ shows them
ISSUE: dict[str, Any] = {
    "id": "99291",
    "self": "https://jira.atlassian.com/rest/api/2/issue/99291",
    "key": "JRA-20002",
    "fields": {
        "summary": "I feel the need for speed",
        "created": "2009-12-16T23:46:10.612-0600",
        "updated": "2009-12-17T00:00:00.000-0600",
        "description": "Make the issue nav load 10x faster",
        "labels": ["UI", "dialogue", "move"],
        "priority": {"name": "Minor"},
        "creator": MIA,
        "project": {"id": "1", "key": "JRA", "name": "Jira"},
        "status": {"name": "In Progress", "statusCategory": {"key": "indeterminate", "name": "In Progress"}},
    },
}
UPDATED: dict[str, Any] = {
    "timestamp": 1261029600000,
    "webhookEvent": "jira:issue_updated",
    "issue_event_type_name": "issue_generic",
    "user": MIA,
    "issue": ISSUE,
    "changelog": {"id": "1", "items": [{"field": "labels", "fromString": "UI", "toString": "UI dialogue move"}]},
}
COMMENT = {
    "self": "https://jira.atlassian.com/rest/api/2/issue/99291/comment/252789",
    "id": "252789",
    "author": MIA,
    "body": "Just in time for AtlasCamp!",
    "created": "2009-12-17T00:00:00.000-0600",
}
# Cloud shows a part of the issue with a comment
COMMENTED: dict[str, Any] = {
    "timestamp": 1261029600000,
    "webhookEvent": "comment_created",
    "comment": COMMENT,
    "issue": {
        "id": "99291",
        "self": "https://jira.atlassian.com/rest/api/2/99291",
        "key": "JRA-20002",
        "fields": {
            "summary": "I feel the need for speed",
            "project": {"key": "JRA"},
            "status": ISSUE["fields"]["status"],
        },
    },
}


def signature(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def read(payload: Any) -> list[Notice]:
    body = json.dumps(payload).encode()
    return list(JiraNotices(SECRET, None, CLOCK).read(request({"x-hub-signature": signature(body)}, body)))


class TestSignatures(SignatureContract):
    payload, proof = UPDATED | {"comment": COMMENT}, "x-hub-signature"

    def reader(self, secret: str) -> JiraNotices:
        return JiraNotices(secret, None, CLOCK)

    def headers(self, body: bytes, secret: str = SECRET) -> dict[str, str]:
        return {"x-hub-signature": signature(body, secret), "x-atlassian-webhook-identifier": "a1"}


class TestBasic(NoticeReaderContract):
    """As Data Center can be set up."""

    payload, proof = COMMENTED, "authorization"

    def reader(self, secret: str) -> JiraNotices:
        return JiraNotices(secret, None, CLOCK)

    def headers(self, body: bytes, secret: str = SECRET) -> dict[str, str]:
        return {"authorization": f"Basic {base64.b64encode(f'jira:{secret}'.encode()).decode()}"}


def test_the_example_of_the_documentation_is_verified():
    """https://developer.atlassian.com/cloud/jira/platform/webhooks/ has it as a test case."""
    reader = JiraNotices("It's a Secret to Everybody", None, CLOCK)
    given = "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9"
    assert reader.read(request({"x-hub-signature": given}, b"Hello World!")) == ()
    with pytest.raises(Unauthorized):
        reader.read(request({"x-hub-signature": given}, b"Hello World?"))


def test_a_wrong_signature_is_not_made_good_by_anything_else():
    body = json.dumps(UPDATED).encode()
    right = base64.b64encode(f"jira:{SECRET}".encode()).decode()
    sha1 = "sha1=" + hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()
    for wrong in (signature(body, "other"), sha1, ""):
        with pytest.raises(Unauthorized):
            headers = {"x-hub-signature": wrong, "authorization": f"Basic {right}"}
            JiraNotices(SECRET, None, CLOCK).read(request(headers, body))


@pytest.mark.parametrize("event", ["jira:issue_created", "jira:issue_updated"])
def test_a_change_shows_the_whole_ticket(event: str):
    (notice,) = read(UPDATED | {"webhookEvent": event})
    assert (notice.location, notice.id, notice.comment) == ("JRA", "99291", None)
    assert notice.sent_at == datetime(2009, 12, 17, 6, tzinfo=UTC)
    assert notice.ticket is not None
    assert notice.ticket.labels == ("UI", "dialogue", "move")
    assert notice.ticket.text == "Make the issue nav load 10x faster"
    assert notice.ticket.url == "https://jira.atlassian.com/browse/JRA-20002"
    assert not notice.ticket.closed


def test_a_deleted_issue_is_named_and_not_shown():
    (notice,) = read(UPDATED | {"webhookEvent": "jira:issue_deleted"})
    assert (notice.id, notice.ticket) == ("99291", None)


@pytest.mark.parametrize("missing", FIELDS)
def test_an_issue_that_is_not_shown_whole_is_not_taken_for_one_without_labels(missing: str):
    fields = {name: value for name, value in ISSUE["fields"].items() if name != missing}
    (notice,) = read(UPDATED | {"issue": ISSUE | {"fields": fields}})
    assert (notice.id, notice.location, notice.ticket) == ("99291", "JRA", None)


def test_a_new_comment_is_shown_as_cloud_and_as_data_center_tell_it():
    (cloud,) = read(COMMENTED)
    assert (cloud.id, cloud.location, cloud.ticket) == ("99291", "JRA", None)
    (server,) = read(UPDATED | {"issue_event_type_name": "issue_commented", "comment": COMMENT})
    assert server.ticket is not None
    for notice in (cloud, server):
        assert notice.comment is not None
        assert (notice.comment.id, notice.comment.text) == ("252789", "Just in time for AtlasCamp!")
        assert notice.comment.author == Actor(id="557058:mia", login="557058:mia")
    edited = UPDATED | {"issue_event_type_name": "issue_comment_edited", "comment": COMMENT}
    assert (read(edited)[0].comment, read(edited)[0].commented) == (None, False)


def test_a_comment_of_data_center_that_comes_without_its_issue_names_it():
    alone = {name: value for name, value in COMMENTED.items() if name != "issue"}
    (notice,) = read(alone)
    assert (notice.id, notice.location, notice.commented, notice.comment) == ("99291", "", True, None)
    assert read(alone | {"comment": {"id": "1"}}) == []


def test_other_events_tell_nothing():
    for event in ("worklog_created", "sprint_started", "issuelink_created", "user_created", "", 7, None):
        assert read(UPDATED | {"webhookEvent": event}) == []
    for id, key in (("1/../2", "JRA-1"), ("1", "../x-1"), ("", "JRA-1"), ("1", ""), (None, None)):
        assert read(UPDATED | {"issue": ISSUE | {"id": id, "key": key}}) == []


@pytest.fixture(params=[True, False], ids=["cloud", "server"])
async def jira(request: pytest.FixtureRequest, clock: HandClock) -> AsyncIterator[Jira]:
    async with serving(clock, cloud=request.param) as fake:
        yield fake


async def test_the_ticket_of_a_webhook_is_that_of_the_tracker(jira: Jira, host: Host):
    issue = jira.issue(jira.create(description="It crashes", labels=["bug"]))
    shown = jira.json(issue, FIELDS, False) | {"self": f"{jira.url}/rest/api/2/issue/{issue.id}"}
    (notice,) = read(UPDATED | {"issue": shown})
    assert plugin.tracker is not None
    assert notice.ticket is not None
    assert notice.ticket == await plugin.tracker(notice.location, account(jira), host).get(notice.id)
    assert plugin.notices is JiraNotices
