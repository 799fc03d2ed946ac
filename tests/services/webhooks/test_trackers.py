"""Webhooks of GitHub, GitLab, Jira and Azure DevOps."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

import pytest
from gidgethub import ValidationFailure
from gidgethub.sansio import validate_event
from standardwebhooks.webhooks import Webhook

from harken.errors import Malformed, Unauthorized
from harken.testing import START
from tests.downloads.node_programs import recordings
from tests.services.webhooks.contract import OTHER, SECRET, ReceiverContract, SignedContract

RECORDED = Path(__file__).parents[1] / "recorded" / "github_webhooks.json"


def digest(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def deliveries() -> list[dict[str, Any]]:
    return [one for one in json.loads(RECORDED.read_text())["deliveries"] if one["event"] != "ping"]


class TestGitHub(SignedContract):
    kind = "github"
    proof = "x-hub-signature-256"
    message: ClassVar[Mapping[str, Any]] = {
        "action": "labeled",
        "issue": {"number": 7, "id": 70, "updated_at": "2026-03-01T10:00:00Z"},
        "label": {"name": "bug"},
        "repository": {"full_name": "acme/shop"},
    }

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        event = {"x-github-event": "issues", "x-github-delivery": "d-1"}
        return {**event, self.proof: f"sha256={digest(body, secret)}"}

    async def test_it_names_what_happened_to_what_and_when(self):
        (event,) = await self.receive(self.headers(self.body))
        assert (event.type, event.subject, event.key) == ("github.issues.labeled", "acme/shop#7", "d-1")
        assert event.occurred_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
        assert event.raw == self.body

    async def test_a_form_is_understood(self):
        body = urlencode({"payload": self.body.decode()}).encode()
        headers = self.headers(body) | {"content-type": "application/x-www-form-urlencoded"}
        (event,) = await self.receive(headers, body)
        assert event.data == self.message

    async def test_a_ping_is_no_event(self):
        assert await self.receive({**self.headers(b"{}"), "x-github-event": "ping"}, b"{}") == []

    @pytest.mark.parametrize("number", range(len(deliveries())))
    async def test_recorded_webhooks_have_a_subject_and_a_type(self, number: int):
        sent = deliveries()[number]
        body = json.dumps(sent["payload"]).encode()
        (event,) = await self.receive({**self.headers(body), "x-github-event": sent["event"]}, body)
        assert event.type.startswith(f"github.{sent['event']}")
        assert event.subject.startswith(sent["payload"]["repository"]["full_name"])

    async def test_every_example_of_github_goes_through_and_has_a_stable_name(self):
        found = json.loads((recordings("@octokit/webhooks-examples") / "api.github.com/index.json").read_bytes())
        sent = [(one["name"], example) for one in found for example in one["examples"]]
        seen = 0
        for name, message in sent:
            body = json.dumps(message).encode()
            headers = {**self.headers(body), "x-github-event": name}
            events = await self.receive(headers, body)
            assert events == await self.receive(headers, body)
            assert [event.type.split(".")[:2] for event in events] == [["github", name]][: len(events)]
            seen += len(events)
        assert seen == len([name for name, _ in sent if name != "ping"]) > 300

    @pytest.mark.parametrize("change", ["", "secret", "truncated", "tampered", "empty"])
    async def test_gidgethub_agrees(self, change: str):
        signature = f"sha256={digest(self.body, OTHER if change == 'secret' else SECRET)}"
        signature = signature[:-2] if change == "truncated" else "" if change == "empty" else signature
        body = self.body + b" " if change == "tampered" else self.body
        theirs = ours = True
        try:
            validate_event(body, signature=signature, secret=SECRET)
        except ValidationFailure:
            theirs = False
        try:
            await self.receive({**self.headers(body), self.proof: signature}, body)
        except Unauthorized:
            ours = False
        assert ours == theirs == (change == "")


class TestGitLab(ReceiverContract):
    kind = "gitlab"
    proof = "x-gitlab-token"
    message: ClassVar[Mapping[str, Any]] = {
        "object_kind": "merge_request",
        "project": {"path_with_namespace": "acme/shop"},
        "object_attributes": {"iid": 3, "id": 99, "action": "open", "updated_at": "2026-03-01 10:00:00 UTC"},
    }

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        # headers arrive as latin-1
        return {self.proof: secret.encode().decode("latin-1"), "idempotency-key": "i-1", "x-gitlab-event-uuid": "u"}

    async def test_it_names_what_happened_to_what_and_when(self):
        (event,) = await self.receive(self.headers(self.body))
        assert (event.type, event.subject, event.key) == ("gitlab.merge_request.open", "acme/shop!3", "i-1")
        assert event.occurred_at == datetime(2026, 3, 1, 10, tzinfo=UTC)

    async def test_other_things_are_named_too(self):
        push = {"object_kind": "push", "ref": "refs/heads/main", "project": {"path_with_namespace": "acme/shop"}}
        note = {**self.message, "object_kind": "note", "merge_request": {"iid": 3}}
        bodies = [json.dumps(one).encode() for one in (push, note)]
        found = [(await self.receive(self.headers(body), body))[0] for body in bodies]
        assert [event.subject for event in found] == ["acme/shop@refs/heads/main", "acme/shop!3"]

    async def test_to_a_signing_token_the_plain_token_is_no_proof(self):
        token = "whsec_" + base64.b64encode(b"k" * 32).decode()
        headers = {
            "webhook-id": "w-1",
            "webhook-timestamp": str(int(START.timestamp())),
            "webhook-signature": Webhook(token).sign("w-1", START, self.body.decode()),
        }
        (event,) = await self.receive(headers, secret=token)
        assert event.key == "w-1"
        with pytest.raises(Unauthorized):
            await self.receive({"x-gitlab-token": token}, secret=token)


class TestJira(SignedContract):
    kind = "jira"
    proof = "x-hub-signature"
    message: ClassVar[Mapping[str, Any]] = {
        "webhookEvent": "jira:issue_updated",
        "timestamp": 1772359200000,
        "issue": {"id": "10002", "key": "SHOP-7"},
    }

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        return {self.proof: f"sha256={digest(body, secret)}", "x-atlassian-webhook-identifier": "j-1"}

    async def test_it_names_what_happened_to_what_and_when(self):
        (event,) = await self.receive(self.headers(self.body))
        assert (event.type, event.subject, event.key) == ("jira.issue_updated", "10002", "j-1")
        assert event.occurred_at == datetime(2026, 3, 1, 10, tzinfo=UTC)

    async def test_an_old_data_center_has_the_secret_as_password(self):
        proof = {"authorization": "Basic " + base64.b64encode(f"jira:{SECRET}".encode()).decode()}
        assert await self.receive(proof)
        with pytest.raises(Unauthorized):
            await self.receive({**proof, self.proof: "sha256=00"})


class TestAzureDevOps(ReceiverContract):
    kind = "azure_devops"
    proof = "authorization"
    message: ClassVar[Mapping[str, Any]] = {
        "id": "03c164c2-8912-4d5e-8009-3707d5f83734",
        "eventType": "workitem.updated",
        "createdDate": "2026-03-01T10:00:00.000Z",
        "resource": {"id": 2, "workItemId": 5},
    }

    def headers(self, body: bytes, secret: str = SECRET, at: datetime = START) -> dict[str, str]:
        return {self.proof: "Basic " + base64.b64encode(f"hook:{secret}".encode()).decode()}

    async def test_it_names_what_happened_to_what_and_when(self):
        (event,) = await self.receive(self.headers(self.body))
        assert (event.type, event.subject) == ("azure_devops.workitem.updated", "workitem/5")
        assert event.key == self.message["id"]
        assert event.occurred_at == datetime(2026, 3, 1, 10, tzinfo=UTC)

    async def test_a_message_without_an_id_is_malformed(self):
        with pytest.raises(Malformed):
            await self.receive(self.headers(b"{}"), b"{}")
