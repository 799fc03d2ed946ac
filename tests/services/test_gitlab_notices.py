"""GitLab's webhooks about issues: tokens, signing tokens as standardwebhooks makes them, and what they tell."""

from __future__ import annotations

import base64
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import standardwebhooks

from harken.errors import Unauthorized
from harken.services.gitlab import plugin
from harken.services.gitlab.tracker_webhooks import GitLabNotices
from harken.source import Host
from harken.testing.fakes.gitlab import GitLab
from harken.ticket import Actor, Notice
from tests.services.gitlab import SHOP, account
from tests.services.notice_contract import CLOCK, SECRET, NoticeReaderContract, SignatureContract, request

# shaped as https://docs.gitlab.com/user/project/integrations/webhook_events/ shows them
USER = {"id": 1, "name": "Administrator", "username": "root", "email": "[REDACTED]"}
PROJECT = {"id": 14, "name": "Gitlab Test", "path_with_namespace": "gitlab-org/gitlab-test"}
LABEL = {"id": 206, "title": "API", "color": "#ffffff", "project_id": 14, "type": "ProjectLabel"}
ISSUE: dict[str, Any] = {
    "object_kind": "issue",
    "event_type": "issue",
    "user": USER,
    "project": PROJECT,
    "object_attributes": {
        "id": 301,
        "title": "New API: create/update/delete file",
        "author_id": 51,
        "project_id": 14,
        "created_at": "2013-12-03T17:15:43Z",
        "updated_at": "2013-12-03T17:16:43Z",
        "description": "Create new API for manipulations with repository",
        "state_id": 1,
        "confidential": False,
        "iid": 23,
        "labels": [LABEL],
        "state": "opened",
        "type": "Issue",
        "url": "http://example.com/diaspora/issues/23",
        "action": "update",
    },
    "labels": [LABEL],
    "changes": {"labels": {"previous": [], "current": [LABEL]}},
}
NOTE: dict[str, Any] = {
    "object_kind": "note",
    "event_type": "note",
    "user": USER,
    "project": PROJECT,
    "object_attributes": {
        "id": 1241,
        "note": "Hello world",
        "noteable_type": "Issue",
        "author_id": 1,
        "created_at": "2015-05-17 17:06:40 UTC",
        "project_id": 14,
        "noteable_id": 92,
        "system": False,
        "action": "create",
        "url": "http://example.com/gitlab-org/gitlab-test/issues/17#note_1241",
    },
    "issue": {"id": 92, "title": "test", "iid": 17, "project_id": 14, "state": "closed", "labels": [LABEL]},
}


def signing_token(secret: str = SECRET) -> str:
    return f"whsec_{base64.b64encode(secret.encode()).decode()}"


