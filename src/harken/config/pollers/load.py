"""Pollers: jobs that watch something and deliver a message about it. Each is refused alone, and its siblings run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from pydantic import BaseModel

from harken.config.accounts import plugin_of
from harken.config.agents import Agents
from harken.config.feeds import LOOPBACK_FLOOR, dump, host_of, is_loopback, keepable, read_query, written_secrets
from harken.config.findings import Finding, Path, Place, Report, elsewhere
from harken.config.loaded import Account
from harken.config.pollers.delivery import Delivering, deliveries, read_outlet
from harken.config.pollers.legacy_gmail import deprecations, translate
from harken.config.pollers.schema import Job, JobBlock, Outlet, PollersBlock, PollerSettings, Written, id_place, job_id
from harken.config.resolver import Made, Resolver
from harken.config.schedules import Pace, read_pace
from harken.config.validate import as_table, check
from harken.config.workflows import Checker, Entry
from harken.config.yaml.nodes import Items, Node, Scalar, Table, is_empty, plain
from harken.durations import format_duration
from harken.feed import Feed
from harken.schedule import At
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = [
    "LEGACY",
    "POLLERS",
    "JobEntry",
    "Pollers",
    "Section",
    "feed_name",
    "read_legacy",
    "read_pollers",
    "read_sections",
]


POLLERS = "pollers.yaml"

LEGACY = ("gmail-poller.yaml", "plugins/gmail-poller.yaml")

"""Where the older jobs for Gmail are looked for."""

_PATH: Path = ("pollers",)

_JOBS: Path = ("pollers", "jobs")


@dataclass(frozen=True, kw_only=True)
class Section:
    """One `pollers:` with what was found wrong while its file was read, such as a variable that is not set."""

    file: str
    node: Node
    found: Sequence[Finding]


def read_sections(sections: Sequence[Section], report: Report) -> tuple[PollersBlock | None, list[Written]]:
    """The settings, which may stand in one file only, and the jobs of all files."""
    jobs: list[Written] = []
    settings: dict[str, Node] = {}
    whole = Table(items={}, keys={}, place=sections[0].node.place if sections else Place(POLLERS))
    for section in sections:
        own = [one for one in section.found if len(one.path) < 3 or one.path[1] != "jobs"]
        report.findings += own
        table = as_table(section.node, report, _PATH)
        if table is None:
            continue
        for key in sorted(settings.keys() & (table.items.keys() - {"jobs"})):
            report.error(table.keys[key], (*_PATH, key), "stands in another file as well", "Keep one", "duplicate")
        settings |= {key: node for key, node in table.items.items() if key != "jobs"}
        whole = Table(items=settings, keys={**whole.keys, **table.keys}, place=table.place)
        jobs += _jobs(table, section, report)
    return check(PollersBlock, whole, report, _PATH), jobs


def read_legacy(tree: Node, explicit: Sequence[Written], report: Report) -> list[Written]:
    """The jobs of an older gmail-poller.yaml, each with a warning; one that pollers.yaml has as well is left to it."""
    translated = translate(tree)
    report.findings += [*translated.findings, *deprecations(translated)]
    taken = {job_id(written.node) for written in explicit}
    return [Written(path=job.path, node=job.node, found=job.found) for job in translated.jobs if job.id not in taken]


def _jobs(table: Table, section: Section, report: Report) -> list[Written]:
    node = table.items.get("jobs")
    if node is None or is_empty(node):
        return []
    if not isinstance(node, Items):
        report.error(node.place, _JOBS, "must be a list", "Write - id: … for each job", "wrong_type")
        return []
    by_place: dict[object, list[Finding]] = {}
    for one in section.found:
        if one.path[:2] == _JOBS and len(one.path) > 2:
            by_place.setdefault(one.path[2], []).append(one)
    return [
        Written(path=(*_JOBS, at), node=inner, found=tuple(by_place.get(at, ()))) for at, inner in enumerate(node.items)
    ]


SHORTEST_TICK = 30.0


@dataclass(frozen=True, kw_only=True)
class JobEntry:
    """A job with what the engine runs for it: its own workflow, and the one that tells of failures."""

    job: Job
    entries: tuple[Entry, ...]
    place: Place


@dataclass(kw_only=True)
class Pollers:
    """All that the files say; `reports` has the findings of each job by its id, or by its place without one."""

    settings: PollerSettings
    jobs: dict[str, JobEntry] = field(default_factory=dict)
    reports: list[tuple[str, Report]] = field(default_factory=list)


def feed_name(job: str) -> str:
    return f"poller/{job}"


def read_pollers(
    block: PollersBlock, jobs: Sequence[Written], around: Resolver, agents: Agents, checker: Checker | None
) -> Pollers:
    """Read every job. Two that have one id are both refused, each with the place of the other."""
    settings = PollerSettings(
        default_jitter_ms=block.default_jitter_ms,
        lease_ttl_factor=block.lease_ttl_factor,
        failure_alert_cooldown_secs=block.failure_alert_cooldown_secs,
        breaker_threshold=block.breaker_threshold,
    )
    found = Pollers(settings=settings)
    places: dict[str, list[Place]] = {}
    for written in jobs:
        places.setdefault(job_id(written.node), []).append(id_place(written.node))
    for written in jobs:
        report, name = Report(), job_id(written.node)
        report.findings += written.found
        _check_twice(name, written, places[name], report)
        entry = _Job(settings, around, agents, checker, report, written.path).read(written.node)
        found.reports.append((name or f"{written.node.place.file}:{written.node.place.line}", report))
        if entry is not None and not report.failed:
            found.jobs[name] = entry
    return found


def _check_twice(name: str, written: Written, places: list[Place], report: Report) -> None:
    place = id_place(written.node)
    others = elsewhere(place, places)
    if name and others:
        path = (*written.path, "id")
        report.error(place, path, f"the id {name} is taken by {others} as well", "Change one of them", "clash")


class _Job:
    """One job while it is read: everything that is wrong with it gets its finding."""

    def __init__(
        self,
        settings: PollerSettings,
        around: Resolver,
        agents: Agents,
        checker: Checker | None,
        report: Report,
        path: Path,
    ) -> None:
        self._settings = settings
        self._around = around
        self._agents = agents
        self._checker = checker
        self._report = report
        self._path = path

    def read(self, node: Node) -> JobEntry | None:
        table = as_table(node, self._report, self._path)
        if table is None:
            return None
        block = check(JobBlock, table, self._report, self._path)
        plugin = self._plugin(table)
        agent = _text(table, "agent")
        if agent:
            self._agents.check(agent, table.items["agent"].place, self._report, (*self._path, "agent"))
        if plugin is None:
            return None
        account = self._account(table, plugin, agent) if agent else None
        made = self._config(table, plugin, agent)
        pace = self._pace(table, plugin, account)
        failure = self._outlet(table, "failure_to", agent) if "failure_to" in table.items else None
        if block is None or account is None or made is None or pace is None or self._report.failed:
            return None
        return self._entry(block, table, plugin, account, made, pace, failure)

    def _plugin(self, table: Table) -> Plugin | None:
        kind = _text(table, "kind")
        if not kind:
            return None
        plugin = plugin_of(kind, self._around.plugins)
        place, path = table.items["kind"].place, (*self._path, "kind")
        if plugin is None:
            found = [plugin for plugin in self._around.plugins.values() if plugin.source is not None]
            watched = [name for one in found for name in (one.kind, *one.aliases)]
            self._report.error(place, path, f"there is no kind {kind!r}", suggest_fix(kind, watched), "unknown_name")
        elif plugin.source is None:
            self._report.error(place, path, f"{kind} cannot be polled", "Use another kind")
            return None
        return plugin

    def _config(self, table: Table, plugin: Plugin, agent: str) -> tuple[BaseModel | None, Delivering, Outlet] | None:
        """The query of the kind, what is common to all kinds, and where the messages go."""
        path = (*self._path, "config")
        node = table.items.get("config", Table(items={}, keys={}, place=table.place))
        config = as_table(node, self._report, path)
        if config is None:
            return None
        own = set(plugin.query.model_fields) if plugin.query else set()
        shared = set(Delivering.model_fields)
        common = check(Delivering, config.without(*(set(config.items) - shared)), self._report, path)
        asked = config.without(*(shared - own))
        query, readable = read_query(plugin.query, asked, self._report, path, kind=plugin.kind)
        self._suggest_from(own | shared, path)
        outlet = self._outlet(config, "deliver", agent, path)
        if common is None or outlet is None or not readable:
            return None
        self._around.secrets |= written_secrets(dump(query))
        return query, common, outlet

    def _suggest_from(self, names: set[str], path: Path) -> None:
        """A setting that does not exist may be meant for the message as well as for the kind."""
        for at, found in enumerate(self._report.findings):
            if found.code == "unknown_key" and found.path[:-1] == path:
                fix = suggest_fix(str(found.path[-1]), names)
                self._report.findings[at] = msgspec.structs.replace(found, fix=fix)

    def _outlet(self, table: Table, key: str, agent: str, path: Path | None = None) -> Outlet | None:
        path = (*(path or self._path), key)
        if key not in table.items:
            self._report.error(table.place, path, "is missing", f"Add {key}: {{channel: …, to: …}}", "missing")
            return None
        return read_outlet(table.items[key], agent, self._agents, self._around, self._report, path)

    def _account(self, table: Table, plugin: Plugin, agent: str) -> Account | None:
        place, path = table.items["kind"].place, (*self._path, "kind")
        return self._agents.account(agent, plugin, self._around, place, self._report, path)

    def _pace(self, table: Table, plugin: Plugin, account: Account | None) -> Pace | None:
        if "schedule" not in table.items:
            return None
        pace = read_pace(table.items["schedule"], self._report, (*self._path, "schedule"))
        floor = LOOPBACK_FLOOR if self._is_near(table, account) else plugin.floor_seconds
        if pace is not None and pace.gap < floor:
            place, path = table.items["schedule"].place, (*self._path, "schedule")
            fix = f"Read it every {format_duration(floor)} at most"
            self._report.error(place, path, f"{plugin.kind} may not be read that often", fix, "too_often")
        return pace

    def _is_near(self, table: Table, account: Account | None) -> bool:
        # as it is written: what else is wrong with it does not move the service to another machine
        config = table.items.get("config")
        host = host_of(plain(config) if isinstance(config, Table) else {}, account.base_url if account else "")
        # where an account is that was refused, nobody knows
        return is_loopback(host) if host else account is None

    def _entry(
        self,
        block: JobBlock,
        table: Table,
        plugin: Plugin,
        account: Account,
        made: tuple[BaseModel | None, Delivering, Outlet],
        pace: Pace,
        failure: Outlet | None,
    ) -> JobEntry:
        query, common, outlet = made
        feed = self._feed(block, plugin, account, query, common, pace)
        whole = deliveries(
            block.id, feed, plugin, query, common, outlet, failure, table, self._around, self._checker, self._report
        )
        job = Job(
            id=block.id,
            kind=plugin.kind,
            agent=block.agent,
            feed=feed.name,
            deliver=outlet,
            failure_to=failure,
            paused_on_boot=block.paused_on_boot,
            settings={
                "id": block.id,
                "kind": plugin.kind,
                "agent": block.agent,
                "schedule": pace.shown(self._settings.default_jitter_ms),
                "config": {**feed.query, **whole.shown, "deliver": _shown(outlet)},
                "failure_to": _shown(failure),
                "paused_on_boot": block.paused_on_boot,
            },
        )
        entries = (msgspec.structs.replace(whole.entries[0], made=Made(feed=feed, query=query)), *whole.entries[1:])
        return JobEntry(job=job, entries=entries, place=id_place(table))

    def _feed(
        self,
        block: JobBlock,
        plugin: Plugin,
        account: Account,
        query: BaseModel | None,
        common: Delivering,
        pace: Pace,
    ) -> Feed:
        # what comes once has no second read for which the first could prepare
        once = "deliver" if isinstance(pace.schedule, At) and plugin.first == "baseline" else plugin.first
        longest = max(SHORTEST_TICK, min(pace.gap * self._settings.lease_ttl_factor, 86_400.0))
        jitter = self._settings.default_jitter_ms if pace.jitter_ms is None else pace.jitter_ms
        slow = float(getattr(query, "timeout", 0.0) or 0.0)
        return Feed(
            name=feed_name(block.id),
            kind=plugin.kind,
            integration=account.name,
            query=keepable(query, self._around.hide),
            schedule=pace.schedule,
            identity=common.identity or plugin.identity,
            lookback=plugin.lookback_seconds,
            first=common.first or once,
            page_timeout=min(longest, max(10.0, slow + 5.0)),
            tick_timeout=longest,
            jitter=0.0,
            added_jitter=jitter / 1_000,
            breaker=self._settings.breaker_threshold,
            backoff=account.backoff,
        )


def _text(table: Table, key: str) -> str:
    node = table.items.get(key)
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""


def _shown(outlet: Outlet | None) -> dict[str, str] | None:
    if outlet is None:
        return None
    return {"channel": outlet.channel, "to": outlet.to, **({"template": outlet.template} if outlet.template else {})}
