"""A small configuration to test with: a polled feed, a webhook, a stream and a schedule."""

from __future__ import annotations

from pathlib import Path

MAIN = """\
models: {default: echo}
integrations:
  company: {kind: json}
  shop: {kind: sse}
feeds:
  incidents:
    integration: company
    interval: 5m
    identity: transition
    query: {url: "https://company.example/incidents", state_field: status, time_field: updated_at}
  orders:
    integration: company
    interval: 15m
    query: {url: "https://company.example/orders", time_field: at}
"""

FLOWS = {
    "page": """\
name: page
trigger:
  feed: incidents
  condition: event.urgency == "high" && event.status != "resolved"
  input_mapping: {title: "{{.trigger.event.title}}"}
steps:
  - id: ask
    action: llm
    prompt: "Sum up {{.title}}"
  - id: send
    action: http
    url: https://pager.example/pages
    json: {text: "{{.steps.ask.response}}"}
    retry: {max_attempts: 3, backoff: 1s}
outputs: {text: "{{.steps.ask.response}}"}
""",
    "digest": """\
name: digest
trigger:
  feed: orders
  gather: {digest: {window: 10m, max: 3}}
steps:
  - id: count
    action: transform
    set: {text: "{{len .trigger.events}} orders"}
""",
    "deploys": """\
name: deploys
trigger:
  webhook: {id: deploys, secret: "${DEPLOY_SECRET}", id_field: id}
steps:
  - id: note
    action: transform
    set: {text: "{{.trigger.event.id}}"}
""",
    "pack": """\
name: pack
trigger:
  stream: {integration: shop, query: {url: "https://shop.example/orders", subject_field: id, time_field: at}}
steps:
  - id: note
    action: transform
    set: {text: "{{.trigger.event.id}}"}
""",
    "morning": """\
name: morning
trigger:
  schedule: {cron: "0 7 * * *", tz: Europe/Berlin}
steps:
  - id: note
    action: transform
    set: {at: "{{.trigger.event.scheduled_at}}"}
""",
}

MORE_FLOWS = {
    "settled": """\
name: settled
trigger:
  feed: orders
  gather: {debounce: {window: 20m, max_wait: 2h}}
steps:
  - id: count
    action: transform
    set: {text: "{{len .trigger.events}} orders"}
""",
    "joined": """\
name: joined
trigger:
  feed: orders
  gather:
    join:
      within: 6h
      parts:
        ordered: {by: event.shop, when: event.kind == "ordered" && event.shop == "north"}
        paid: {by: event.shop, when: event.kind == "paid" && event.shop == "north"}
steps:
  - id: count
    action: transform
    set: {text: "{{len .trigger.events}} parts"}
""",
}
"""Other ways to gather; only for who names them."""


def write_configuration(directory: Path, *names: str) -> Path:
    """Write harken.yaml and these workflows, or all."""
    (directory / "workflows").mkdir(parents=True, exist_ok=True)
    (directory / "harken.yaml").write_text(MAIN, "utf-8")
    for name in names or FLOWS:
        (directory / "workflows" / f"{name}.yaml").write_text((FLOWS | MORE_FLOWS)[name], "utf-8")
    return directory
