"""Read poller jobs: each watches a service and delivers messages. A wrong job is refused alone, and the others run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from harken.config.accounts import plugin_of
from harken.config.agent_account_bindings import Agents
from harken.config.feeds import LOOPBACK_FLOOR, host_of, is_loopback, read_query
from harken.config.findings import Finding, Path, Place, Report, other_places
from harken.config.loaded import Account, item
from harken.config.model_validation import as_table, check
from harken.config.pollers.delivery_workflows import DeliveryBlock, JobConfig, compile_job, read_outlet
from harken.config.pollers.legacy_gmail import deprecations, translate
from harken.config.pollers.schema import Job, JobBlock, Outlet, PollersBlock, PollerSettings, RawJob, id_place, job_id
from harken.config.resolver import FeedSpec, Resolver
from harken.config.schedules import JobSchedule, read_job_schedule
from harken.config.secret_values_to_mask import revealed_query, secrets_in_query, storable_query
from harken.config.workflows import Checker, WorkflowEntry
from harken.config.yaml.nodes import Items, Node, Scalar, Table, is_empty, to_plain
from harken.durations import format_duration
from harken.feed import Feed
from harken.schedule import At
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = [
    "LEGACY",
    "POLLERS",
    "PollersSection",
    "read_legacy",
    "read_pollers",
    "read_sections",
]

POLLERS = "pollers.yaml"
LEGACY = ("gmail-poller.yaml", "plugins/gmail-poller.yaml")
"""Files of the older format for Gmail jobs."""
SHORTEST_TICK = 30.0
_PATH: Path = ("pollers",)
_JOBS: Path = ("pollers", "jobs")


@dataclass(frozen=True, kw_only=True)
class PollersSection:
    """A `pollers:` section, with the findings of reading its file, such as a variable that is not set."""

    file: str
    node: Node
    found: Sequence[Finding]


@dataclass(frozen=True, kw_only=True)
class JobEntry:
    """A job with its workflows: the delivery, and the one that reports failures."""

    job: Job
    entries: tuple[WorkflowEntry, ...]
    place: Place


@dataclass(kw_only=True)
class Pollers:
    """All jobs; `reports` has the findings of each by its id, or by its place when it has none."""

    settings: PollerSettings
    jobs: dict[str, JobEntry] = field(default_factory=dict)
    reports: list[tuple[str, Report]] = field(default_factory=list)


def read_sections(sections: Sequence[PollersSection], report: Report) -> tuple[PollersBlock | None, list[RawJob]]:
    """Return the settings, each of which may be in one file only, and the jobs of all files."""
    jobs: list[RawJob] = []
    settings: dict[str, Node] = {}
    compiled = Table(items={}, keys={}, place=sections[0].node.place if sections else Place(POLLERS))
    for section in sections:
        own = [one for one in section.found if len(one.path) < 3 or one.path[1] != "jobs"]
        report.findings += own
        table = as_table(section.node, report, _PATH)
        if table is None:
            continue
        for key in sorted(settings.keys() & (table.items.keys() - {"jobs"})):
            report.error(table.keys[key], (*_PATH, key), "stands in another file as well", "Keep one", "duplicate")
        settings |= {key: node for key, node in table.items.items() if key != "jobs"}
        compiled = Table(items=settings, keys={**compiled.keys, **table.keys}, place=table.place)
        jobs += _read_jobs(table, section, report)
    return check(PollersBlock, compiled, report, _PATH), jobs


def _read_jobs(table: Table, section: PollersSection, report: Report) -> list[RawJob]:
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
        RawJob(path=(*_JOBS, at), node=inner, found=tuple(by_place.get(at, ()))) for at, inner in enumerate(node.items)
    ]


def read_legacy(tree: Node, explicit: Sequence[RawJob], report: Report) -> list[RawJob]:
    """Return the jobs of an older gmail-poller.yaml, each with a warning, except those that pollers.yaml has too."""
    translated = translate(tree)
    report.findings += [*translated.findings, *deprecations(translated)]
    taken = {job_id(raw.node) for raw in explicit}
    return [RawJob(path=job.path, node=job.node, found=job.found) for job in translated.jobs if job.id not in taken]


def read_pollers(
    block: PollersBlock, jobs: Sequence[RawJob], resolver: Resolver, agents: Agents, checker: Checker | None
) -> Pollers:
    """Read every job. Two with the same id are both refused, each with the place of the other."""
    settings = PollerSettings(
        default_jitter_ms=block.default_jitter_ms,
        lease_ttl_factor=block.lease_ttl_factor,
        failure_alert_cooldown_secs=block.failure_alert_cooldown_secs,
        breaker_threshold=block.breaker_threshold,
    )
    found = Pollers(settings=settings)
    only_agent = _only_agent(jobs, agents)
    places: dict[str, list[Place]] = {}
    for raw in jobs:
        places.setdefault(job_id(raw.node), []).append(id_place(raw.node))
    for raw in jobs:
        report, name = Report(), job_id(raw.node)
        report.findings += raw.found
        _check_unique(name, raw, places[name], report)
        entry = _JobReader(settings, resolver, agents, only_agent, checker, report, raw.path).read(raw.node)
        found.reports.append((name or f"{raw.node.place.file}:{raw.node.place.line}", report))
        if entry is not None and not report.failed:
            found.jobs[name] = entry
    return found


def _only_agent(jobs: Sequence[RawJob], agents: Agents) -> str:
    """Return the agent of jobs that name none: the only one that is listed or, without a list, that jobs name."""
    named = {_text(raw.node, "agent") for raw in jobs if isinstance(raw.node, Table)} - {""}
    known = set(agents.known) if agents.declared else named
    return known.pop() if len(known) == 1 else ""


def _check_unique(name: str, raw: RawJob, places: list[Place], report: Report) -> None:
    place = id_place(raw.node)
    others = other_places(place, places)
    if name and others:
        path = (*raw.path, "id")
        report.error(place, path, f"the id {name} is taken by {others} as well", "Change one of them", "clash")


class _JobReader:
    """Reads one job, and reports everything that is wrong with it."""

    def __init__(
        self,
        settings: PollerSettings,
        resolver: Resolver,
        agents: Agents,
        only_agent: str,
        checker: Checker | None,
        report: Report,
        path: Path,
    ) -> None:
        self._settings = settings
        self._resolver = resolver
        self._agents = agents
        self._only_agent = only_agent
        self._checker = checker
        self._report = report
        self._path = path

    def read(self, node: Node) -> JobEntry | None:
        table = as_table(node, self._report, self._path)
        if table is None:
            return None
        block = check(JobBlock, table, self._report, self._path)
        plugin = self._read_kind(table)
        agent = self._read_agent(table)
        if plugin is None:
            return None
        account = self._read_account(table, plugin, agent) if agent else None
        config = self._read_config(table, plugin, agent)
        job_schedule = self._read_schedule(table, plugin, account)
        failure = self._read_outlet(table, "failure_to", agent) if "failure_to" in table.items else None
        if block is None or account is None or config is None or job_schedule is None or self._report.failed:
            return None
        return self._build_entry(block, agent, table, plugin, account, config, job_schedule, failure)

    def _read_agent(self, table: Table) -> str:
        if "agent" in table.items:
            agent = _text(table, "agent")
            if agent:
                self._agents.check(agent, table.items["agent"].place, self._report, (*self._path, "agent"))
            return agent
        if not self._only_agent:
            known = sorted(self._agents.known)
            fix = f"Add agent: {' or '.join(known)}" if known else "Add it; it may be left out when there is one only"
            self._report.error(table.place, (*self._path, "agent"), "is missing", fix, "missing")
        return self._only_agent

    def _read_kind(self, table: Table) -> Plugin | None:
        if "kind" not in table.items and "integration" not in table.items:
            fix = "Add kind: with a service, or integration: with the name of one"
            self._report.error(table.place, (*self._path, "kind"), "is missing", fix, "missing")
            return None
        key = "kind" if "kind" in table.items else "integration"
        name = _text(table, key)
        kind = name if key == "kind" else self._resolver.kinds().get(name, name)
        if not kind:
            return None
        plugin = plugin_of(kind, self._resolver.plugins)
        place, path = table.items[key].place, (*self._path, key)
        if key == "integration" and plugin is None:
            if item("integration", name) in self._resolver.refused:
                message, fix = f"the integration {name} was refused", "Correct it first"
                self._report.error(place, path, message, fix, "depends")
            else:
                known = {*self._resolver.kinds(), *self._resolver.plugins}
                message, fix = f"there is no integration {name!r}", suggest_fix(name, known)
                self._report.error(place, path, message, fix, "unknown_name")
        elif plugin is None:
            found = [plugin for plugin in self._resolver.plugins.values() if plugin.source is not None]
            pollable = [name for one in found for name in (one.kind, *one.aliases)]
            self._report.error(place, path, f"there is no kind {kind!r}", suggest_fix(kind, pollable), "unknown_name")
        elif plugin.source is None:
            plugins = self._resolver.plugins.values()
            users = sorted(one.kind for one in plugins if one.uses == plugin.kind and one.source)
            fix = f"Name what to read as well: kind: {' or '.join(users)}" if users else "Use another kind"
            self._report.error(place, path, f"{kind} cannot be polled", fix)
            return None
        return plugin

    def _read_config(self, table: Table, plugin: Plugin, agent: str) -> JobConfig | None:
        path = (*self._path, "config")
        node = table.items.get("config", Table(items={}, keys={}, place=table.place))
        config = as_table(node, self._report, path)
        if config is None:
            return None
        own = set(plugin.query.model_fields) if plugin.query else set()
        shared = set(DeliveryBlock.model_fields)
        delivery = check(DeliveryBlock, config.without(*(set(config.items) - shared)), self._report, path)
        own_table = config.without(*(shared - own))
        query, readable = read_query(plugin.query, own_table, self._report, path, kind=plugin.kind)
        self._widen_suggestions(own | shared, path)
        outlet = self._read_deliver(table, config, agent, path)
        if delivery is None or outlet is None or not readable:
            return None
        self._resolver.secrets |= secrets_in_query(revealed_query(query))
        return JobConfig(query=query, delivery=delivery, outlet=outlet)

    def _read_deliver(self, table: Table, config: Table, agent: str, path: Path) -> Outlet | None:
        """Read `deliver:`, which stands in `config:` or beside it."""
        if "deliver" not in table.items:
            return self._read_outlet(config, "deliver", agent, path)
        if "deliver" in config.items:
            place, both = table.keys["deliver"], (*self._path, "deliver")
            self._report.error(place, both, "stands in config: as well", "Keep one", "duplicate")
        return self._read_outlet(table, "deliver", agent)

    def _widen_suggestions(self, names: set[str], path: Path) -> None:
        """Suggest from all settings of `config:`: an unknown one may be meant for the message or for the kind."""
        for at, found in enumerate(self._report.findings):
            if found.code == "unknown_key" and found.path[:-1] == path:
                fix = suggest_fix(str(found.path[-1]), names)
                self._report.findings[at] = msgspec.structs.replace(found, fix=fix)

    def _read_outlet(self, table: Table, key: str, agent: str, path: Path | None = None) -> Outlet | None:
        path = (*(path or self._path), key)
        if key not in table.items:
            self._report.error(table.place, path, "is missing", f"Add {key}: {{channel: …, to: …}}", "missing")
            return None
        return read_outlet(table.items[key], agent, self._agents, self._resolver, self._report, path)

    def _read_account(self, table: Table, plugin: Plugin, agent: str) -> Account | None:
        name = _text(table, "integration")
        key = "integration" if name else "kind"
        place, path = table.items[key].place, (*self._path, key)
        if not name or name in (plugin.kind, *plugin.aliases):
            return self._agents.account(agent, plugin, self._resolver, place, self._report, path)
        kind = plugin.uses or plugin.kind
        return self._agents.chosen_account(agent, name, kind, self._resolver, place, self._report, path)

    def _read_schedule(self, table: Table, plugin: Plugin, account: Account | None) -> JobSchedule | None:
        if "schedule" not in table.items:
            return None
        job_schedule = read_job_schedule(table.items["schedule"], self._report, (*self._path, "schedule"))
        floor = LOOPBACK_FLOOR if self._is_on_loopback(table, account) else plugin.floor_seconds
        if job_schedule is not None and job_schedule.gap < floor:
            place, path = table.items["schedule"].place, (*self._path, "schedule")
            fix = f"Read it every {format_duration(floor)} at most"
            self._report.error(place, path, f"{plugin.kind} may not be read that often", fix, "too_often")
        return job_schedule

    def _is_on_loopback(self, table: Table, account: Account | None) -> bool:
        # read from the raw table: other errors in it do not change the host
        config = table.items.get("config")
        host = host_of(to_plain(config) if isinstance(config, Table) else {}, account.base_url if account else "")
        # the host of a refused account is unknown: do not report its interval as well
        return is_loopback(host) if host else account is None

    def _build_entry(
        self,
        block: JobBlock,
        agent: str,
        table: Table,
        plugin: Plugin,
        account: Account,
        config: JobConfig,
        job_schedule: JobSchedule,
        failure: Outlet | None,
    ) -> JobEntry:
        feed = self._build_feed(block, plugin, account, config, job_schedule)
        compiled = compile_job(
            block.id,
            feed,
            config,
            failure,
            plugin=plugin,
            table=table,
            resolver=self._resolver,
            checker=self._checker,
            report=self._report,
        )
        kind = block.kind if block.kind in plugin.aliases else plugin.kind
        job = Job(
            id=block.id,
            kind=kind,
            agent=agent,
            feed=feed.name,
            deliver=config.outlet,
            failure_to=failure,
            paused_on_boot=block.paused_on_boot,
            settings={
                "id": block.id,
                "kind": kind,
                "agent": agent,
                "schedule": job_schedule.as_written(self._settings.default_jitter_ms),
                "config": {**feed.query, **compiled.shown, "deliver": _outlet_settings(config.outlet)},
                "failure_to": _outlet_settings(failure),
                "paused_on_boot": block.paused_on_boot,
            },
        )
        entries = (
            msgspec.structs.replace(compiled.entries[0], spec=FeedSpec(feed=feed, query=config.query)),
            *compiled.entries[1:],
        )
        return JobEntry(job=job, entries=entries, place=id_place(table))

    def _build_feed(
        self,
        block: JobBlock,
        plugin: Plugin,
        account: Account,
        config: JobConfig,
        job_schedule: JobSchedule,
    ) -> Feed:
        # a job that runs once has no second read, so the first must deliver
        first = "deliver" if isinstance(job_schedule.schedule, At) and plugin.first == "baseline" else plugin.first
        tick_timeout = max(SHORTEST_TICK, min(job_schedule.gap * self._settings.lease_ttl_factor, 86_400.0))
        jitter = self._settings.default_jitter_ms if job_schedule.jitter_ms is None else job_schedule.jitter_ms
        query_timeout = float(getattr(config.query, "timeout", 0.0) or 0.0)
        return Feed(
            name=feed_name(block.id),
            kind=plugin.kind,
            integration=account.name,
            query=storable_query(config.query, self._resolver.hide),
            schedule=job_schedule.schedule,
            identity=config.delivery.identity or plugin.identity,
            lookback=plugin.lookback_seconds,
            first=config.delivery.first or first,
            page_timeout=min(tick_timeout, max(10.0, query_timeout + 5.0)),
            tick_timeout=tick_timeout,
            jitter=0.0,
            added_jitter=jitter / 1_000,
            breaker=self._settings.breaker_threshold,
            backoff=account.backoff,
        )


def feed_name(job: str) -> str:
    return f"poller/{job}"


def _text(table: Table, key: str) -> str:
    node = table.items.get(key)
    return node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""


def _outlet_settings(outlet: Outlet | None) -> dict[str, str] | None:
    if outlet is None:
        return None
    return {"channel": outlet.channel, "to": outlet.to, **({"template": outlet.template} if outlet.template else {})}
