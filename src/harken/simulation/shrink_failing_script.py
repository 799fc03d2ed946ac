"""Plays scripts of many seeds, and shrinks one that fails to the shortest that still does (delta debugging)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from harken.simulation.engine import Simulation, without_logs
from harken.simulation.judge import Judgement, judge
from harken.simulation.reduced_configuration import Configuration, SharedPlans, in_use
from harken.simulation.script import (
    START,
    Arrival,
    Cut,
    Freeze,
    Happening,
    OfProcess,
    Script,
    StandIn,
    TicketChange,
    Trouble,
)
from harken.testing import VirtualClock, VirtualLoop, run_virtual

__all__ = ["Played", "play", "shrink"]

MOST_TRIES = 600
"""So many shorter scripts are played at most."""
GAPS = (1.0, 60.0, 600.0, 3_600.0, 4 * 3_600.0)
"""Seconds to which a longer pause between two things is shortened, if it fails all the same."""


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a script: `kills` and `restarts` of the process, `freezes` and `cuts` of one of several replicas.

    `seconds` of virtual time.
    """

    judgement: Judgement
    kills: int
    restarts: int
    freezes: int
    cuts: int
    seconds: float


def play(
    configuration: Configuration,
    script: Script,
    plans: SharedPlans | None = None,
    on_progress: Callable[[float], None] = lambda seconds: None,
) -> Played:
    """Play the script on a virtual loop of its own; `on_progress` is told the seconds of virtual time."""

    async def main(clock: VirtualClock) -> Played:
        loop: Any = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        simulation = Simulation(configuration, script, loop, plans=plans, on_progress=on_progress)
        await simulation.play()
        judgement, processes = await judge(simulation), simulation.processes
        played = Played(
            judgement=judgement,
            kills=processes.kills,
            restarts=processes.restarts,
            freezes=processes.freezes,
            cuts=processes.cuts,
            seconds=simulation.elapsed,
        )
        await simulation.close()
        return played

    with without_logs():
        return run_virtual(main)


def shrink(
    configuration: Configuration,
    script: Script,
    judgement: Judgement,
    plans: SharedPlans | None = None,
    on_progress: Callable[[int, int], None] = lambda tries, items: None,
) -> tuple[Configuration, Script]:
    """The shortest script found in which something is lost or doubled as in the given one, with the feeds it needs."""
    return _Shrinking(configuration, script, judgement, plans, on_progress).run()


class _Shrinking:
    def __init__(
        self,
        configuration: Configuration,
        script: Script,
        judgement: Judgement,
        plans: SharedPlans | None,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self._configuration = configuration
        self._script = script
        self._kind = judgement.faults[0].kind
        self._feed = judgement.faults[0].feed
        self._plans = plans
        self._on_progress = on_progress
        self._tries = 0

    def run(self) -> tuple[Configuration, Script]:
        self._keep_one_feed()
        self._keep(msgspec.structs.replace(self._script, seconds=0.0))
        self._keep_few_items()
        self._keep_short_pauses()
        # what was needed to come through a long pause may not be needed now
        self._keep_few_items()
        self._keep_few_replicas()
        self._simplify()
        return self._configuration, self._script

    def _keep_one_feed(self) -> None:
        """What is lost or doubled is of one feed, and others seldom matter."""
        named = [feed.name for feed in self._configuration.feeds if feed.display_name == self._feed]
        if not named:
            return
        smaller = in_use(self._configuration.loaded, named)
        items = tuple(item for item in self._script.items if _is_about(item, named))
        stand_ins = {name: one for name, one in self._script.stand_ins.items() if name in named}
        script = msgspec.structs.replace(self._script, items=items, stand_ins=stand_ins)
        if self._fails(script, smaller):
            self._script, self._configuration = script, smaller

    def _keep_few_items(self) -> None:
        """Leave out ever smaller parts of the list, as long as it fails without them (ddmin)."""
        parts = 2
        while len(self._script.items) > 1 and self._tries < MOST_TRIES:
            items = self._script.items
            size = max(1, len(items) // parts)
            for begin in range(0, len(items), size):
                rest = items[:begin] + items[begin + size :]
                if self._keep(msgspec.structs.replace(self._script, items=rest)):
                    parts = max(2, parts - 1)
                    break
            else:
                if size == 1:
                    return
                parts = min(len(items), parts * 2)

    def _keep_short_pauses(self) -> None:
        """Move what comes after a long pause forward."""
        for number in range(len(self._script.items)):
            before = self._script.items[number - 1].at if number else 0.0
            pause = self._script.items[number].at - before
            for gap in GAPS:
                if gap < pause and self._keep(_moved(self._script, number, gap - pause)):
                    break

    def _keep_few_replicas(self) -> None:
        """Play it with fewer: alone, if nothing in it needs others."""
        needed = 2 if any(isinstance(item, Freeze | Cut) for item in self._script.items) else 1
        for count in range(needed, self._script.replicas):
            items = tuple(_seated(item, count) for item in self._script.items)
            if self._keep(msgspec.structs.replace(self._script, items=items, replicas=count)):
                return

    def _simplify(self) -> None:
        self._keep(msgspec.structs.replace(self._script, start=START))
        self._keep(msgspec.structs.replace(self._script, baselined=True))
        for stand_ins in ({}, {name: StandIn(view=one.view) for name, one in self._script.stand_ins.items()}):
            if stand_ins != self._script.stand_ins and self._keep(
                msgspec.structs.replace(self._script, stand_ins=stand_ins)
            ):
                return

    def _keep(self, script: Script) -> bool:
        """Go on with this script if it fails too."""
        if not self._fails(script, self._configuration):
            return False
        self._script = script
        return True

    def _fails(self, script: Script, configuration: Configuration) -> bool:
        if self._tries >= MOST_TRIES:
            return False
        self._tries += 1
        self._on_progress(self._tries, len(self._script.items))
        found = play(configuration, script, self._plans).judgement
        return any(fault.kind == self._kind for fault in found.faults)


def _is_about(item: Happening, feeds: Sequence[str]) -> bool:
    return not isinstance(item, Arrival | Trouble | TicketChange) or item.feed in feeds


def _seated(item: Happening, replicas: int) -> Happening:
    """The item, befalling one of so many replicas."""
    if not isinstance(item, OfProcess):
        return item
    return msgspec.structs.replace(item, replica=(item.replica - 1) % replicas + 1)


def _moved(script: Script, number: int, seconds: float) -> Script:
    """The script with the things from this number on so many seconds later."""
    items = [*script.items[:number], *(_later(item, seconds) for item in script.items[number:])]
    return msgspec.structs.replace(script, items=tuple(items))


def _later(item: Happening, seconds: float) -> Happening:
    moved: dict[str, float | None] = {"at": _milliseconds(item.at + seconds)}
    if isinstance(item, Arrival):
        dated, gone = item.dated, item.gone
        # how late it is stays; what claims to be from the start stays there
        moved |= {"dated": None if dated is None else max(0.0, _milliseconds(dated + seconds))}
        moved |= {"gone": None if gone is None else _milliseconds(gone + seconds)}
    return msgspec.structs.replace(item, **moved)


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1_000) / 1_000
