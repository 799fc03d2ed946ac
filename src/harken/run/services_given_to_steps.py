"""What steps may touch beyond their run: the network, models, destinations and services' actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from harken.clock import Clock
from harken.runs import Claimed
from harken.source import Act, Destination, Host

if TYPE_CHECKING:
    from harken.http import Client
    from harken.run.agents.host_settings import AgentHost
    from harken.run.language_models import Models
    from harken.run.plan import Bracket

__all__ = ["Environment", "unbracketed", "unchanged"]


def unchanged(value: Any) -> Any:
    """The `redact` of an environment without secrets."""
    return value


def unbracketed(claimed: Claimed) -> Bracket | None:
    """The `bracket` of an environment in which every run begins with its own first step."""
    return None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """`destination` and `action` raise NotFound for names that are not configured; `workflow_rev` returns None.

    `action("slack.post")` returns the act, and the account and host that it is called with. `redact` removes our own
    secrets from whatever is stored. Without `agents`, agent steps are off. `bracket` gives the steps that are executed
    before and after those of a run; whether it has such steps depends only on the feed of its events.
    """

    http: Client
    clock: Clock
    random: Random
    models: Models
    destination: Callable[[str], Destination]
    action: Callable[[str], tuple[Act, Any, Host]]
    workflow_rev: Callable[[str], str | None]
    allow_shell: bool = False
    allow_python: bool | Literal["network"] = False
    agents: AgentHost | None = None
    redact: Callable[[Any], Any] = field(default=unchanged)
    bracket: Callable[[Claimed], Bracket | None] = field(default=unbracketed)
