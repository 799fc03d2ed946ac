"""The configuration with the real language, steps and services."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.config.loader import load
from harken.run.compiled_workflows import check_workflow
from harken.services import cron, json, rss, webhook
from tests.config.makers import lines, workflow, write

PLUGINS = {module.plugin.kind: module.plugin for module in (cron, json, rss, webhook)}


def loading(directory: Path, files: dict[str, Any], **environ: str) -> Any:
    return load(write(directory, files), plugins=PLUGINS, check_workflow=check_workflow, environ=environ)


def test_workflows_of_every_kind_load_without_a_word(tmp_path: Path) -> None:
    poll = """
        name: incidents
        trigger:
          type: poll
          condition: event.urgency == "high" && event.title.contains("db")
          overlap: queue
          concurrency_key: "{{.trigger.event.service.id}}"
          gather: {digest: {window: 1m, by: "{{.trigger.event.service.id}}"}}
          poll:
            integration: json
            query: {url: "https://x.example/i", items_path: data.items, headers: {Authorization: "${API_TOKEN}"}}
            interval: 90s
            input_mapping: {title: "{{.trigger.event.title}}", count: "{{.trigger.event.count}}"}
        steps:
          - id: triage
            action: llm
            model: balanced
            prompt: "{{.title}} {{.trigger.event.x}}"
        outputs: {text: "{{.steps.triage.response}}"}
        """
    files = {
        "workflows/poll.yaml": poll,
        "workflows/rss.yaml": workflow("news", "poll: {integration: rss, query: {feed_url: 'https://x.example/feed'}}"),
        "workflows/cron.yaml": workflow("daily", "schedule: {cron: '0 9 * * 1-5', tz: Europe/Berlin, missed: skip}"),
        "workflows/every.yaml": workflow("often", "schedule: {every: 1m}"),
        "workflows/at.yaml": workflow("once", "schedule: {at: '2026-03-01T09:00:00+01:00'}"),
        "workflows/hook.yaml": workflow("hook", "webhook: {secret: '${HOOK_SECRET}', header: X-Sig}"),
        "workflows/event.yaml": workflow("after", "event: {type: run.failed, workflow: news}, condition: event.x == 1"),
    }
    loaded = loading(tmp_path, files, API_TOKEN="hunter2hunter2", HOOK_SECRET="hunter3hunter3")
    assert lines(loaded.findings) == []
    assert len(loaded.triggers) == len(files)
    assert "hunter" not in repr(loaded) + repr(loaded.definitions())


def test_conditions_templates_and_steps_are_checked_at_their_places(tmp_path: Path) -> None:
    text = """
        name: w
        trigger:
          schedule: "0 9 * * *"
          condition: event.x ==
          input_mapping: {a: "{{.x"}
        steps:
          - {id: one, action: lmm, prompt: hi}
        """
    loaded = loading(tmp_path, {"workflows/w.yaml": text})
    assert [(finding.line, finding.code) for finding in loaded.findings] == [
        (4, "expression"),
        (5, "expression"),
        (7, "step"),
    ]


def test_a_webhook_without_a_secret_is_refused(tmp_path: Path) -> None:
    loaded = loading(tmp_path, {"workflows/w.yaml": workflow("w", "webhook: {}")})
    assert "needs a secret" in lines(loaded.findings)[0]
