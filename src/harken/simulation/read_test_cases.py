"""Reads files of test cases: to scripts and expectations, with the place of everything that may be wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from harken.config.findings import Finding, Place, Report
from harken.config.loaded import Loaded
from harken.config.model_validation import check
from harken.config.yaml.nodes import Items, Node, Table, locate
from harken.config.yaml.parser import parse
from harken.errors import NotFound
from harken.feed import INTERNAL, Feed, Trigger
from harken.simulation.case_schema import FAULTS, CaseBlock, CasesFile, GivenBlock
from harken.simulation.script import (
    START,
    Arrival,
    ClockJump,
    Crash,
    Cut,
    Freeze,
    Happening,
    Lock,
    Restart,
    Script,
    Sleep,
    StandIn,
    TicketChange,
    Trouble,
)
from harken.simulation.step_stand_ins import Answer
from harken.suggest import suggest_fix
from harken.tickets import feed_name, tracker_of

__all__ = ["TESTS", "Case", "CaseFile", "Unfit", "compile_case", "find_files", "read_file", "shown_name"]

TESTS = "tests"
"""The directory of the cases, beside workflows/."""
_ENDINGS = (".yaml", ".yml")
FIRST = 1.0
"""Things happen from so many seconds on, so that an event is not as old as its trigger."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case as it is written. `node` has the places of its parts."""

    file: str
    block: CaseBlock
    node: Node

    @property
    def place(self) -> Place:
        return locate(self.node, ("name",))


@dataclass(frozen=True, kw_only=True)
class CaseFile:
    """A file that was read; one with findings has no cases."""

    file: str
    environment: Mapping[str, str]
    cases: tuple[Case, ...] = ()
    findings: tuple[Finding, ...] = ()


class Unfit(Exception):
    """A case that does not fit its configuration. `path` leads to the part that does not."""

    def __init__(self, path: tuple[str | int, ...], message: str, fix: str = "") -> None:
        super().__init__(message)
        self.path, self.message, self.fix = path, message, fix


def find_files(directory: Path, path: Path | None = None) -> list[Path]:
    """The files of cases: below `tests/` of the configuration, or below the path, or the path itself."""
    root = path or directory / TESTS
    if root.is_file():
        return [root]
    if path is not None and not root.is_dir():
        raise NotFound(f"there is no file or directory {path}", fix=f"Cases are in {directory / TESTS}")
    return sorted(_walk(root)) if root.is_dir() else []


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder) / name for name in names if name.endswith(_ENDINGS) and not name.startswith("."))


def read_file(path: Path, shown: str) -> CaseFile:
    """Read the file; `shown` is its name for people."""
    report = Report()
    tree = parse(path.read_bytes(), shown, report)
    block = check(CasesFile, tree, report) if tree is not None and not report.failed else None
    if block is None or not isinstance(tree, Table):
        return CaseFile(file=shown, environment={}, findings=tuple(report.findings))
    listed = tree.items["cases"]
    nodes = listed.items if isinstance(listed, Items) else ()
    cases = [Case(file=shown, block=one, node=node) for one, node in zip(block.cases, nodes, strict=True)]
    return CaseFile(file=shown, environment=block.environment, cases=tuple(cases))


def compile_case(case: Case, loaded: Loaded) -> tuple[Script, list[str], list[Answer]]:
    """Return the script, the feeds that are in use, and what stand-ins answer. Raise Unfit for unknown names."""
    block = case.block
    names = _Names(loaded)
    items = tuple(_items(block, names))
    feeds = {item.feed for item in items if isinstance(item, Arrival | Trouble | TicketChange)}
    stand_ins: dict[str, StandIn] = {}
    for name, source in block.sources.items():
        feed = names.feed(name, ("sources", name))
        stand_ins[feed.name] = StandIn(view=source.view, page_size=source.page_size)
        feeds.add(feed.name)
    feeds |= set(_expected_feeds(block, names))
    script = Script(
        items=items,
        start=block.start or START,
        seconds=block.lasts,
        stand_ins=stand_ins,
        seed=block.seed,
        baselined=block.first_read == "before",
        replicas=block.replicas,
    )
    return script, sorted(feeds), [_answer(one) for one in block.answers]


def _expected_feeds(block: CaseBlock, names: _Names) -> Iterator[str]:
    """The feeds of triggers that the case is about, even if nothing comes from them."""
    if block.trigger:
        yield names.trigger(block.trigger, ("trigger",)).feed
    for at, verdict in enumerate(block.expect.verdicts):
        if verdict.trigger:
            yield names.trigger(verdict.trigger, ("expect", "verdicts", at, "trigger")).feed
    for at, run in enumerate(block.expect.runs if isinstance(block.expect.runs, list) else ()):
        if run.trigger:
            yield names.trigger(run.trigger, ("expect", "runs", at, "trigger")).feed
        if run.workflow is not None and run.workflow not in names.workflows:
            fix = suggest_fix(run.workflow, names.workflows)
            raise Unfit(("expect", "runs", at, "workflow"), f"there is no workflow {run.workflow}", fix)


