"""What must be there before the commands of a page can be typed: files, accounts at fakes, variables, and events.

A page has whole workflows, which become files; what it only assumes of its reader is here, by page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from harken.clock import SystemClock
from harken.testing.fakes.azure_devops import AzureDevOps
from harken.testing.fakes.datadog import API_KEY, APP_KEY, FakeDatadog
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.gitlab import GitLab
from harken.testing.fakes.gmail import FakeGmail
from harken.testing.fakes.google_calendar import GoogleCalendar
from harken.testing.fakes.google_oauth_base import CLIENT_ID, CLIENT_SECRET, REFRESH_TOKEN
from harken.testing.fakes.jira import TOKEN as JIRA_TOKEN
from harken.testing.fakes.jira import Jira
from harken.testing.fakes.pagerduty import PagerDuty
from harken.testing.fakes.server import FakeServer, Handler
from harken.testing.fakes.slack import TOKEN as SLACK_TOKEN
from harken.testing.fakes.slack import FakeSlack
from harken.testing.fakes.telegram import TOKEN as TELEGRAM_TOKEN
from harken.testing.fakes.telegram import FakeTelegram

__all__ = ["ELSEWHERE", "NOT_RUN", "NOT_TYPED", "WORLDS", "World"]

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class World:
    """`started`: a controller runs before the first command. `events`: what is then sent to webhooks, by their ids.

    `typed`: what a reader types in place of what the page has, because it is theirs. `learned`: the same, but found in
    what a command before has printed. `codes`: commands that shall end with another code than 0, and with which.
    `before`: lines to type before one of the page, by how that begins. `copies`: where a part of the repository is.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    fakes: Mapping[str, Callable[[], FakeServer]] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict)
    learned: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[str, list[dict[str, object]]] = field(default_factory=dict)
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    started: bool = False


def _account(kind: str, fake: Callable[[], FakeServer], **answers: str) -> World:
    """The guide of a service: its account is a fake, whose address and credential are typed when they are asked for."""
    settings = f"models: {{default: echo}}\nintegrations: {{{kind}: {{kind: {kind}, allow_private_networks: true}}}}\n"
    named = {f"{name}:": answer for name, answer in answers.items()}
    return World(files={"harken.yaml": settings}, fakes={kind: fake}, answers={"base_url:": f"{{{kind}}}", **named})


def _github() -> GitHub:
    hub = GitHub(SystemClock())
    hub.open("bug")
    return hub


def _github_with_team() -> GitHub:
    hub = GitHub(SystemClock())
    hub.repos["acme/shop"].roles["leo"] = "write"
    hub.open("triage", by="leo", title="Totals")
    return hub


def _azure_devops() -> AzureDevOps:
    found = AzureDevOps(SystemClock())
    found.states["Bug"].append("Committed")
    found.create("urgent")
    return found


def _datadog() -> FakeDatadog:
    found = FakeDatadog(SystemClock())
    found.monitor("host:web-1", id=1234567, tags=["team:platform", "service:api"])
    return found


def _gitlab() -> GitLab:
    return GitLab(SystemClock())


def _jira() -> Jira:
    found = Jira(SystemClock())
    found.project("MYTEAM")
    return found


def _pagerduty() -> PagerDuty:
    found = PagerDuty(SystemClock())
    found.add_user("PUSER123")
    return found


def _telegram() -> FakeTelegram:
    return FakeTelegram(SystemClock())


def _slack() -> FakeSlack:
    found = FakeSlack(SystemClock())
    found.user("jsmith")
    for name in ("engineering", "oncall"):
        found.channel(name)
    return found


def _hook(name: str, condition: str = "true", **trigger: object) -> dict[str, str]:
    """A workflow that whatever is sent to it starts."""
    webhook = {"id": name, "scheme": "none", "allow_unsigned": True, "id_field": "id"}
    whole = {
        "name": name,
        "trigger": {"webhook": webhook, "condition": condition, **trigger},
        "steps": [{"id": "note", "action": "transform", "set": {"text": "{{.trigger.event.id}}"}}],
    }
    return {f"workflows/{name}.yaml": json.dumps(whole)}


PLAIN = {"harken.yaml": "models: {default: echo}\n"}
QUIET = {"id": "P17", "title": "disk full", "urgency": "low", "status": "triggered"}
INBOX, INBOX_KEY = "http://127.0.0.1:9091/webhooks/generic/incidents", "a-key-for-tests-only"
FIRED = {"id": "INC-1", "priority": 1, "customer": "acme"}
FILTERED = {"id": "INC-2", "priority": 4, "customer": "beta"}
ONCALL = _hook("oncall", "event.priority <= 2")

