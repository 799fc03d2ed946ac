"""One simulation from the configuration's directory to its report; a history that fails becomes a test case."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from harken.config.loaded import Loaded
from harken.config.settings import is_url
from harken.durations import format_duration
from harken.errors import Misconfigured
from harken.operate.anonymize import Anonymiser
from harken.operate.load_and_check_configuration import load_directory
from harken.simulation.fault_counts import count_faults
from harken.simulation.judge import Judgement
from harken.simulation.read_test_cases import TESTS, shown_name
from harken.simulation.recorded_events import read_history
from harken.simulation.reduced_configuration import Configuration, SharedPlans, in_use
from harken.simulation.script import START, Arrival, Script
from harken.simulation.script_from_seed import ALL_FAULTS, OF_REPLICAS, generate
from harken.simulation.script_to_case_file import case_of, file_of
from harken.simulation.shrink_failing_script import play, shrink

__all__ = ["Report", "simulate"]

DAY = 86_400.0
MOST_SHOWN = 10


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `file` has the shortest history that fails, of `items` things that happen.

    `planned` is how often each kind of fault was in the history; `kills`, `restarts`, `freezes` and `cuts` are those
    that met a process. `notes` say in words what the configuration has not.
    """

    seed: int
    days: float
    from_history: bool
    feeds: int
    triggers: int
    shown: int
    recorded: int
    runs: int
    done: int
    failed: int
    replicas: int
    planned: Mapping[str, int]
    kills: int
    restarts: int
    freezes: int
    cuts: int
    tickets: int
    lost: int
    doubled: int
    mislabelled: int
    command: str
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    file: str = ""
    items: int = 0

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.mislabelled)

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = msgspec.to_builtins(self)
        return row


def simulate(
    directory: Path,
    seed: int,
    *,
    days: float = 3.0,
    replicas: int = 1,
    faults: Collection[str] = ALL_FAULTS,
    history_seconds: float | None = None,
    write: Path | None = None,
    on_progress: Callable[[float], None] = lambda seconds: None,
    on_shrink: Callable[[int, int], None] = lambda tries, items: None,
) -> Report:
    """Play one seed. Raise Misconfigured when there is nothing to simulate."""
    loaded = load_directory(directory)
    configuration = in_use(loaded)
    if not configuration.triggers:
        raise Misconfigured("no trigger is configured", fix="See: harken config check")
    if replicas == 1 and set(faults) <= set(OF_REPLICAS):
        message = f"the fault {' or '.join(faults)} befalls one of several replicas"
        raise Misconfigured(message, fix="Add --replicas 3")
    start, history = START, None
    if history_seconds is not None:
        start, history = asyncio.run(read_history(loaded, history_seconds))
        days = history_seconds / DAY
    script = generate(configuration, seed, days=days, faults=faults, history=history, start=start, replicas=replicas)
    plans = SharedPlans(loaded)
    played = play(configuration, script, plans, on_progress)
    judgement = played.judgement
    file, items = "", 0
    if judgement.faults:
        smaller, short = shrink(configuration, script, judgement, plans, on_shrink)
        target = write or directory / TESTS / f"simulated-{seed}.yaml"
        items = len(short.items)
        _write(target, smaller, short, judgement, plans)
        file = shown_name(target, directory)
    return Report(
        seed=seed,
        days=days,
        from_history=history is not None,
        feeds=sum(feed.way != "internal" for feed in configuration.feeds),
        triggers=len(configuration.triggers),
        shown=judgement.shown,
        recorded=judgement.recorded,
        runs=judgement.runs,
        done=judgement.done,
        failed=judgement.failed,
        replicas=replicas,
        planned=count_faults(script, dst="dst" in faults and history is None),
        kills=played.kills,
        restarts=played.restarts,
        freezes=played.freezes,
        cuts=played.cuts,
        tickets=judgement.tickets,
        lost=judgement.lost,
        doubled=judgement.doubled,
        mislabelled=judgement.mislabelled,
        command=_command(seed, days, replicas, faults, history_seconds),
        notes=tuple(_notes(loaded, replicas)),
        faults=tuple(str(fault) for fault in judgement.faults[:MOST_SHOWN]),
        file=file,
        items=items,
    )


def _notes(loaded: Loaded, replicas: int) -> Iterator[str]:
    """What a reader may expect to have been simulated, and was not, because the configuration has none of it."""
    if not loaded.trackers:
        yield "This configuration has no tracker, so no tickets were simulated."
    if replicas > 1 and not is_url(loaded.store):
        yield f"The store of this configuration is a file: {replicas} replicas need PostgreSQL or Redis."


def _command(seed: int, days: float, replicas: int, faults: Collection[str], history_seconds: float | None) -> str:
    words = ["harken", "simulate", "--seed", str(seed)]
    if history_seconds is not None:
        words += ["--from-history", format_duration(history_seconds)]
    elif days != 3.0:
        words += ["--days", f"{days:g}"]
    if replicas != 1:
        words += ["--replicas", str(replicas)]
    if set(faults) != set(ALL_FAULTS):
        words += [word for fault in faults for word in ("--fault", fault)]
    return shlex.join(words)


def _write(
    target: Path, configuration: Configuration, script: Script, judgement: Judgement, plans: SharedPlans
) -> None:
    """Write the case without secrets, and without people if it fails without them too."""
    bare = _without(script, configuration.loaded)
    nameless = _without(script, configuration.loaded, people=True)
    kinds = {fault.kind for fault in judgement.faults}
    found = play(configuration, nameless, plans).judgement
    written = nameless if kinds & {fault.kind for fault in found.faults} else bare
    name = f"nothing is lost or doubled (seed {script.seed})"
    expect = {"lost": 0, "doubled": 0} | ({"mislabelled": 0} if configuration.loaded.trackers else {})
    case = case_of(name, written, configuration, expect)
    comment = f"Found by harken simulate: {judgement.faults[0]}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(file_of([case], {}, " ".join(_clean(comment, configuration.loaded).split())), "utf-8")


def _clean(text: str, loaded: Loaded) -> str:
    return Anonymiser(loaded.secrets).text(text)


def _without(script: Script, loaded: Loaded, *, people: bool = False) -> Script:
    anonymiser = Anonymiser(loaded.secrets)

    def changed(item: Any) -> Any:
        if not isinstance(item, Arrival):
            return item
        keep = () if people else ((),)
        subject = anonymiser.text(item.subject) if people else item.subject
        return msgspec.structs.replace(item, data=anonymiser.data(item.data, keep), subject=subject)

    return msgspec.structs.replace(script, items=tuple(changed(item) for item in script.items))
