"""Puts a piece of YAML from a page where its reader would put it, so that it can be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from textwrap import dedent, indent

import yaml

from harken.config.settings import Settings
from tests.docs.blocks import Block

__all__ = ["FOREIGN", "UNPLACED", "alternatives", "files_of"]

FOREIGN: Mapping[str, str] = {"receivers": "Alertmanager's own configuration", "services": "a compose file"}
"""Blocks for other programs, by a key that only they have."""

UNPLACED: Mapping[tuple[str, str], str] = {
    ("docs/reference/services/websocket.md", "resume"): "a line of the query above it",
}
"""Pieces that are only a line of another one, by page and first key."""

SETTINGS = {*Settings.model_fields, "integrations", "feeds", "trackers", "projects", "agents", "outcome_webhooks"}
OF_POLL = {"query", "identity", "interval", "integration"}
STEPS = "steps:\n  - {id: note, action: transform, set: {text: hello}}\n"
TRIGGER = "trigger:\n  schedule: {every: 1h}\n"


def alternatives(block: Block) -> list[Block]:
    """Lines that all begin with one key are several pieces, one of which a reader takes."""
    lines = block.text.splitlines(keepends=True)
    if len(lines) < 2 or len({line.partition(":")[0] for line in lines}) > 1:
        return [block]
    return [replace(block, line=block.line + number, text=line) for number, line in enumerate(lines)]


def files_of(block: Block) -> dict[str, str]:
    """The files of a configuration with this piece in it; empty if it is for another program, or a mere line."""
    text = dedent(block.text)
    piece = yaml.safe_load(text)
    if isinstance(piece, list):
        jobs = "kind" in piece[0]
        return (
            {"pollers.yaml": f"pollers:\n  jobs:\n{indent(text, '    ')}"}
            if jobs
            else _workflow(f"steps:\n{indent(text, '  ')}")
        )
    keys = set(piece)
    if keys & set(FOREIGN) or (block.page, next(iter(piece))) in UNPLACED:
        return {}
    if "cases" in keys or keys == {"answers"}:
        return {
            "tests/shown.yaml": text
            if "cases" in keys
            else f"cases:\n  - name: shown\n    expect: {{}}\n{indent(text, '    ')}"
        }
    if "pollers" in keys:
        return {"pollers.yaml": text}
    if keys <= SETTINGS and not isinstance(piece.get("steps"), list):
        return {"harken.yaml": text}
    if "steps" in keys or "trigger" in keys:
        return _workflow(text)
    if keys <= OF_POLL or keys == {"paging"}:
        return _workflow(_polled(text, block.page, of_query=keys == {"paging"}))
    some = "" if keys - {"gather"} else _polled("", block.page).removeprefix("trigger:\n")
    return _workflow(f"trigger:\n{indent(text, '  ')}{some}")


def _polled(text: str, page: str, *, of_query: bool = False) -> str:
    """A trigger that polls the service that the page is about."""
    stem = page.rpartition("/")[2].removesuffix(".md")
    kind = stem if stem in ("jira", "sql") else "json"
    url = "https://api.example.com/items"
    if of_query:
        text = f"query:\n  url: {url}\n{indent(text, '  ')}"
    elif not text:
        text = f"query: {{url: {url}}}\n"
    return f"trigger:\n  poll:\n    integration: {kind}\n    interval: 1m\n{indent(text, '    ')}"


def _workflow(text: str) -> dict[str, str]:
    keys = set(yaml.safe_load(text))
    missing = {"name": "name: shown\n", "trigger": TRIGGER, "steps": STEPS}
    whole = "".join(part for key, part in missing.items() if key not in keys and key != "steps")
    return {"workflows/shown.yaml": whole + text + ("" if "steps" in keys else "\n" + STEPS)}