JOB = """\
pollers:
  jobs:
    - id: blog
      kind: rss
      agent: ana
      schedule: {every_secs: 600}
      config:
        feed_url: "{shop}/feed"
        allow_private_networks: true
        message_template: "{title}"
        deliver: {channel: telegram, to: "1194292426"}
"""
TELEGRAM = f"""\
integrations:
  telegram: {{kind: telegram, base_url: "{{telegram}}", token: "{TELEGRAM_TOKEN}", allow_private_networks: true}}
"""
FEED = "<rss version='2.0'><channel><item><guid>1</guid><title>One</title><link>http://a.example/1</link></item></channel></rss>"
AGENTSMITH = """\
trackers:
  board: {type: github, owner: acme, auth: github_token, polling: {enabled: true}}
projects:
  shop: {tracker: board, pipelines: [fix-bug]}
"""
GMAIL_POLLER = """\
gmail_poller:
  token_path: ./token.json
  jobs:
    - {name: a, query: "is:unread", forward_to_subject: plugin.outbound.telegram, forward_to: 1194292426,
       message_template: "{snippet}", newer_than: 1d}
"""


TABLES = """\
import sqlite3
with sqlite3.connect('shop.db') as shop:
    shop.execute('CREATE TABLE orders (id INTEGER, created_at TEXT, total INTEGER, customer_id INTEGER)')
    shop.execute('CREATE TABLE customers (id INTEGER, name TEXT)')
"""


class Shop(FakeServer):
    """Answers each path with what it is made with."""

    def __init__(self, content: Mapping[str, object]) -> None:
        super().__init__(SystemClock())
        self._content = content

    def routes(self) -> Mapping[str, Handler]:
        return dict.fromkeys(self._content, self._answer)

    async def _answer(self, request: web.Request) -> web.Response:
        content = self._content[request.path]
        return web.Response(text=content) if isinstance(content, str) else web.json_response(content)


GOOGLE = World(
    files={
        "harken.yaml": """\
integrations:
  google: {kind: google, base_url: "{google}", allow_private_networks: true}
  work: {kind: google, base_url: "{google}", allow_private_networks: true}
"""
    },
    fakes={"google": lambda: GoogleCalendar(SystemClock())},
    answers={"client_id:": CLIENT_ID, "client_secret:": CLIENT_SECRET},
    environ={"BROWSER": "curl -sLo /dev/null %s"},
)
ACCOUNTS = World(
    files={
        "harken.yaml": """\
integrations:
  pagerduty: {kind: pagerduty, base_url: "{pagerduty}", allow_private_networks: true}
  slack: {kind: slack, base_url: "{slack}", allow_private_networks: true}
  jira-eu: {kind: jira, base_url: "{jira}", allow_private_networks: true}
"""
    },
    fakes={"pagerduty": _pagerduty, "slack": _slack, "jira": _jira},
    answers={"token: REST API key": "personal-key", "token: API token": JIRA_TOKEN, "email:": "me@example.com"},
    environ={"SLACK_BOT_TOKEN": SLACK_TOKEN},
    before={
        "harken integrations slack configure --token @": (f"echo {SLACK_TOKEN} > ~/slack.token",),
        "pass": ("harken integrations slack remove --yes",),
    },
    typed={"SLACK_BOT_TOKEN=…": f"SLACK_BOT_TOKEN={SLACK_TOKEN}"},
)
MAIL = World(
    files={
        "harken.yaml": """\
integrations:
  google:
    kind: google
    client_id: ${GOOGLE_CLIENT_ID}
    client_secret: ${GOOGLE_CLIENT_SECRET}
    refresh_token: ${GOOGLE_REFRESH_TOKEN}
    base_url: "{google}"
    allow_private_networks: true
  telegram: {kind: telegram, token: "${TELEGRAM_BOT_TOKEN}", base_url: "{telegram}", allow_private_networks: true}
"""
    },
    fakes={"google": lambda: FakeGmail(SystemClock()), "telegram": _telegram},
    environ={
        "GOOGLE_CLIENT_ID": CLIENT_ID,
        "GOOGLE_CLIENT_SECRET": CLIENT_SECRET,
        "GOOGLE_REFRESH_TOKEN": REFRESH_TOKEN,
        "TELEGRAM_BOT_TOKEN": TELEGRAM_TOKEN,
    },
)

