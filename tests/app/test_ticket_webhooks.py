"""Webhooks of the four platforms at their doors: who is let in, what is answered, and what the audit log keeps."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

from harken.app import App
from harken.services.jira.issue_to_ticket import FIELDS
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.jira import TOKEN, Jira
from tests.services.whole import running, write

SECRET = "a-webhook-secret-0123456789"
KEY = b"0123456789abcdef0123456789abcdef"

MAIN = """
trackers:
  hub: {{type: github, organization: acme, base_url: "{hub}", token: classic, webhook_secret: {secret}}}
  lab: {{type: gitlab, project: acme/web/shop, base_url: "{lab}", token: glpat-full, webhook_secret: {signing}}}
  board:
    {{type: azure_devops, organization: acme, project: Shop, base_url: "{board}", token: coder,
      webhook_secret: {secret}}}
  desk:
    {{type: jira, project: TEAM, base_url: "{desk}", email: me@example.com, token: {token}, deployment: cloud,
      webhook_secret: {secret}}}
projects:
  one: {{tracker: hub, resolution: {{repo: shop}}, pipeline_from_label: {{fix: fix-bug}}}}
  two: {{tracker: lab, pipeline_from_label: {{fix: fix-bug}}}}
  three: {{tracker: board, pipeline_from_label: {{fix: fix-bug}}}}
  four: {{tracker: desk, pipeline_from_label: {{fix: fix-bug}}}}
"""
FLOW = "name: fix-bug\nsteps:\n  - {id: work, action: transform, set: {said: done}}\n"


class Platforms:
    """A labelled ticket on each of the four, what its webhook says, and how that is signed."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.hub, self.lab, self.board = GitHub(clock), GitLab(clock), AzureDevOps(clock)
        self.desk = Jira(clock, cloud=True)

    @property
    def urls(self) -> dict[str, str]:
        return {name: getattr(self, name).url for name in ("hub", "lab", "board", "desk")}

    def open(self) -> dict[str, bytes]:
        """The bodies of webhooks about new tickets, by the path that they are sent to."""
        issue = self.hub.open("fix", by="zoe").to_json()
        noted = self.lab.open("fix").to_json() | {"action": "update"}
        item = self.board.create("fix").to_json()
        found = self.desk.issue(self.desk.create(labels=("fix",)))
        told: dict[str, Any] = {
            "github/hub": {"action": "labeled", "issue": issue, "repository": {"full_name": "acme/shop"}},
            "gitlab/lab": {
                "object_kind": "issue",
                "object_attributes": noted,
                "project": {"path_with_namespace": "acme/web/shop"},
            },
            "azure_devops/board": {"eventType": "workitem.updated", "resource": {"id": 2, "workItemId": item["id"]}},
            "jira/desk": {"webhookEvent": "jira:issue_updated", "issue": self.desk.json(found, FIELDS, False)},
        }
        return {path: json.dumps(body).encode() for path, body in told.items()}

    def sign(self, path: str, body: bytes, *, age: float = 0.0, right: bool = True) -> dict[str, str]:
        secret = SECRET if right else "another"
        digest = hmac.digest(secret.encode(), body, "sha256").hex()
        if path.startswith("github"):
            return {"x-github-event": "issues", "x-hub-signature-256": f"sha256={digest}"}
        if path.startswith("jira"):
            return {"x-hub-signature": f"sha256={digest}"}
        if path.startswith("azure"):
            return {"authorization": f"Basic {base64.b64encode(f'hook:{secret}'.encode()).decode()}"}
        stamp = str(int(self.clock.time() - age))
        made = hmac.digest(KEY if right else KEY[::-1], b".".join((b"msg_1", stamp.encode(), body)), "sha256")
        signature = f"v1,{base64.b64encode(made).decode()}"
        return {"webhook-id": "msg_1", "webhook-timestamp": stamp, "webhook-signature": signature}


@asynccontextmanager
async def at_work(directory: Path, clock: VirtualClock) -> AsyncIterator[tuple[App, Platforms]]:
    them = Platforms(clock)
    async with AsyncExitStack() as stack:
        for fake in (them.hub, them.lab, them.board, them.desk):
            await stack.enter_async_context(fake.serve())
        signing = f"whsec_{base64.b64encode(KEY).decode()}"
        write(
            directory,
            MAIN.format(secret=SECRET, signing=signing, token=TOKEN, **them.urls),
            **{"fix-bug": FLOW},
        )
        async with running(directory, clock) as app:
            await clock.sleep(30)
            yield app, them


async def post(app: App, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any]:
    scope = {
        "method": "POST",
        "path": f"/webhooks/{path}",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("203.0.113.7", 1),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    with structlog.testing.capture_logs():
        await app.intake.webhooks(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@virtual
async def test_a_labelled_ticket_of_each_platform_is_accepted_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        bodies = them.open()
        first = {path: await post(app, path, body, them.sign(path, body)) for path, body in bodies.items()}
        claimed = {"accepted": 1, "duplicate": 0, "outcome": "claimed"}
        assert first == {path: (202, claimed) for path in bodies}
        for _ in range(3):
            for path, body in bodies.items():
                # the ticket shows our label by now, which is news and no reason to run again
                status, answer = await post(app, path, body, them.sign(path, body))
                assert (status, answer["outcome"]) == (200, "already_claimed")
            await clock.sleep(60)
        runs: list[Any] = (await app.operator.call("runs.list"))["items"]
        assert sorted(run["trigger"] for run in runs) == ["board/three", "desk/four", "hub/one", "lab/two"]


Change = Callable[[Platforms, str, bytes], dict[str, str]]
REFUSED: dict[str, Change] = {
    "missing": lambda them, path, body: {"x-github-event": "issues"},
    "wrong": lambda them, path, body: them.sign(path, body, right=False),
    "truncated": lambda them, path, body: {name: value[:-3] for name, value in them.sign(path, body).items()},
    "replayed": lambda them, path, body: them.sign(path, body, age=301),
}


@pytest.mark.parametrize("name", REFUSED)
@virtual
async def test_what_is_not_proven_is_answered_401_and_leaves_one_line_in_the_audit_log(
    clock: VirtualClock, tmp_path: Path, name: str
) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        bodies = them.open()
        # only a signing token signs the time too
        paths = [path for path in bodies if name != "replayed" or path == "gitlab/lab"]
        for path in paths:
            for _ in range(3):
                headers = REFUSED[name](them, path, bodies[path])
                assert (await post(app, path, bodies[path], headers))[0] == 401
        await clock.sleep(120)
        rows = [row for row in (await app.store.audits()).items if row["did"] == "webhook.refused"]
        assert sorted((row["what"], row["detail"]["number"]) for row in rows) == [(path, 3) for path in sorted(paths)]
        assert not any(text in str(rows) for text in (SECRET, "sha256", "whsec_", "Basic"))
        assert (await app.operator.call("runs.list"))["items"] == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"issue": {}}', b"[" * 50_000, b"\xff" * 10])
@virtual
async def test_verified_rubbish_is_no_failure_of_the_hook(clock: VirtualClock, tmp_path: Path, body: bytes) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        for path in them.open():
            assert (await post(app, path, body, them.sign(path, body)))[0] == 200


@virtual
async def test_a_long_ticket_is_accepted(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock) as (app, them):
        bodies = them.open()
        for path, body in bodies.items():
            long = json.dumps(json.loads(body) | {"pad": "x" * 3_000_000}).encode()
            assert (await post(app, path, long, them.sign(path, long)))[0] == 202
