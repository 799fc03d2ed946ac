"""From the configuration that people know to one run of the right pipeline, on a GitHub that remembers."""

from __future__ import annotations

import hmac
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from harken.app import App
from harken.config.loaded import Loaded
from harken.errors import Misconfigured
from harken.operate.load_and_check_configuration import load_directory
from harken.testing import VirtualClock, virtual
from harken.testing.fakes.github import GitHub, Issue
from tests.services.whole import running, started, write

SECRET = "a-webhook-secret-0123456789"
ENVIRON = {"GITHUB_TOKEN": "classic", "GITHUB_WEBHOOK_SECRET": SECRET}

POLLED = """
projects:
  my-api:
    source:
      type: GitHub
      url: https://github.com/acme/shop
    tickets:
      type: GitHub
      url: https://github.com/acme/shop
      auth: token
      base_url: {url}
    pipeline: fix-bug

    github_trigger:
      default_pipeline: fix-bug
      pipeline_from_label:
        agent-smith: fix-bug
        security-review: security-scan

    polling:
      enabled: true
      interval_seconds: 30
      jitter_percent: 15

agent:
  queue:
    max_parallel_jobs: 4       # consumer-side backpressure
    consume_block_seconds: 5
    shutdown_grace_seconds: 30
"""

PUSHED = """
trackers:
  acme:
    type: github
    organization: acme
    base_url: {url}
    webhook_secret: ${{GITHUB_WEBHOOK_SECRET}}
projects:
  shop: {{tracker: acme, resolution: {{repo: shop}}, pipeline_from_label: {{fix: fix-bug}}}}
"""

PIPELINE = """
name: {name}
steps:
  - {{id: work, action: transform, set: {{said: "{name} {{{{.trigger.event.ref}}}}"}}}}
"""


@asynccontextmanager
async def github(clock: VirtualClock) -> AsyncIterator[GitHub]:
    """All tokens are mia's, so it is leo who labels: what our own account does starts nothing."""
    hub = GitHub(clock)
    hub.repos["acme/shop"].roles["leo"] = "write"
    async with hub.serve():
        yield hub


@asynccontextmanager
async def at_work(directory: Path, clock: VirtualClock, text: str) -> AsyncIterator[tuple[App, GitHub]]:
    async with github(clock) as hub:
        flows = {name: PIPELINE.format(name=name) for name in ("fix-bug", "security-scan")}
        write(directory, text.format(url=hub.url), **flows)
        async with running(directory, clock, ENVIRON) as app:
            yield app, hub


async def runs(app: App) -> Counter[tuple[str, str]]:
    """How often each pipeline ran for each ticket."""
    found: list[Any] = (await app.operator.call("runs.list", limit=1000))["items"]
    assert {run["status"] for run in found} <= {"done"}, found
    return Counter((run["workflow"], run["event_keys"][0].partition("@")[0]) for run in found)