NOT_RUN: Mapping[str, str] = {
    "docker": "there is no container engine here; test_deploy.py reads the files",
    "helm": "there is no cluster here; test_helm_chart.py renders the chart",
    "npx": "an index of packages; tests/mcp runs the same inspector, and tests/downloads brings it",
    "pip": "an index of packages; test_walk_through.py, test_new_plugin.py and .ci/release install from the wheel",
    "pipx": "an index of packages; .ci/release installs the wheel with it",
    "make": "takes minutes; `make -n` says that the target exists",
    "python -m bench": "measures for minutes; tests/bench runs it",
    "pass": "the reader's password manager; a stand-in prints a token",
}
"""Programs that are not run, and why. Each is a stand-in on PATH, so that the rest of its block is run."""

NOT_TYPED: Mapping[tuple[str, str], str] = {
    (
        "docs/how-to/google.md",
        "harken integrations google configure --manual",
    ): "tests/cli/test_consent.py pastes the page",
    ("docs/how-to/mail.md", "harken integrations imap configure"): "an IMAP server; tests/services/imap has Dovecot",
    ("docs/how-to/mail.md", "harken integrations imap test"): "the same",
    (
        "docs/how-to/run-a-fleet.md",
        "harken status",
    ): "three replicas; tests/cli/test_fleet_status.py has them",
}
"""Commands that are not typed here, and why."""

ELSEWHERE: Mapping[str, str] = {
    "docs/how-to/follow-a-stream.md": "tests/operate/test_seek.py",
    "README.md": "tests/docs/test_walk_through.py",
    "docs/how-to/install.md": "tests/docs/test_walk_through.py",
    "docs/how-to/try-without-an-account.md": "tests/demo/test_demo.py",
    "docs/index.md": "tests/docs/test_walk_through.py",
    "docs/plugins.md": "tests/cli/test_new_plugin.py",
    "docs/how-to/simulate.md": "tests/simulation/test_documented_cases.py",
    "docs/how-to/use-the-api.md": "tests/api/test_how_to.py",
    "docs/tutorial/first-service.md": "tests/docs/test_service_tutorial.py",
    "docs/tutorial/first-workflow.md": "tests/docs/test_walk_through.py",
}
"""Pages whose commands another test types."""


def _operated(**more: Any) -> World:
    """A controller that has decided about two events of the trigger `oncall`."""
    given = {"files": {**PLAIN, **ONCALL}, "events": {"oncall": [FIRED, FILTERED]}, "started": True}
    return World(**{**given, **more})


def _operated_job(id: str) -> World:
    """A controller with a job of the agent `ana`, which reads a feed."""
    settings = {"harken.yaml": TELEGRAM, "pollers.yaml": JOB.replace("blog", id)}
    return World(files=settings, fakes={"telegram": _telegram, "shop": lambda: Shop({"/feed": FEED})}, started=True)


