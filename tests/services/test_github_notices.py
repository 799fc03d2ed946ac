"""GitHub's webhooks about issues: signatures as its own libraries make them, recorded payloads, and odd ones."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from gidgethub import ValidationFailure, sansio

from harken.errors import Unauthorized
from harken.services.github import plugin
from harken.services.github.tracker_webhooks import GitHubNotices
from harken.source import Host
from harken.testing.fakes.github import GitHub, Issue
from harken.ticket import Notice
from tests.services.github import SHOP, account
from tests.services.notice_contract import CLOCK, SECRET, SignatureContract, request

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "recorded/github_webhooks.json").read_text())[
    "deliveries"
]


def signature(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def recorded(event: str, action: str | None) -> dict[str, Any]:
    found = (one["payload"] for one in RECORDED if one["event"] == event and one["payload"].get("action") == action)
    payload: dict[str, Any] = next(found)
    return payload


def read(event: str, payload: dict[str, Any]) -> list[Notice]:
    body = json.dumps(payload).encode()
    headers = {"x-github-event": event, "x-hub-signature-256": signature(body), "content-type": "application/json"}
    return list(GitHubNotices(SECRET, None, CLOCK).read(request(headers, body)))


class TestGitHubNotices(SignatureContract):
    proof = "x-hub-signature-256"
    payload = recorded("issue_comment", "created")

    def reader(self, secret: str) -> GitHubNotices:
        return GitHubNotices(secret, None, CLOCK)

    def headers(self, body: bytes, secret: str = SECRET) -> dict[str, str]:
        return {"x-github-event": "issue_comment", "x-hub-signature-256": signature(body, secret)}


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one['event']}-{one['payload'].get('action')}")
def test_signatures_are_those_that_gidgethub_accepts(one: dict[str, Any]):
    body = json.dumps(one["payload"]).encode()
    sansio.validate_event(body, signature=signature(body), secret=SECRET)
    right = {"x-github-event": one["event"], "x-hub-signature-256": signature(body)}
    GitHubNotices(SECRET, None, CLOCK).read(request(right, body))
    for wrong in (signature(body, "other"), signature(body + b" "), signature(body)[:-2]):
        with pytest.raises(ValidationFailure):
            sansio.validate_event(body, signature=wrong, secret=SECRET)
        with pytest.raises(Unauthorized):
            GitHubNotices(SECRET, None, CLOCK).read(request(right | {"x-hub-signature-256": wrong}, body))


def test_a_right_signature_with_sha1_alone_is_refused():
    body = json.dumps(recorded("issues", "opened")).encode()
    sha1 = "sha1=" + hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()
    for headers in ({"x-hub-signature": sha1}, {"x-hub-signature-256": sha1}, {"x-hub-signature": signature(body)}):
        with pytest.raises(Unauthorized):
            GitHubNotices(SECRET, None, CLOCK).read(request(headers | {"x-github-event": "issues"}, body))


@pytest.mark.parametrize("action", ["opened", "edited", "labeled", "unlabeled", "reopened"])
def test_a_recorded_change_shows_the_whole_ticket(action: str):
    payload = recorded("issues", action)
    (notice,) = read("issues", payload)
    issue = payload["issue"]
    assert notice.location == payload["repository"]["full_name"]
    assert notice.id == f"{issue['number']}@{issue['id']}"
    assert notice.ticket is not None
    assert notice.ticket.title == issue["title"]
    assert notice.ticket.labels == tuple(label["name"] for label in issue["labels"])
    assert notice.ticket.version == issue["updated_at"]
    assert notice.sent_at == notice.ticket.updated_at
    assert notice.comment is None


@pytest.mark.parametrize("action", ["deleted", "transferred"])
def test_an_issue_that_is_gone_is_named_and_not_shown(action: str):
    payload = recorded("issues", action)
    (notice,) = read("issues", payload)
    assert notice.id == f"{payload['issue']['number']}@{payload['issue']['id']}"
    assert notice.ticket is None


def test_a_new_comment_is_shown_and_a_deleted_one_is_not():
    payload = recorded("issue_comment", "created")
    (notice,) = read("issue_comment", payload)
    assert notice.comment is not None
    assert notice.comment.id == str(payload["comment"]["id"])
    assert notice.comment.text == payload["comment"]["body"]
    assert notice.comment.author is not None
    assert notice.comment.author.id == str(payload["comment"]["user"]["id"])
    assert notice.ticket is not None
    assert notice.commented
    (notice,) = read("issue_comment", recorded("issue_comment", "deleted"))
    assert (notice.comment, notice.commented) == (None, False)


def test_pings_other_events_and_pull_requests_tell_nothing():
    assert read("ping", recorded("ping", None)) == []
    opened = recorded("issues", "opened")
    assert read("pull_request", opened) == read("push", opened) == read("", opened) == []
    pull = {"url": "https://api.github.com/repos/a/b/pulls/1", "merged_at": None}
    comment = recorded("issue_comment", "created")
    assert read("issue_comment", comment | {"issue": comment["issue"] | {"pull_request": pull}}) == []


@pytest.mark.parametrize("missing", ["labels", "state", "updated_at"])
def test_an_issue_that_is_not_shown_whole_is_not_taken_for_one_without_labels(missing: str):
    payload = recorded("issues", "labeled")
    issue = {name: value for name, value in payload["issue"].items() if name != missing}
    (notice,) = read("issues", payload | {"issue": issue})
    assert notice.ticket is None
    (notice,) = read("issues", payload | {"issue": payload["issue"] | {"labels": [{"name": "a"}, {"odd": 1}]}})
    assert notice.ticket is None


@pytest.mark.parametrize("name", ["../../x", "a/b/c", "acme", "", "a/..", "a b/c", 7])
def test_what_is_no_repository_tells_nothing(name: object):
    payload = recorded("issues", "opened")
    assert read("issues", payload | {"repository": payload["repository"] | {"full_name": name}}) == []


def test_a_webhook_that_is_sent_as_a_form_is_read():
    payload = recorded("issues", "opened")
    body = urlencode({"payload": json.dumps(payload)}).encode()
    headers = {
        "x-github-event": "issues",
        "x-hub-signature-256": signature(body),
        "content-type": "application/x-www-form-urlencoded; charset=utf-8",
    }
    (notice,) = GitHubNotices(SECRET, None, CLOCK).read(request(headers, body))
    assert notice.ticket is not None


async def test_the_ticket_of_a_webhook_is_that_of_the_tracker(hub: GitHub, host: Host):
    issue: Issue = hub.open("bug", "größe 🔥", title="It crashes", text="Since **today**", author="leo")
    payload = {"action": "labeled", "issue": issue.to_json(), "repository": {"full_name": SHOP}}
    (notice,) = read("issues", payload)
    assert plugin.tracker is not None
    tracker = plugin.tracker(SHOP, account(hub), host)
    assert notice.ticket == await tracker.get(notice.id)
    assert plugin.notices is GitHubNotices
