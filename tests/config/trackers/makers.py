"""Configurations with trackers and projects, read with the services that are installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harken.config.loaded import Loaded
from harken.config.loader import load
from harken.services import registry
from tests.config.makers import write

TOKENS = {
    "GITHUB_TOKEN": "ghp_0123456789abcdef",
    "GITLAB_TOKEN": "glpat-0123456789abcd",
    "AZURE_DEVOPS_TOKEN": "azpat0123456789abcdef",
    "JIRA_EMAIL": "bot@acme.example",
    "JIRA_API_TOKEN": "ATATT3x0123456789",
    "GITHUB_WEBHOOK_SECRET": "whs-0123456789abcdef",
}


def pipeline(name: str) -> str:
    return f"name: {name}\nsteps:\n  - {{id: work, action: transform, set: {{said: done}}}}\n"


def read(
    directory: Path,
    text: str,
    *,
    pipelines: tuple[str, ...] = ("fix-bug", "security-scan"),
    environ: Mapping[str, str] = TOKENS,
    files: Mapping[str, str] | None = None,
) -> Loaded:
    """The configuration of this harken.yaml, beside a workflow for each pipeline."""
    flows = {f"workflows/{name}.yaml": pipeline(name) for name in pipelines}
    write(directory, {"harken.yaml": text, **flows, **(files or {})})
    return load(directory, plugins=registry(), environ=environ)


def found(loaded: Loaded) -> list[str]:
    """The findings as people see them, without those about projects that have no label map."""
    return [str(finding) for finding in loaded.findings if finding.code != "empty_query"]
