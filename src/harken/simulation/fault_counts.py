"""How often each kind of fault is in a script, under the names that `--fault` has."""

from __future__ import annotations

from collections.abc import Mapping

from harken.simulation.script import (
    Arrival,
    ClockJump,
    Crash,
    Cut,
    Freeze,
    Lock,
    Restart,
    Script,
    Sleep,
    Trouble,
)
from harken.simulation.script_from_seed import ALL_FAULTS

__all__ = ["count_faults"]

_KINDS = {Crash: "crash", Lock: "lock", Restart: "restart", Freeze: "freeze", Cut: "cut", Sleep: "sleep"}


def count_faults(script: Script, *, dst: bool) -> Mapping[str, int]:
    """The faults that the script has, by kind; kinds without any are left out. `dst`: the clocks change in it."""
    counts: dict[str, int] = dict.fromkeys(ALL_FAULTS, 0)
    shown: set[tuple[str, str, str | None]] = set()
    for item in script.items:
        if isinstance(item, Trouble):
            counts["429" if item.kind == "rate_limited" else "outage"] += 1
        elif isinstance(item, ClockJump):
            counts["clock"] += 1
        elif isinstance(item, Arrival):
            name = (item.feed, item.subject, item.state)
            counts["duplicate"] += name in shown
            counts["late"] += item.dated is not None and item.dated < item.at and name not in shown
            shown.add(name)
        elif type(item) in _KINDS:
            counts[_KINDS[type(item)]] += 1
    counts["dst"] = int(dst)
    return {name: count for name, count in counts.items() if count}
