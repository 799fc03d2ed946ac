"""A loaded configuration: the values that the engine runs, and the findings about what was refused."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from pydantic import BaseModel

from harken.config.copy_on_write_map import SnapshotValues
from harken.config.findings import Finding
from harken.config.pollers.schema import Job, PollerSettings
from harken.config.settings import Settings
from harken.feed import AT_START, Feed, Trigger
from harken.runs import Workflow
from harken.store import Definitions
from harken.tickets import TrackerSettings

__all__ = ["MAIN", "Account", "IdleRow", "Loaded", "digest", "item", "reveal", "revision", "with_generation"]

MAIN = "harken.yaml"
PER_REPLICA = {"server", "store", "log", "metrics", "tracing", "http", "agent"}
"""Settings that may differ between replicas that run the same configuration."""
_REFERENCE = re.compile(r"\$\{[^}]*\}")
Origin = Literal["config", "stored", "environment", "none"]


@dataclass(frozen=True, kw_only=True)
class Account:
    """A configured integration, or a kind that needs none.

    `credential` identifies the quota that its calls use; it is not derived from the secret. `rate_limit` is calls
    per second. `origin` is where the credential comes from. Only `agents` may use it; None means everybody.
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


class IdleRow(NamedTuple):
    """A row of the store that is no trigger now, as it is not enabled or cannot be used.

    `provider` and `workflow` are known of those that are not enabled."""

    id: str
    owner: str
    provider: str = ""
    workflow: str = ""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Everything that a directory configures. Items are named `workflow:oncall`, `poller:leads`, `feed:news`,
    `integration:jira-eu`, `agent:ana`, `tracker:acme`, `project:my-api`, `section:server` and
    `file:workflows/x.yaml`; `origins` has the file of each. `pollers` is None without such a section; `agents` has the
    accounts of each, by kind. `trackers` are read by feeds, and their projects have triggers. `rows` has the ids of the
    triggers that are rows in the store, by name, `disabled` the rows that are not enabled, `refused_rows` those that
    cannot be used (`refused` says why). `paths` has the feeds of webhooks where there are rows, else None.

    Feeds and workflows hold references in place of secrets, so they may be stored: call `reveal` before use.
    """

    directory: Path
    settings: Settings = field(default_factory=Settings)
    store: str = ""
    integrations: Mapping[str, Account] = field(default_factory=dict)
    feeds: Sequence[Feed] = ()
    triggers: Sequence[Trigger] = ()
    workflows: Mapping[str, Workflow] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    refused: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)
    generation: str = ""
    origins: Mapping[str, str] = field(default_factory=dict)
    pollers: PollerSettings | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)
    agents: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    trackers: Mapping[str, TrackerSettings] = field(default_factory=dict)
    queries: Mapping[str, BaseModel] = field(default_factory=dict, repr=False)
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    rows: Mapping[str, str] = field(default_factory=dict, repr=False)
    disabled: Mapping[str, IdleRow] = field(default_factory=dict, repr=False)
    refused_rows: Mapping[str, IdleRow] = field(default_factory=dict, repr=False)
    paths: Mapping[str, str] | None = field(default=None, repr=False)

    def feed(self, name: str) -> Feed | None:
        if isinstance(self.feeds, SnapshotValues):
            return self.feeds.by_name.get(name)
        return next((feed for feed in self.feeds if feed.name == name), None)

    def trigger(self, name: str) -> Trigger | None:
        if isinstance(self.triggers, SnapshotValues):
            return self.triggers.by_name.get(name)
        return next((trigger for trigger in self.triggers if trigger.name == name), None)

    def idle_row(self, name: str) -> IdleRow | None:
        """The row of this name that is no trigger now."""
        return self.disabled.get(name) or self.refused_rows.get(name)

    def row_id(self, name: str) -> str:
        """The id of the row of this name, whether it is a trigger now or not; empty if there is none."""
        idle = self.idle_row(name)
        return self.rows.get(name) or (idle.id if idle else "")

    def feed_at(self, path: str) -> Feed | None:
        """The feed whose webhook is at this path."""
        if self.paths is not None:
            return self.feed(self.paths.get(path, ""))
        return next((feed for feed in self.feeds if path and feed.path == path), None)

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """Findings that keep the process from starting: its own settings are wrong, so defaults would be a guess."""
        names = [name for name in self.refused if name.startswith("section:") or name == item("file", MAIN)]
        return tuple(finding for name in names for finding in self.refused[name])

    def reveal(self, value: Any) -> Any:
        """Return the value with every secret reference replaced by its current value."""
        return reveal(value, self.references)

    def definitions(self, *, starting: bool = False) -> Definitions:
        """Return what the store keeps of the configuration."""
        workflows = {flow.name: (flow.rev, msgspec.json.encode(flow.definition)) for flow in self.workflows.values()}
        return Definitions(
            generation=self.generation,
            starting=starting,
            feeds=self.feeds,
            triggers=self.triggers,
            workflows=workflows,
            pause={job.id: AT_START for job in self.jobs.values() if job.paused_on_boot},
        )


def item(kind: str, name: str) -> str:
    return f"{kind}:{name}"


def digest(value: Any, length: int = 16) -> str:
    """Return a hash that does not depend on the order of keys."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:length]


def with_generation(loaded: Loaded) -> Loaded:
    """Return the configuration with its generation: a hash, equal for equal configurations, that covers no secret."""
    accounts = [replace(loaded.integrations[name], model=None) for name in sorted(loaded.integrations)]
    by_name = sorted(loaded.feeds, key=lambda feed: feed.name)
    feeds = [msgspec.structs.replace(feed, inherits="", label="") for feed in by_name]
    triggers = sorted(loaded.triggers, key=lambda trigger: trigger.name)
    # the addresses in these may be secrets; their workflows have references instead
    excluded: Any = {**dict.fromkeys(PER_REPLICA, True), "on_failure": {"notify"}, "outcome_webhooks": True}
    settings = loaded.settings.model_dump(mode="json", exclude=excluded)
    jobs = [loaded.pollers, sorted(loaded.jobs.values(), key=lambda job: job.id), loaded.agents]
    return replace(loaded, generation=digest([settings, accounts, feeds, triggers, loaded.workflows, jobs]))


def revision(definition: Any) -> str:
    """Return the revision of a workflow's definition. The order of keys counts: it is the order of a switch's cases."""
    return hashlib.sha256(msgspec.json.encode(definition)).hexdigest()[:16]


def reveal(value: Any, references: Mapping[str, str]) -> Any:
    """Return the value with each of these references replaced by what it stands for."""
    if isinstance(value, str):
        return _REFERENCE.sub(lambda match: references.get(match[0], match[0]), value) if "${" in value else value
    if isinstance(value, Mapping):
        return {key: reveal(inner, references) for key, inner in value.items()}
    return [reveal(inner, references) for inner in value] if isinstance(value, (list, tuple)) else value
