"""What agent steps may use on this machine. Without it they are off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harken.run.agents.workspace import CodeSource

__all__ = ["AgentHost"]


@dataclass(frozen=True, kw_only=True)
class AgentHost:
    """`directory` holds mirrors, workspaces and the outputs of agents; `configuration` is where harken.yaml is.

    Worktrees and outputs that nobody has used for `keep_seconds` are removed. `code_of` returns the repository of the
    project that a trigger belongs to; None if it has none. `tracker_secrets` are the credentials of trackers, which no
    agent gets."""

    directory: Path
    configuration: Path = Path()
    keep_seconds: float = 30 * 86_400.0
    code_of: Callable[[str], CodeSource | None] = lambda trigger: None
    tracker_secrets: Callable[[], frozenset[str]] = frozenset
