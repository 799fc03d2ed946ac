"""Jobs as they were understood: what a poller watches, on whose behalf, and where its messages go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Job", "Outlet", "PollerSettings"]


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