def signed(body: bytes, secret: str = SECRET, *, at: datetime | None = None, id: str = "msg_1") -> dict[str, str]:
    at = at or CLOCK.now()
    signature = standardwebhooks.Webhook(signing_token(secret)).sign(id, at, body.decode(errors="surrogateescape"))
    return {"webhook-id": id, "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}


def read(payload: Any) -> list[Notice]:
    body = json.dumps(payload).encode()
    return list(GitLabNotices(SECRET, None, CLOCK).read(request(token(SECRET), body)))


def token(secret: str) -> dict[str, str]:
    # what arrives on the wire, as the listener decodes it
    return {"x-gitlab-event": "Issue Hook", "x-gitlab-token": secret.encode().decode("latin-1")}


class TestTokens(NoticeReaderContract):
    payload, proof = NOTE, "x-gitlab-token"

    def reader(self, secret: str) -> GitLabNotices:
        return GitLabNotices(secret, None, CLOCK)

    def headers(self, body: bytes, secret: str = SECRET) -> dict[str, str]:
        return token(secret)


class TestSigningTokens(SignatureContract):
    payload, proof = ISSUE, "webhook-signature"

    def reader(self, secret: str) -> GitLabNotices:
        key, line_end = secret.rstrip("\n"), secret[len(secret.rstrip("\n")) :]
        return GitLabNotices(signing_token(key) + line_end, None, CLOCK)

    def headers(self, body: bytes, secret: str = SECRET) -> dict[str, str]:
        stamp = str(int(CLOCK.now().timestamp()))
        made = hmac.digest(secret.encode(), b".".join((b"msg_1", stamp.encode(), body)), "sha256")
        given = f"v1,{base64.b64encode(made).decode()}"
        return {"webhook-id": "msg_1", "webhook-timestamp": stamp, "webhook-signature": given}


def verify(headers: dict[str, str], body: bytes, secret: str = "") -> list[Notice]:
    return list(GitLabNotices(secret or signing_token(), None, CLOCK).read(request(headers, body)))


def test_signatures_are_those_that_standardwebhooks_makes():
    body = json.dumps(ISSUE, ensure_ascii=False).encode()
    assert len(verify(signed(body), body)) == 1


def test_one_right_signature_of_several_is_enough():
    body = json.dumps(ISSUE).encode()
    headers = signed(body)
    right = headers["webhook-signature"]
    other = signed(body, "the old key")["webhook-signature"]
    for several in (f"{other} {right}", f"v1a,abc {right} v2,xyz", f"v1,%%% {right}"):
        assert verify(headers | {"webhook-signature": several}, body)
    for wrong in (other, right.replace("v1,", "v2,"), right.removeprefix("v1,"), f"{other} {other}", right[:-4]):
        with pytest.raises(Unauthorized):
            verify(headers | {"webhook-signature": wrong}, body)


def test_a_replayed_webhook_is_refused():
    body = json.dumps(ISSUE).encode()
    for seconds in (-299, 0, 299):
        assert verify(signed(body, at=CLOCK.now() + timedelta(seconds=seconds)), body)
    for seconds in (-301, -86_400, 301, 86_400):
        with pytest.raises(Unauthorized):
            verify(signed(body, at=CLOCK.now() + timedelta(seconds=seconds)), body)
    # an old one with the time of now, and one under another id
    old = signed(body, at=CLOCK.now() - timedelta(days=1))
    with pytest.raises(Unauthorized):
        verify(old | {"webhook-timestamp": str(int(CLOCK.now().timestamp()))}, body)
    with pytest.raises(Unauthorized):
        verify(signed(body) | {"webhook-id": "msg_2"}, body)


@pytest.mark.parametrize("stamp", ["", "now", "-1", "1e9", " 1", "٣", "9" * 400, "1.5"])
def test_a_time_that_is_none_is_refused(stamp: str):
    body = json.dumps(ISSUE).encode()
    with pytest.raises(Unauthorized):
        verify(signed(body) | {"webhook-timestamp": stamp}, body)


def test_a_signing_token_takes_no_plain_token_and_a_plain_token_no_signature():
    body = json.dumps(ISSUE).encode()
    with pytest.raises(Unauthorized):
        verify({"x-gitlab-token": signing_token()}, body)
    with pytest.raises(Unauthorized):
        verify(signed(body), body, secret=SECRET)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_???", "whsec_\n", "whsec_größe"])
def test_a_signing_token_that_is_none_never_verifies(secret: str):
    body = json.dumps(ISSUE).encode()
    with pytest.raises(Unauthorized):
        verify(TestSigningTokens().headers(body, ""), body, secret=secret)


@pytest.mark.parametrize("action", ["open", "update", "close", "reopen"])
def test_a_change_names_the_issue(action: str):
    (notice,) = read(ISSUE | {"object_attributes": ISSUE["object_attributes"] | {"action": action}})
    assert notice == Notice(
        location="gitlab-org/gitlab-test",
        aliases=("14",),
        id="14#23",
        sent_at=datetime(2013, 12, 3, 17, 16, 43, tzinfo=UTC),
    )


def test_tasks_and_confidential_issues_are_tickets_too():
    assert read(ISSUE | {"object_kind": "work_item"})[0].id == "14#23"
    assert read(ISSUE | {"event_type": "confidential_issue"})[0].id == "14#23"


def test_a_new_comment_is_shown():
    (notice,) = read(NOTE)
    assert (notice.location, notice.id, notice.ticket) == ("gitlab-org/gitlab-test", "14#17", None)
    assert notice.commented
    assert notice.comment is not None
    assert (notice.comment.id, notice.comment.text) == ("1241", "Hello world")
    assert notice.comment.author == Actor(id="1", login="root")
    assert notice.comment.created_at == notice.sent_at == datetime(2015, 5, 17, 17, 6, 40, tzinfo=UTC)


@pytest.mark.parametrize("change", [{"action": "update"}, {"system": True}, {"id": None}])
def test_a_comment_that_is_not_a_new_one_is_not_shown(change: dict[str, Any]):
    (notice,) = read(NOTE | {"object_attributes": NOTE["object_attributes"] | change})
    assert (notice.comment, notice.commented) == (None, False)


def test_the_bot_of_an_access_token_is_known():
    (notice,) = read(NOTE | {"user": USER | {"username": "project_14_bot_4ffca233d8298ea1"}})
    assert notice.comment is not None
    assert notice.comment.author is not None
    assert notice.comment.author.bot


def test_tests_and_what_is_about_no_issue_tell_nothing():
    test = {name: value for name, value in ISSUE["object_attributes"].items() if name != "action"}
    assert read(ISSUE | {"object_attributes": test}) == []
    for kind in ("push", "merge_request", "emoji", "pipeline", ""):
        assert read(ISSUE | {"object_kind": kind}) == []
    merge_request = NOTE["object_attributes"] | {"noteable_type": "MergeRequest"}
    assert read(NOTE | {"object_attributes": merge_request}) == []
    epic = ISSUE["object_attributes"] | {"project_id": None}
    assert read(ISSUE | {"object_kind": "work_item", "object_attributes": epic}) == []
    assert read(ISSUE | {"project": PROJECT | {"path_with_namespace": "../../x y"}}) == []


async def test_the_id_of_a_webhook_is_that_of_the_tracker(lab: GitLab, host: Host):
    issue = lab.open("bug")
    shown = issue.to_json()
    about = ISSUE["object_attributes"] | {"iid": shown["iid"], "project_id": shown["project_id"]}
    (notice,) = read(ISSUE | {"object_attributes": about, "project": {"path_with_namespace": SHOP}})
    assert plugin.tracker is not None
    ticket = await plugin.tracker(SHOP, account(lab), host).get(notice.id)
    assert ticket is not None
    assert (ticket.id, ticket.repo) == (notice.id, notice.location)
    assert plugin.notices is GitLabNotices
