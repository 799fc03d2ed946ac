"""What a replica does: everything, or one part of it where the parts are scaled apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from harken.operate.fleet import READERS
from harken.runs import Claimed

__all__ = ["NoHands", "Role", "executes", "not_reading", "reads", "takes_webhooks"]

Role = Literal["all", "ingest", "run", "api"]


def reads(role: Role) -> bool:
    """Polls and follows streams."""
    return role in READERS


def executes(role: Role) -> bool:
    """Claims runs and executes their steps."""
    return role in ("all", "run")


def takes_webhooks(role: Role) -> bool:
    return role != "run"


def not_reading(role: Role, shared: bool, behind: str) -> tuple[str, str]:
    """State and reason of a replica that holds no lease; `behind` is the generation of the others, if it is another."""
    if not reads(role):
        return "disabled", f"as --role {role} it reads nothing"
    if shared and not behind:
        return "up", "the other replicas read all feeds"
    return "degraded", "it holds no lease, so it reads nothing"


class NoHands:
    """Executes nothing here: the runs are left to those replicas that do."""

    def __init__(self, holder: str) -> None:
        self.holder = holder

    def reserve(self, wanted: int) -> int:
        return 0

    def unreserve(self, count: int) -> None:
        """Nothing was reserved."""

    def accept(self, claimed: Sequence[Claimed]) -> None:
        """Nothing was reserved, so nothing is handed over."""

    def nudge(self) -> None:
        """Others look for themselves."""
