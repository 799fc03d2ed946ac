"""What steps may touch beyond their run: the network, models, destinations and services' actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from harken.clock import Clock
from harken.source import Act, Destination, Host

if TYPE_CHECKING:
    from harken.http import Client
    from harken.run.agents.host import AgentHost
    from harken.run.models import Models

__all__ = ["Environment", "unchanged"]


def unchanged(value: Any) -> Any:
    """The `redact` of an environment without secrets."""
    return value


@dataclass(frozen=True, kw_only=True)
class Environment:
    """`destination` and `action` raise NotFound for names that are not configured; `workflow_rev` returns None.

    `action("slack.post")` returns the act, and the account and host that it is called with. `redact` removes our own
    secrets from whatever is stored. Without `agents`, agent steps are off.
    """

    http: Client
    clock: Clock
    random: Random
    models: Models
    destination: Callable[[str], Destination]
    action: Callable[[str], tuple[Act, Any, Host]]
    workflow_rev: Callable[[str], str | None]
    allow_shell: bool = False
    agents: AgentHost | None = None
    redact: Callable[[Any], Any] = field(default=unchanged)
