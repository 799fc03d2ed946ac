"""Which accounts the steps of a workflow use, so that a missing one is found before anything runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harken.config.findings import Path

__all__ = ["uses"]

# where steps have steps of their own; anything else in a step is its data
_NESTED = ("steps", "then", "else", "default", "cases", "branches")


def uses(steps: Any, path: Path = ("steps",)) -> Iterator[tuple[Path, str]]:
    """Yield the integration that each step names, with the place of the name."""
    for at, step in enumerate(steps if isinstance(steps, list) else ()):
        if isinstance(step, list):
            yield from uses(step, (*path, at))
        elif isinstance(step, Mapping):
            yield from _used(step, (*path, at))


def _used(step: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, str]]:
    key = "action" if "action" in step else "type"
    action, channel = step.get(key), step.get("channel")
    if isinstance(action, str) and "." in action:
        yield (*path, key), action.rpartition(".")[0]
    if action == "notify" and isinstance(channel, str) and "{{" not in channel:
        yield (*path, "channel"), channel
    for name in _NESTED:
        inner = step.get(name)
        if isinstance(inner, Mapping):
            for case, block in inner.items():
                yield from uses(block, (*path, name, case))
        else:
            yield from uses(inner, (*path, name))
