"""Writes the table of services into README.md, from the services themselves: python -m tests.docs.service_table"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from harken.services import registry
from harken.source import Plugin

README = Path(__file__).parents[2] / "README.md"
TABLE = re.compile(r"^\| Harken \| these services \|\n(?:\|.*\n)+", re.MULTILINE)

NAMES = {
    "agent_turn": "another agent",
    "alertmanager": "Alertmanager",
    "apprise": "Apprise (a hundred more)",
    "azure_devops": "Azure DevOps",
    "cron": "schedules",
    "datadog": "Datadog",
    "discord": "Discord",
    "email": "e-mail",
    "exec": "any program",
    "files": "files",
    "gcs": "Google Cloud Storage",
    "github": "GitHub",
    "gitlab": "GitLab",
    "gmail": "Gmail",
    "google": "Google APIs",
    "google_calendar": "Google Calendar",
    "grafana": "Grafana",
    "imap": "IMAP",
    "jira": "Jira",
    "json": "any JSON API",
    "kafka": "Kafka",
    "mqtt": "MQTT",
    "nats": "NATS",
    "ntfy": "ntfy",
    "page": "web pages",
    "pagerduty": "PagerDuty",
    "pubsub": "Google Pub/Sub",
    "rabbitmq": "RabbitMQ",
    "redis": "Redis streams",
    "rss": "RSS and Atom",
    "s3": "S3",
    "sentry": "Sentry",
    "singer": "Singer taps",
    "slack": "Slack",
    "sns": "SNS",
    "sql": "SQL databases",
    "sqs": "SQS",
    "sse": "server-sent events",
    "stripe": "Stripe",
    "telegram": "Telegram",
    "webhook": "any webhook",
    "websocket": "WebSocket",
    "whatsapp": "WhatsApp",
}
# two that share a page
PAGES = {"sns": "sqs"}

ROWS: dict[str, Callable[[Plugin], object]] = {
    "reads": lambda plugin: plugin.source,
    "takes webhooks of": lambda plugin: plugin.webhook,
    "follows": lambda plugin: plugin.stream,
    "starts pipelines from tickets of": lambda plugin: plugin.tracker,
    "acts in": lambda plugin: plugin.actions,
    "sends messages to": lambda plugin: plugin.destination,
}


def table() -> str:
    """The table, sorted by the names that people know."""
    lines = ["| Harken | these services |\n", "|---|---|\n"]
    for words, has in ROWS.items():
        kinds = [kind for kind, plugin in registry().items() if has(plugin)]
        linked = [_link(kind) for kind in sorted(kinds, key=lambda kind: NAMES[kind].lower())]
        lines.append(f"| {words} | {', '.join(linked)} |\n")
    return "".join(lines)


def _link(kind: str) -> str:
    return f"[{NAMES[kind]}](docs/reference/services/{PAGES.get(kind, kind)}.md)"


if __name__ == "__main__":
    README.write_text(TABLE.sub(lambda _: table(), README.read_text("utf-8")), "utf-8")
