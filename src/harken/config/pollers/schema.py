"""Poller jobs: the schema of pollers.yaml, and the values that the rest of Harken uses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, Field

from harken.config.findings import Finding, Path, Place
from harken.config.model_validation import Strict
from harken.config.yaml.nodes import Node, Scalar, Table

__all__ = ["Job", "JobBlock", "Outlet", "PollerSettings", "PollersBlock", "RawJob", "id_place", "job_id"]

_LONGEST_ID = 120
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


class PollersBlock(Strict):
    """`pollers:` with the settings of all jobs."""

    enabled: bool = True
    state_db: str | None = None
    default_jitter_ms: int = Field(default=5_000, ge=0, le=3_600_000)
    lease_ttl_factor: float = Field(default=2.0, gt=0, le=1_000)
    failure_alert_cooldown_secs: float = Field(default=3_600.0, ge=0)
    breaker_threshold: int = Field(default=5, ge=1)
    jobs: Any = None


def _check_id(id: str) -> str:
    if not _ID.fullmatch(id):
        raise ValueError("an id has up to 120 letters, digits, dots, dashes and underscores, and begins with no sign")
    return id


class JobBlock(Strict):
    """One job under `pollers: jobs:`."""

    id: Annotated[str, AfterValidator(_check_id)]
    kind: str | None = Field(default=None, min_length=1)
    integration: str | None = Field(default=None, min_length=1)
    agent: str | None = Field(default=None, min_length=1, max_length=120)
    schedule: Any
    config: Any = None
    deliver: Any = None
    failure_to: Any = None
    paused_on_boot: bool = False


class RawJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job before it is read: its node, and the findings of its file that are about it."""

    path: Path
    node: Node
    found: tuple[Finding, ...] = ()


def job_id(node: Node) -> str:
    """Return the id of a job, or an empty text when it is missing or too long."""
    found = node.items.get("id") if isinstance(node, Table) else None
    value = found.value if isinstance(found, Scalar) else None
    return value if isinstance(value, str) and len(value) <= _LONGEST_ID else ""


def id_place(node: Node) -> Place:
    """Return the place of the job's id, or of the job when it has none."""
    found = node.items.get("id") if isinstance(node, Table) else None
    return found.place if found is not None else node.place


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """Where a message goes: `integration` is the account that sends it, `channel` is what the file names.

    `template` names a WhatsApp template, required for people who have not written within a day.
    """

    channel: str
    integration: str
    to: str
    template: str = ""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One poller. Its trigger and its workflow have the id as their name. `settings` are the effective settings,
    with defaults and without secrets. `kind` is the service as the job names it, perhaps by an alias.
    """

    id: str
    kind: str
    agent: str
    feed: str
    deliver: Outlet
    failure_to: Outlet | None = None
    paused_on_boot: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def alert(self) -> str:
        """The name of the trigger that reports its failures."""
        return f"{self.id}/alert"


@dataclass(frozen=True, kw_only=True)
class PollerSettings:
    """The settings of all jobs."""

    default_jitter_ms: int = 5_000
    lease_ttl_factor: float = 2.0
    failure_alert_cooldown_secs: float = 3_600.0
    breaker_threshold: int = 5
