"""Jobs as they are written in files, before anything in them is understood."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, Field

from harken.config.findings import Finding, Path, Place
from harken.config.validate import Strict
from harken.config.yaml.nodes import Node, Scalar, Table

__all__ = ["Job", "JobBlock", "Outlet", "PollerSettings", "PollersBlock", "Written", "id_place", "job_id"]


_LONGEST_ID = 120

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


class PollersBlock(Strict):
    """What holds for all jobs, as it may be written."""

    enabled: bool = True
    state_db: str | None = None
    default_jitter_ms: int = Field(default=5_000, ge=0, le=3_600_000)
    lease_ttl_factor: float = Field(default=2.0, gt=0, le=1_000)
    failure_alert_cooldown_secs: float = Field(default=3_600.0, ge=0)
    breaker_threshold: int = Field(default=5, ge=1)
    jobs: Any = None


def _sound_id(id: str) -> str:
    if not _ID.fullmatch(id):
        raise ValueError("an id has up to 120 letters, digits, dots, dashes and underscores, and begins with no sign")
    return id


class JobBlock(Strict):
    """One job, as it may be written."""

    id: Annotated[str, AfterValidator(_sound_id)]
    kind: str = Field(min_length=1)
    agent: str = Field(min_length=1, max_length=120)
    schedule: Any
    config: Any = None
    failure_to: Any = None
    paused_on_boot: bool = False


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it stands in a file, with the findings that are its own."""

    path: Path
    node: Node
    found: tuple[Finding, ...] = ()


def job_id(node: Node) -> str:
    """The id that a job is given, empty when it has none, or one that is too long to be a name."""
    found = node.items.get("id") if isinstance(node, Table) else None
    value = found.value if isinstance(found, Scalar) else None
    return value if isinstance(value, str) and len(value) <= _LONGEST_ID else ""


def id_place(node: Node) -> Place:
    """Where its id stands, or else the job."""
    found = node.items.get("id") if isinstance(node, Table) else None
    return found.place if found is not None else node.place


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """Where a message goes: `integration` is the account that sends it, `channel` the word in the file.

    `template` is one that whatsapp has approved for people who have not written within a day.
    """

    channel: str
    integration: str
    to: str
    template: str = ""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One poller. Its trigger and its workflow are called like the job; `settings` is what it runs with, defaults
    included and secrets left out.
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
        """The trigger that tells of its failures."""
        return f"{self.id}/alert"


@dataclass(frozen=True, kw_only=True)
class PollerSettings:
    """What holds for all jobs."""

    default_jitter_ms: int = 5_000
    lease_ttl_factor: float = 2.0
    failure_alert_cooldown_secs: float = 3_600.0
    breaker_threshold: int = 5
