"""A configuration as it was understood: values that the engine runs, and what was wrong with the rest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import BaseModel

from harken.config.findings import Finding
from harken.config.pollers.schema import Job, PollerSettings
from harken.config.settings import Settings
from harken.feed import Feed, Trigger
from harken.runs import Workflow
from harken.store import Definitions

__all__ = ["MAIN", "Account", "Loaded", "Origin", "digest", "item", "revision", "stamped"]

MAIN = "harken.yaml"
Origin = Literal["config", "stored", "environment", "none"]


@dataclass(frozen=True, kw_only=True)
class Account:
    """A configured integration, or a kind that needs none.

    `credential` names whose quota is spent, and is not made of the secret. `rate_limit` is calls per second.
    `origin` is where the credential comes from. `agents` may use it; None for everybody.
    """

    name: str
    kind: str
    credential: str
    model: BaseModel | None = field(default=None, repr=False)
    base_url: str = ""
    allow_private: bool = False
    rate_limit: float | None = None
    backoff: tuple[float, float] | None = None
    origin: Origin = "config"
    agents: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Everything that a directory says at one moment. Items are named `workflow:oncall`, `poller:leads`, `feed:news`,
    `integration:jira-eu`, `agent:ana`, `section:server` and `file:workflows/x.yaml`; `origins` has the file of each.
    `pollers` is None without such a section; `agents` has the accounts of each, by kind.

    Feeds and workflows hold references in place of secrets, so they may be stored: `reveal` before use.
    """

    directory: Path
    settings: Settings = field(default_factory=Settings)
    store: str = ""
    integrations: Mapping[str, Account] = field(default_factory=dict)
    feeds: tuple[Feed, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    workflows: Mapping[str, Workflow] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    refused: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    generation: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    pollers: PollerSettings | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    queries: Mapping[str, BaseModel] = field(default_factory=dict, repr=False)
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """Why the process should not start: its own settings are wrong, and defaults would not be what was meant."""
        names = [name for name in self.refused if name.startswith("section:") or name == item("file", MAIN)]
        return tuple(finding for name in names for finding in self.refused[name])

    def reveal(self, value: Any) -> Any:
        """Return the value with every secret reference replaced by what it stands for now."""
        if isinstance(value, str):
            return _reveal(value, self.references) if "${" in value else value
        if isinstance(value, Mapping):
            return {key: self.reveal(inner) for key, inner in value.items()}
        return [self.reveal(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    def definitions(self, *, starting: bool = False) -> Definitions:
        """What the store keeps of it."""
        workflows = {flow.name: (flow.rev, msgspec.json.encode(flow.definition)) for flow in self.workflows.values()}
        return Definitions(
            generation=self.generation,
            starting=starting,
            feeds=self.feeds,
            triggers=self.triggers,
            workflows=workflows,
        )


def item(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def digest(value: Any, length: int = 16) -> str:
    """Equal for equal values, whatever the order of keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:length]


OWN = {"server", "store", "log", "metrics", "http", "agent"}
"""What each replica may have otherwise without running another configuration."""


def stamped(loaded: Loaded) -> Loaded:
    """Return the configuration with its generation: equal for equal ones, and without a trace of a secret."""
    accounts = [replace(loaded.integrations[name], model=None) for name in sorted(loaded.integrations)]
    feeds = [msgspec.structs.replace(feed, inherits="") for feed in sorted(loaded.feeds, key=lambda feed: feed.name)]
    triggers = sorted(loaded.triggers, key=lambda trigger: trigger.name)
    settings = loaded.settings.model_dump(mode="json", exclude=OWN)
    jobs = [loaded.pollers, sorted(loaded.jobs.values(), key=lambda job: job.id), loaded.agents]
    return replace(loaded, generation=digest([settings, accounts, feeds, triggers, loaded.workflows, jobs]))


def revision(definition: Any) -> str:
    """Names a workflow's definition. The order of keys counts: it decides which case of a switch comes first."""
    return hashlib.sha256(msgspec.json.encode(definition)).hexdigest()[:16]


def _reveal(text: str, references: Mapping[str, str]) -> str:
    for reference, value in references.items():
        text = text.replace(reference, value)
    return text
