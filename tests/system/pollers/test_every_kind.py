"""A pollers.yaml with every kind loads, and each default that is documented is the one a job runs with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harken.config.loaded import Loaded
from harken.operate.load_and_check_configuration import load_directory
from harken.services import registry
from tests.docs.test_examples import ENVIRON
from tests.system.pollers.job_files import job, jobs, load

EXAMPLE = Path(__file__).parents[3] / "examples" / "pollers"
MORE = {
    "WHATSAPP_TOKEN": "not-a-token-1",
    "WHATSAPP_PHONE_NUMBER_ID": "123456789",
    "IMAP_PASSWORD": "not-a-password",
}
ACCOUNTS = """\
integrations:
  telegram: {kind: telegram, token: "123456:ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghi"}
  google:
    kind: google
    client_id: 1.apps.googleusercontent.com
    client_secret: not-a-secret
    refresh_token: 1//not-a-token
"""
# what SPEC B says of each kind
DEFAULTS: dict[str, dict[str, Any]] = {
    "gmail": {
        "max_per_tick": 20,
        "dispatch_delay_ms": 1_000,
        "sender_allowlist": [],
        "extract": {},
        "require_fields": [],
        "mark_read_on_dispatch": True,
        "first": "all",
    },
    "rss": {"max_per_tick": 5, "message_template": "{title}\n{link}", "first": "baseline"},
    "webhook_poll": {
        "method": "GET",
        "headers": {},
        "body": None,
        "items_path": "",
        "id_field": "id",
        "max_per_tick": 20,
        "message_template": "{json}",
        "first": "baseline",
        "allow_private_networks": False,
    },
    "google_calendar": {"calendar_id": "primary", "skip_cancelled": True, "on_expired": "pause", "first": "baseline"},
}
LEAST = {"rss": "feed_url: 'https://x.y/z', ", "webhook_poll": "url: 'https://x.y/z', "}


@pytest.fixture(scope="module")
def example() -> Loaded:
    return load_directory(EXAMPLE, ENVIRON | MORE)


def test_the_example_loads_without_a_complaint(example: Loaded) -> None:
    assert [str(finding) for finding in example.findings] == []
    assert len(example.jobs) == 14


def test_the_example_has_every_kind_that_is_not_a_workflow_s_own(example: Loaded) -> None:
    kinds = {kind for kind, plugin in registry().items() if plugin.source is not None}
    missing = kinds - {registry()[found.kind].kind for found in example.jobs.values()}
    assert missing == {"cron", "datadog", "files", "gcs", "jira", "pagerduty", "s3", "slack"}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_what_a_job_leaves_out_has_the_documented_default(kind: str, tmp_path: Path) -> None:
    config = f"{{{LEAST.get(kind, '')}deliver: {{channel: telegram, to: '1'}}}}"
    loaded = load(tmp_path, main=ACCOUNTS, pollers=jobs(job(kind=kind, config=config)))
    shown = loaded.jobs["blog"].settings["config"]
    assert {name: shown[name] for name in DEFAULTS[kind]} == DEFAULTS[kind]


def test_what_holds_for_all_jobs_has_the_documented_default(tmp_path: Path) -> None:
    settings = load(tmp_path, pollers=jobs(job())).pollers
    assert settings is not None
    assert (settings.default_jitter_ms, settings.lease_ttl_factor) == (5_000, 2.0)
    assert (settings.failure_alert_cooldown_secs, settings.breaker_threshold) == (3_600.0, 5)


def test_no_secret_is_in_what_a_job_shows(example: Loaded) -> None:
    text = repr([found.settings for found in example.jobs.values()])
    assert [value for value in (ENVIRON | MORE).values() if value.startswith("not-a") and value in text] == []


class TestOlderJobs:
    LEGACY = """\
gmail_poller:
  jobs:
    - name: leads
      query: "is:unread label:lead"
      forward_to_subject: plugin.outbound.telegram.default
      forward_to: "42"
      message_template: "{snippet}"
"""

    def test_they_run_with_a_warning_that_names_them(self, tmp_path: Path) -> None:
        tmp_path.joinpath("gmail-poller.yaml").write_text(self.LEGACY)
        loaded = load(tmp_path, main=ACCOUNTS)
        assert (loaded.findings[0].code, {found.severity for found in loaded.findings}) == ("deprecated", {"warning"})
        [(name, found)] = loaded.jobs.items()
        assert name in loaded.findings[0].message
        assert (found.kind, found.deliver.to, loaded.pollers is not None) == ("gmail", "42", True)

    def test_a_job_that_is_written_out_wins(self, tmp_path: Path) -> None:
        tmp_path.joinpath("gmail-poller.yaml").write_text(self.LEGACY)
        mine = job("gmail_legacy_leads", kind="gmail", config="{query: mine, deliver: {channel: telegram, to: '7'}}")
        loaded = load(tmp_path, main=ACCOUNTS, pollers=jobs(mine))
        [found] = loaded.jobs.values()
        assert found.deliver.to == "7"

    def test_a_broken_one_takes_nobody_down(self, tmp_path: Path) -> None:
        tmp_path.joinpath("gmail-poller.yaml").write_text("gmail_poller: {jobs: [{name: x}]}")
        loaded = load(tmp_path, main=ACCOUNTS, pollers=jobs(job()))
        assert list(loaded.jobs) == ["blog"]
        assert any(found.severity == "error" for found in loaded.findings)