class _Names:
    """Feeds and triggers by the names that people use."""

    def __init__(self, loaded: Loaded) -> None:
        self.feeds = {feed.name: feed for feed in loaded.feeds}
        self.labels = {feed.display_name: feed for feed in loaded.feeds} | self.feeds
        self.triggers = {trigger.name: trigger for trigger in loaded.triggers}
        self.workflows = set(loaded.workflows)
        self.trackers = loaded.trackers

    def trigger(self, name: str, path: tuple[str | int, ...]) -> Trigger:
        if name not in self.triggers:
            raise Unfit(path, f"there is no trigger {name}", suggest_fix(name, self.triggers))
        return self.triggers[name]

    def feed(self, name: str, path: tuple[str | int, ...]) -> Feed:
        """The feed of this name, or that of the trigger of this name."""
        if name in self.labels:
            return self.labels[name]
        if name in self.triggers:
            return self.feeds[self.triggers[name].feed]
        raise Unfit(path, f"there is no feed or trigger {name}", suggest_fix(name, {*self.labels, *self.triggers}))

    def tracker(self, given: GivenBlock, path: tuple[str | int, ...]) -> Feed:
        """The feed of the tracker that is named; of the only one if none is."""
        known = [name for feed in self.feeds if (name := tracker_of(feed))]
        name = given.tracker or (known[0] if len(known) == 1 else "")
        if name not in known:
            message = f"there is no tracker {name}" if name else "does not say whose ticket this is"
            raise Unfit((*path, "tracker") if given.tracker else path, message, suggest_fix(name, known))
        projects = [project.name for project in self.trackers[name].projects]
        if given.project and given.project not in projects:
            message = f"{name} has no project {given.project}"
            raise Unfit((*path, "project"), message, suggest_fix(given.project, projects))
        return self.feeds[feed_name(name)]

    def of(self, given: GivenBlock, block: CaseBlock, path: tuple[str | int, ...]) -> Feed:
        """The feed that something happens to."""
        if given.feed:
            return self.feed(given.feed, (*path, "feed"))
        if given.trigger or block.trigger:
            at = (*path, "trigger") if given.trigger else ("trigger",)
            return self.feeds[self.trigger(given.trigger or block.trigger, at).feed]
        fed = {trigger.feed for trigger in self.triggers.values() if trigger.feed != INTERNAL}
        if len(fed) != 1:
            raise Unfit(path, "does not say whose event this is", f"Name its trigger. {suggest_fix('', self.triggers)}")
        return self.feeds[fed.pop()]


def _items(block: CaseBlock, names: _Names) -> Iterator[Happening]:
    now = FIRST
    for number, given in enumerate(block.given):
        path = ("given", number)
        if given.at is not None:
            now = given.at
        if given.wait is not None:
            now += given.wait
        elif given.event is not None:
            yield from _arrivals(given, names.of(given, block, path), names, now, number)
        elif given.ticket is not None:
            yield _ticket(given, names.tracker(given, path), now)
        elif given.fault is not None:
            feed = names.of(given, block, path)
            kind: Any = FAULTS[given.fault]
            yield Trouble(at=now, feed=feed.name, kind=kind, seconds=given.lasts, retry_after=given.retry_after)
        else:
            yield _of_process(given, now)


def _ticket(given: GivenBlock, feed: Feed, now: float) -> TicketChange:
    return TicketChange(
        at=now,
        feed=feed.name,
        ticket=given.ticket or "",
        what=given.does,
        labels=tuple(given.labels),
        project=given.project,
        webhooks=given.webhooks,
        lag=given.lag,
    )


def _of_process(given: GivenBlock, now: float) -> Happening:
    if given.crash is not None:
        return Crash(
            at=now,
            verb=_verb(given.crash),
            skip=given.skip,
            after=given.after,
            down=given.down,
            replica=given.replica,
        )
    if given.lock is not None:
        return Lock(at=now, verb=_verb(given.lock), verbs=given.verbs, after=given.after, replica=given.replica)
    if given.restart is not None:
        return Restart(at=now, down=given.restart, replica=given.replica)
    if (said := given.freeze if given.freeze is not None else given.cut) is not None:
        return (Freeze if given.freeze is not None else Cut)(
            at=now,
            seconds=given.lasts,
            verb=_verb(said),
            skip=given.skip,
            after=given.after,
            replica=given.replica,
        )
    if given.sleep is not None:
        return Sleep(at=now, seconds=given.sleep)
    assert given.clock is not None
    return ClockJump(at=now, seconds=given.clock)


def _verb(given: str | bool) -> str:
    return given if isinstance(given, str) else ""


def _arrivals(given: GivenBlock, feed: Feed, names: _Names, now: float, number: int) -> Iterator[Arrival]:
    data = given.event or {}
    subject = given.subject or str(data.get("id") or data.get("key") or f"event-{number + 1}")
    types = [kind for trigger in names.triggers.values() if trigger.feed == feed.name for kind in trigger.types]
    arrival = Arrival(
        at=now,
        feed=feed.name,
        subject=subject,
        type=given.type or (types[0] if types else feed.kind),
        data=data,
        key=given.key,
        state=given.state,
        dated=None if given.undated else now - given.late,
        gone=None if given.gone is None else now + given.gone,
    )
    for _ in range(given.times):
        yield arrival


def _answer(block: Any) -> Answer:
    given = "answer" in block.model_fields_set
    return Answer(
        action=block.action,
        step=block.step,
        answer=block.answer if given else msgspec.UNSET,
        status=block.status,
        error=block.error,
        retry_after=block.retry_after,
        times=block.times,
    )


def shown_name(path: Path, directory: Path) -> str:
    """The path as people wrote it: relative to the configuration where it is inside."""
    try:
        return path.relative_to(directory).as_posix()
    except ValueError:
        return path.as_posix()