WORLDS: Mapping[str, World] = {
    "docs/how-to/azure_devops.md": _account("azure_devops", _azure_devops, organization="acme", token="writer"),
    "docs/how-to/back-up.md": _operated(typed={"/backups/": "../"}),
    "docs/how-to/backtest.md": _operated(),
    "docs/how-to/containers.md": World(copies={"examples/deploy": "examples/deploy"}),
    "docs/how-to/copy-a-store.md": _operated(
        before={"harken store copy": ("harken controller stop || true",)},
        typed={"postgresql://harken@db.example/harken": "other.db"},
        environ={"NEW_STORE": "live.db"},
    ),
    "docs/how-to/datadog.md": _account("datadog", _datadog, api_key=API_KEY, app_key=APP_KEY),
    "docs/how-to/editors.md": World(environ={"SHELL": "/bin/bash"}),
    "docs/how-to/encryption.md": World(files={**PLAIN, **ONCALL}),
    "docs/how-to/exec.md": World(
        files={"harken.yaml": "services: {allow_programs: true}\n"},
        copies={"examples/exec": "pollers"},
        typed={"/var/spool/incoming": "."},
    ),
    "docs/how-to/forget-a-person.md": _operated(events={"oncall": [{**FIRED, "mail": "ana@example.com"}]}),
    "docs/how-to/github.md": _account("github", _github, token="classic"),
    "docs/how-to/gitlab.md": _account("gitlab", _gitlab, token="glpat-full"),
    "docs/how-to/google.md": GOOGLE,
    "docs/how-to/import-agentsmith.md": World(files={"config/agentsmith.yml": AGENTSMITH}),
    "docs/how-to/import-from-others.md": World(
        typed={
            "crontab FILE": "crontab my.cron",
            "changedetection PATH": "changedetection .",
            "n8n FILE": "n8n flow.json",
        },
        files={
            "my.cron": "30 2 * * * /usr/local/bin/backup.sh\n",
            "url-watches.json": json.dumps(
                {"watching": {"u1": {"url": "https://shop.example/boots", "title": "Boots"}}}
            ),
            "flow.json": (ROOT / "tests/config/importers/n8n/webhook-to-slack.json").read_text("utf-8"),
        },
    ),
    "docs/how-to/import-gmail-poller.md": World(files={"config/plugins/gmail-poller.yaml": GMAIL_POLLER}),
    "docs/how-to/integrations.md": ACCOUNTS,
    "docs/how-to/jira.md": _account("jira", _jira, email="me@example.com", token=JIRA_TOKEN),
    "docs/how-to/mail.md": MAIL,
    "docs/how-to/many-events.md": World(copies={"examples/many-events": "examples/many-events"}),
    "docs/how-to/mcp.md": _operated_job("leads"),
    "docs/how-to/notify.md": _account("telegram", _telegram, token=TELEGRAM_TOKEN),
    "docs/how-to/pagerduty.md": _account("pagerduty", _pagerduty, token="personal-key"),
    "docs/how-to/poll-json.md": World(
        files={"harken.yaml": "integrations: {json: {kind: json, allow_private_networks: true}}\n"},
        fakes={"shop": lambda: Shop({"/api/orders": {"data": {"orders": [{"id": 1, "total": 20}]}}})},
        typed={"https://shop.example": "{shop}"},
        environ={"SHOP_TOKEN": "not-a-token"},
    ),
    "docs/how-to/pollers.md": _operated_job("blog"),
    "docs/how-to/quiet-hours-and-budgets.md": World(files=PLAIN, started=True),
    "docs/how-to/rate-limits.md": _operated(),
    "docs/how-to/receive-webhooks.md": World(
        environ={"DEPLOY_SECRET": "0123456789abcdef0123456789abcdef"}, started=True
    ),
    "docs/how-to/replay.md": _operated(
        files={**PLAIN, **ONCALL, **_hook("digest"), **_hook("invoices")},
        events={"oncall": [FILTERED], "invoices": [FIRED], "digest": [FIRED]},
        typed={"4711": "2"},
        learned={"3f2a9c01b7de": r"harken bulk execute ([0-9a-f]+)"},
    ),
    "docs/how-to/run-a-fleet.md": World(
        files={**PLAIN, **ONCALL}, typed={"postgresql://harken:PASSWORD@db.internal/harken": "harken.db"}
    ),
    "docs/how-to/run-as-a-service.md": _operated(before={"harken service install": ("harken init ~/harken",)}),
    "docs/how-to/slack.md": _account("slack", _slack, token=SLACK_TOKEN),
    "docs/how-to/sql.md": World(
        environ={"HARKEN_SQL_URL": "sqlite:///shop.db"}, before={"pip install": (f'python3 -c "{TABLES}"',)}
    ),
    "docs/how-to/store-trouble.md": _operated(typed={"/backups/": "../"}),
    "docs/how-to/test-your-workflows.md": World(
        environ={"INBOX_KEY": INBOX_KEY},
        before={"harken test add": (f"curl -sf -H 'X-Api-Key: {INBOX_KEY}' -d '{json.dumps(QUIET)}' {INBOX}",)},
        typed={"17": "1"},
        codes={"harken test tests/urgent.yaml": 1, "harken test --junit junit.xml": 1},
        started=True,
    ),
    "docs/how-to/tickets.md": World(
        fakes={"hub": _github_with_team},
        environ={"GITHUB_TOKEN": "classic"},
        typed={"organization: acme\n": "organization: acme\n    base_url: {hub}\n"},
        before={"harken start --new-store": ("harken controller stop", "rm -rf harken.db*")},
    ),
    "docs/how-to/tokens.md": _operated(
        typed={"https://harken.example.com": "http://127.0.0.1:9091"},
        learned={"hkn_…": r"(hkn_[\w-]+)"},
        before={"harken audit": ("unset HARKEN_URL HARKEN_TOKEN",)},
    ),
    "docs/how-to/upgrade.md": _operated(),
    "docs/how-to/when-reads-fail.md": _operated(typed={"NAME": "oncall"}),
    "docs/how-to/why-didnt-it-fire.md": _operated(typed={"NAME": "oncall", "TRIGGER": "oncall", "KEY": "INC-1"}),
    "docs/reference/filters.md": _operated(),
    "docs/reference/pollers.md": _operated_job("ana_blog_watch"),
    "docs/reference/services/google.md": GOOGLE,
}