@virtual
async def test_a_labelled_issue_starts_one_run_of_the_right_pipeline(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        fix, scan = hub.open("agent-smith", by="leo"), hub.open("Security-Review", "bug", by="leo")
        hub.open("bug", by="leo")
        hub.open("agent-smith", pull=True, by="leo")
        for _ in range(4):
            await clock.sleep(300)
            hub.comment(fix)
        assert await runs(app) == {("fix-bug", str(fix.number)): 1, ("security-scan", str(scan.number)): 1}


@virtual
async def test_what_a_read_writes_takes_its_turn_with_everything_else(clock: VirtualClock, tmp_path: Path) -> None:
    text = """
    trackers:
      acme:
        {{type: github, project: acme/shop, base_url: "{url}", zero_match_comment: true, polling: {{enabled: true}}}}
    projects:
      shop: {{tracker: acme, resolution: {{tag: ours}}, pipeline_from_label: {{fix: fix-bug}}}}
    """
    async with at_work(tmp_path, clock, text) as (_, hub):
        await clock.sleep(60)
        for number in range(6):
            hub.open("fix", *(["ours"] if number % 2 else []), by="leo")
        await clock.sleep(900)
        writes = [seen.at for seen in hub.seen if seen.method != "GET"]
        assert sum(len(issue.comments) for issue in hub.repos["acme/shop"].issues.values()) == 6
        assert min(later - earlier for earlier, later in pairwise(writes)) >= 1.0


@virtual
async def test_the_ticket_shows_its_run_once_and_keeps_the_labels_of_people(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock, POLLED) as (_, hub):
        await clock.sleep(60)
        issue = hub.open("agent-smith", "bug", "harken:mine", by="leo")
        await clock.sleep(1_200)
        assert sorted(issue.labels) == ["agent-smith", "bug", "harken:done", "harken:mine"]
        [comment] = issue.comments
        assert "harken-receipt" in comment["body"]
        written = [seen for seen in hub.seen if seen.method in ("POST", "PATCH", "PUT", "DELETE")]
        assert 2 <= sum(f"/issues/{issue.number}/" in seen.path or "comments" in seen.path for seen in written) <= 4


@virtual
async def test_a_label_of_a_stranger_starts_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        stranger, own = hub.open("agent-smith", by="eve"), hub.open("agent-smith", by="mia")
        await clock.sleep(300)
        found = (await app.operator.call("runs.list"))["items"]
        assert {run["status"] for run in found} <= {"cancelled", "filtered"}, found
        assert "harken:done" not in [*stranger.labels, *own.labels]


@virtual
async def test_a_person_runs_a_ticket_again_by_taking_our_label_off(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("agent-smith", by="leo")
        await clock.sleep(600)
        hub.unlabel(issue, "harken:done", by="leo")
        await clock.sleep(600)
        assert await runs(app) == {("fix-bug", str(issue.number)): 2}
        assert "harken:done" in issue.labels


@virtual
async def test_two_labels_start_one_pipeline_the_first_of_the_map(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        both = hub.open("security-review", "agent-smith", by="leo")
        await clock.sleep(600)
        assert await runs(app) == {("fix-bug", str(both.number)): 1}


@virtual
async def test_tickets_that_were_labelled_before_the_start_run_too(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock) as hub:
        old = hub.open("agent-smith", age=86_400, by="leo")
        write(tmp_path, POLLED.format(url=hub.url), **{"fix-bug": PIPELINE.format(name="fix-bug")})
        (tmp_path / "workflows/security-scan.yaml").write_text(PIPELINE.format(name="security-scan"))
        async with running(tmp_path, clock, ENVIRON) as app:
            await clock.sleep(120)
            assert await runs(app) == {("fix-bug", str(old.number)): 1}


@virtual
async def test_a_first_read_that_would_claim_too_many_is_held_for_a_person(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock) as hub:
        for _ in range(4):
            hub.open("fix", age=86_400, by="leo")
        text = PUSHED.replace("type: github", "type: github\n    polling: {{enabled: true}}\n    flood_limit: 3")
        write(tmp_path, text.format(url=hub.url), **{"fix-bug": PIPELINE.format(name="fix-bug")})
        async with running(tmp_path, clock, ENVIRON) as app:
            await clock.sleep(300)
            held: list[Any] = (await app.operator.call("runs.list"))["items"]
            assert [(run["status"], run["hold"]) for run in held] == [("held", "flood")] * 4
            hub.open("fix", by="leo")
            await clock.sleep(300)
            assert sum(run["status"] == "done" for run in (await app.operator.call("runs.list"))["items"]) == 1
            await app.operator.call("triggers.release", name="acme/shop")
            await clock.sleep(60)
            assert sum((await runs(app)).values()) == 5


@virtual
async def test_as_many_as_the_limit_are_let_go(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock) as hub:
        for _ in range(3):
            hub.open("fix", age=86_400, by="leo")
        text = PUSHED.replace("type: github", "type: github\n    polling: {{enabled: true}}\n    flood_limit: 3")
        write(tmp_path, text.format(url=hub.url), **{"fix-bug": PIPELINE.format(name="fix-bug")})
        async with running(tmp_path, clock, ENVIRON) as app:
            await clock.sleep(120)
            assert sum((await runs(app)).values()) == 3


async def post(app: App, path: str, issue: Issue, *, secret: str = SECRET, event: str = "issues") -> tuple[int, Any]:
    """Send a webhook as GitHub does, to the door that webhooks have."""
    told = {"action": "labeled", "issue": issue.to_json(), "repository": {"full_name": issue.repo, "id": 1}}
    body = json.dumps(told).encode()
    signature = f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}"
    headers = {"content-type": "application/json", "x-github-event": event, "x-hub-signature-256": signature}
    scope = {
        "method": "POST",
        "path": f"/webhooks/{path}",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        sent.append(message)

    await app.intake.webhooks(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@virtual
async def test_webhook_and_poll_together_start_one_run(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, PUSHED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("fix", by="leo")
        assert await post(app, "github/acme", issue) == (202, {"accepted": 1, "duplicate": 0, "outcome": "claimed"})
        assert (await post(app, "github/acme", issue))[0] == 200
        await clock.sleep(1_000)
        assert await runs(app) == {("fix-bug", str(issue.number)): 1}


@virtual
async def test_a_webhook_that_got_lost_is_found_by_the_sweep(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, PUSHED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("fix", by="leo")
        await clock.sleep(600)
        assert await runs(app) == {}
        await clock.sleep(400)
        assert await runs(app) == {("fix-bug", str(issue.number)): 1}


@virtual
async def test_the_only_tracker_of_a_platform_has_the_short_address_too(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, PUSHED) as (app, hub):
        issue = hub.open("fix", by="leo")
        assert (await post(app, "github", issue))[0] == 202
        assert (await post(app, "gitlab", issue))[0] == 404


@virtual
async def test_of_two_trackers_of_a_platform_each_has_its_own_address_only(clock: VirtualClock, tmp_path: Path) -> None:
    second = """
  other:
    type: github
    project: acme/docs
    base_url: {url}
    webhook_secret: ${{GITHUB_WEBHOOK_SECRET}}
projects:
  docs: {{tracker: other, pipeline_from_label: {{fix: fix-bug}}}}"""
    async with at_work(tmp_path, clock, PUSHED.replace("\nprojects:", second)) as (app, hub):
        issue = hub.open("fix", by="leo")
        assert (await post(app, "github", issue))[0] == 404
        assert (await post(app, "github/acme", issue))[0] == 202
        # what is of no project of this tracker tells it nothing
        assert await post(app, "github/other", issue) == (200, {"accepted": 0, "duplicate": 0})


@virtual
async def test_a_wrong_signature_is_refused(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, PUSHED) as (app, hub):
        await clock.sleep(60)
        status, answer = await post(app, "github/acme", hub.open("fix", by="leo"), secret="another")
        assert status == 401
        assert SECRET not in str(answer)
        await clock.sleep(60)
        assert await runs(app) == {}


@virtual
async def test_a_doorbell_only_makes_us_read(clock: VirtualClock, tmp_path: Path) -> None:
    text = PUSHED.replace("type: github", "type: github\n    doorbell: true")
    async with at_work(tmp_path, clock, text) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("fix", by="leo")
        assert await post(app, "github/acme", issue) == (200, {"accepted": 0, "duplicate": 0})
        await clock.sleep(30)
        assert await runs(app) == {("fix-bug", str(issue.number)): 1}


@virtual
async def test_what_nobody_signed_is_not_believed_and_makes_us_read(clock: VirtualClock, tmp_path: Path) -> None:
    text = PUSHED.replace("webhook_secret: ${{GITHUB_WEBHOOK_SECRET}}", "allow_unsigned: true")
    async with github(clock) as hub:
        write(tmp_path, text.format(url=hub.url), **{"fix-bug": PIPELINE.format(name="fix-bug")})
        loaded = load_directory(tmp_path, ENVIRON)
        assert [finding.code for finding in loaded.findings] == ["trust"]
        async with started(replace(loaded, findings=()), clock) as app:
            await clock.sleep(60)
            issue = hub.open("fix", by="leo")
            forged = msgspec.structs.replace(hub.open("bug", by="leo"), labels=["fix"])
            assert await post(app, "github/acme", forged, secret="") == (200, {"accepted": 0, "duplicate": 0})
            await clock.sleep(30)
            assert await runs(app) == {("fix-bug", str(issue.number)): 1}


async def ready_events(app: App) -> list[Any]:
    """The events of tickets that start a pipeline."""
    found: list[Any] = (await app.operator.call("events.list"))["items"]
    return [event for event in found if event["type"] == "ticket.ready"]


@virtual
async def test_our_secrets_are_neither_in_events_nor_in_errors(clock: VirtualClock, tmp_path: Path) -> None:
    token = "ghp_A0b1C2d3E4f5G6h7I8j9"
    async with github(clock) as hub:
        hub.tokens[token] = "repo"
        write(tmp_path, POLLED.format(url=hub.url), **{"fix-bug": PIPELINE.format(name="fix-bug")})
        (tmp_path / "workflows/security-scan.yaml").write_text(PIPELINE.format(name="security-scan"))
        async with running(tmp_path, clock, {"GITHUB_TOKEN": token}) as app:
            hub.open("agent-smith", title=f"it says {token}", text=f"and {token}", by="leo")
            await clock.sleep(120)
            [event] = await ready_events(app)
            shown = await app.operator.call("events.show", id=event["id"])
            assert token not in json.dumps(shown, default=str)
            [tracker] = app.factory.trackers("my-api").values()
            [ticket] = (await tracker.list_labelled(["agent-smith"], closed=False)).tickets
            assert ticket.title == "it says ***"
            assert token not in repr(await tracker.get(ticket.id))


@pytest.mark.parametrize("enabled", ["true", "false"])
@virtual
async def test_polling_is_switched_off_and_on_while_it_runs(
    clock: VirtualClock, tmp_path: Path, enabled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    text = PUSHED.replace("type: github", f"type: github\n    polling: {{{{enabled: {enabled}}}}}")
    async with at_work(tmp_path, clock, text) as (app, hub):
        await clock.sleep(60)
        other = "false" if enabled == "true" else "true"
        path = tmp_path / "harken.yaml"
        path.write_text(path.read_text().replace(f"enabled: {enabled}", f"enabled: {other}"))
        answer = await app.controller.reload()
        assert list(answer["replace"]) == ["feed:tracker/acme"]
        # the read that was due is still made
        await clock.sleep(90)
        issue = hub.open("fix", by="leo")
        await clock.sleep(120)
        assert await runs(app) == ({("fix-bug", str(issue.number)): 1} if other == "true" else {})
        await clock.sleep(900)
        assert await runs(app) == {("fix-bug", str(issue.number)): 1}


@virtual
async def test_each_tracker_is_a_subsystem_of_the_health_page(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        assert states(app)["tracker/my-api"] == ("up", "")
        hub.tokens.clear()
        await clock.sleep(120)
        state, reason = states(app)["tracker/my-api"]
        assert state == "down"
        assert "401" in reason
        assert "classic" not in reason


def states(app: App) -> dict[str, tuple[str, str]]:
    """State and reason of each subsystem."""
    return {part["name"]: (part["state"], part["reason"]) for part in app._telemetry.health()["subsystems"]}


@virtual
async def test_a_tracker_that_is_not_polled_is_up(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, PUSHED) as (app, _):
        await clock.sleep(60)
        assert states(app)["tracker/acme"] == ("up", "it is not polled, but read every 15 minutes")


@virtual
async def test_status_shows_how_far_a_tracker_was_read(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        [before] = (await app.operator.call("status"))["trackers"]
        hub.open("agent-smith", by="leo")
        await clock.sleep(600)
        [after] = (await app.operator.call("status"))["trackers"]
        assert (before["name"], before["kind"], before["polled"], before["webhook"]) == (
            "my-api",
            "github",
            True,
            False,
        )
        assert before["mark"] < after["mark"] <= clock.now().isoformat()
        assert after["swept_at"]
        assert after["trouble"] == ""


@virtual
async def test_each_cycle_is_one_line_of_the_log(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (_, hub):
        await clock.sleep(60)
        hub.open("agent-smith", by="leo")
        with capture_logs() as lines:
            await clock.sleep(300)
    ticks = [line for line in lines if line["event"] == "tick"]
    assert 8 <= len(ticks) <= 12
    assert {(line["log_level"], line["tracker"]) for line in ticks} == {("info", "my-api")}
    assert sum(line["ready"] for line in ticks) == 1


@virtual
async def test_triggers_of_tickets_are_listed_shown_tried_and_explained(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        hub.open("security-review", by="leo")
        await clock.sleep(60)
        [row] = (await app.operator.call("triggers.list", type="ticket"))["items"]
        assert (row["name"], row["workflow"], row["status"]) == ("my-api/my-api", "fix-bug, security-scan", "healthy")
        shown = await app.operator.call("triggers.show", name="my-api/my-api")
        assert set(shown["pipelines"]) == {"fix-bug", "security-scan"}
        assert shown["fired"] == 1
        hub.open("agent-smith", by="leo")
        tried = await app.operator.call("triggers.test", name="my-api/my-api")
        assert tried["would_fire"] == 1
        flows = {one["name"]: one["triggers"] for one in (await app.operator.call("workflows.list"))["items"]}
        assert flows == {"fix-bug": ["my-api/my-api"], "security-scan": ["my-api/my-api"]}
        checks = {one["name"]: one["state"] for one in (await app.operator.call("doctor"))["items"]}
        assert (checks["config"], checks["triggers"], checks["feeds"]) == ("ok", "ok", "ok")


@virtual
async def test_a_replayed_ticket_starts_its_own_pipeline(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        await clock.sleep(60)
        issue = hub.open("security-review", by="leo")
        await clock.sleep(60)
        [event] = await ready_events(app)
        await app.operator.call("events.replay", id=event["id"])
        await clock.sleep(60)
        found = (await app.operator.call("runs.list"))["items"]
        assert [run["workflow"] for run in found] == ["security-scan"] * 2
        assert "harken:done" in issue.labels


@virtual
async def test_a_refused_project_is_listed_with_its_reason(clock: VirtualClock, tmp_path: Path) -> None:
    text = PUSHED + "  bad: {{tracker: acme, resolution: {{repo: bad}}, pipeline: nope}}\n"
    async with github(clock) as hub:
        write(tmp_path, text.format(url=hub.url), **{"fix-bug": PIPELINE.format(name="fix-bug")})
        loaded = load_directory(tmp_path, ENVIRON)
        async with started(replace(loaded, findings=()), clock) as app:
            rows = {row["name"]: row for row in (await app.operator.call("triggers.list"))["items"]}
            assert (rows["bad"]["type"], rows["bad"]["status"]) == ("ticket", "refused")
            assert "there is no workflow 'nope'" in rows["bad"]["reason"]
            assert rows["acme/shop"]["status"] != "refused"


@virtual
async def test_without_a_key_to_sign_with_the_health_page_says_so_until_there_is_one(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = [Misconfigured("the key file cannot be written", fix="Set HARKEN_ENCRYPTION_KEY")]

    def key(loaded: Loaded) -> bytes:
        if refused:
            raise refused[0]
        return b"k" * 32

    monkeypatch.setattr("harken.app.ticket_and_run_sync.signing_key", key)
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        issue = hub.open("agent-smith", by="leo")
        await clock.sleep(90)
        reason = "nothing is written on tickets: the key file cannot be written"
        assert states(app)["tracker/my-api"] == ("degraded", reason)
        refused.clear()
        await clock.sleep(180)
        assert states(app)["tracker/my-api"] == ("up", "")
        assert "harken:done" in issue.labels


@virtual
async def test_after_the_store_was_lost_adopted_tickets_do_not_run_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with github(clock) as hub:
        write(tmp_path, PUSHED.format(url=hub.url), **{"fix-bug": PIPELINE.format(name="fix-bug")})
        async with running(tmp_path, clock, ENVIRON) as app:
            await clock.sleep(60)
            issue = hub.open("fix", by="leo")
            await post(app, "github", issue)
            await clock.sleep(300)
            assert "harken:done" in issue.labels
        for file in tmp_path.glob("harken.db*"):
            if file.is_file():
                file.unlink()
        async with running(tmp_path, clock, ENVIRON) as app:
            await app.controller.adopt_tickets("acme")
            await clock.sleep(1_000)
            assert await runs(app) == {}


@virtual
async def test_trackers_that_are_added_later_are_shown_too(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    async with github(clock) as hub:
        write(tmp_path, "log: {level: info}", **{"fix-bug": PIPELINE.format(name="fix-bug")})
        async with running(tmp_path, clock, ENVIRON) as app:
            await clock.sleep(60)
            (tmp_path / "harken.yaml").write_text(PUSHED.format(url=hub.url))
            await app.controller.reload()
            issue = hub.open("fix", by="leo")
            await clock.sleep(300)
            assert "harken:done" in issue.labels


TWO_REPOSITORIES = """
trackers:
  hub: {{type: github, organization: acme, base_url: "{url}", polling: {{enabled: true, interval_seconds: 30}}}}
projects:
  shop: {{tracker: hub, resolution: {{repo: shop}}, pipeline_from_label: {{fix: fix-bug}}}}
  docs: {{tracker: hub, resolution: {{repo: docs}}, pipeline_from_label: {{fix: fix-bug}}}}
"""


@virtual
async def test_a_repository_that_cannot_be_read_is_shown_while_the_others_work(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with at_work(tmp_path, clock, TWO_REPOSITORIES) as (app, hub):
        docs = hub.add_repo("acme/docs")
        docs.roles["leo"] = "write"
        await clock.sleep(120)
        assert states(app)["tracker/hub"] == ("up", "")
        docs.hidden = True
        since = clock.now()
        shop = hub.open("fix", by="leo")
        with capture_logs() as lines:
            await clock.sleep(600)
        assert await runs(app) == {("fix-bug", str(shop.number)): 1}
        assert [line["location"] for line in lines if line["event"] == "tickets.unread"] == ["acme/docs"]
        state, reason = states(app)["tracker/hub"]
        assert state == "degraded"
        assert reason.startswith("acme/docs is not read (docs): 127.0.0.1")
        assert "answered 404 to the issues of acme/docs" in reason
        answer = await app.operator.call("status")
        [tracker] = answer["trackers"]
        assert tracker["trouble"] == reason
        [row] = answer["attention"]
        assert (row["name"], row["status"], row["needs_person"]) == ("hub/docs", "degraded", True)
        assert row["reason"].startswith(f"acme/docs is not read since {since:%Y-%m-%d %H:%M}")
        assert answer["triggers"] == {"healthy": 1, "degraded": 1}
        [check] = [one for one in (await app.operator.call("doctor"))["items"] if one["name"] == "trackers"]
        assert (check["state"], check["fix"]) == ("warn", "See: harken trackers test hub")
        [listed] = (await app.operator.call("trackers.list"))["items"]
        assert listed["message"] == reason
        docs.hidden = False
        late = hub.open("fix", by="leo", repo="acme/docs")
        with capture_logs() as lines:
            await clock.sleep(120)
        assert [line["location"] for line in lines if line["event"] == "tickets.read_again"] == ["acme/docs"]
        assert states(app)["tracker/hub"] == ("up", "")
        assert (await app.operator.call("status"))["attention"] == []
        assert late.number == 1
        assert sum((await runs(app)).values()) == 2


@virtual
async def test_a_tracker_of_which_nothing_can_be_read_is_failing(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, TWO_REPOSITORIES) as (app, hub):
        hub.add_repo("acme/docs")
        await clock.sleep(120)
        hub.repos["acme/docs"].hidden = hub.repos["acme/shop"].hidden = True
        await clock.sleep(120)
        assert states(app)["tracker/hub"][0] == "down"
        assert {row["status"] for row in (await app.operator.call("status"))["attention"]} == {"paused"}
        hub.repos["acme/docs"].hidden = hub.repos["acme/shop"].hidden = False
        issue = hub.open("fix", by="leo")
        await clock.sleep(3_600)
        assert await runs(app) == {("fix-bug", str(issue.number)): 1}
        assert states(app)["tracker/hub"] == ("up", "")


@virtual
async def test_polls_of_a_quiet_tracker_cost_nothing(clock: VirtualClock, tmp_path: Path) -> None:
    async with at_work(tmp_path, clock, POLLED) as (app, hub):
        hub.open("bug", age=86_400, by="leo")
        issue = hub.open("agent-smith", by="leo")
        await clock.sleep(3_600)
        before, asked = hub.remaining, len(hub.seen)
        await clock.sleep(3_600)
        assert hub.remaining == before
        assert len(hub.seen) - asked > 300
        assert await runs(app) == {("fix-bug", str(issue.number)): 1}


@virtual
async def test_a_repository_that_cannot_be_read_is_tried_soon_also_without_polling(
    clock: VirtualClock, tmp_path: Path
) -> None:
    text = TWO_REPOSITORIES.replace(
        "polling: {{enabled: true, interval_seconds: 30}}", "webhook_secret: 0123456789abcdef"
    )
    async with at_work(tmp_path, clock, text) as (app, hub):
        await clock.sleep(60)
        assert states(app)["tracker/hub"][0] == "degraded"
        await clock.sleep(240)
        hub.add_repo("acme/docs")
        await clock.sleep(120)
        assert states(app)["tracker/hub"][0] == "up"
