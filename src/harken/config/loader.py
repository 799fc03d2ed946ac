"""One load of a directory: what was read so far, what was wrong with it, and in the end the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from harken.config.accounts import Stored, read_account
from harken.config.agents import Agents, read_agent
from harken.config.feeds import internal_feed, read_feed, share
from harken.config.files import hidden_store, read, workflow_files
from harken.config.findings import Finding, Place, Report, redact
from harken.config.interpolate import Lookup
from harken.config.loaded import MAIN, Loaded, item, stamped
from harken.config.pollers.load import LEGACY, POLLERS, Section, read_legacy, read_pollers, read_sections
from harken.config.pollers.schema import Job, PollersBlock, PollerSettings, Written
from harken.config.resolver import Made, Resolver
from harken.config.secrets import password_in, secrets_by_name, secrets_in
from harken.config.settings import Settings, store_location
from harken.config.sources import sharded
from harken.config.validate import as_table, check
from harken.config.workflows import Checker, Entry, check_prices, clashes, name_of, read_workflow
from harken.config.yaml.nodes import Node, Table, locate
from harken.feed import INTERNAL
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = ["Loader", "load"]


LATER_SECTIONS = ("trackers", "projects")

_NAMED = ("integrations", "feeds", "agents")

_OWN_KEY = "HARKEN_ENCRYPTION_KEY"


class Loader:
    """Files are read one after the other, and each wrong item is refused alone."""

    def __init__(self, directory: Path, lookup: Lookup, around: Resolver) -> None:
        self._directory = directory
        self._lookup = lookup
        self._around = around
        self._settings = Settings()
        self._findings: list[Finding] = []
        self._refused: dict[str, list[Finding]] = {}
        self._origins: dict[str, str] = {}
        self._entries: dict[str, Entry] = {}
        self._claims: dict[str, list[Place]] = {}
        self._agents = Agents(known={})
        self._watching: list[Section] = []
        self._pollers: PollerSettings | None = None
        self._jobs: dict[str, Job] = {}

    def all(self, checks: Callable[[], Checker | None], wanted: Iterable[str]) -> Loaded:
        self._main()
        self._beside()
        checker = checks()
        self._read_jobs(checker)
        report = Report()
        files = workflow_files(self._directory, report)
        self._keep("file:workflows", report)
        for file in files:
            self._workflow(file, checker)
        self._refuse_clashes()
        for name in wanted:
            self._look_up(name)
        return self._loaded()

    def _look_up(self, name: str) -> None:
        report = Report()
        if item("integration", name) not in self._around.refused:
            self._around.account(name, Place(MAIN), report, ("integrations", name))
        self._keep(item("integration", name), report)

    def _keep(self, name: str, report: Report) -> bool:
        """Take over what was found; whether the item may run."""
        self._findings += report.findings
        if report.failed:
            self._refused.setdefault(name, []).extend(report.findings)
            self._around.refused.add(name)
        return not report.failed

    def _main(self) -> None:
        report = Report()
        if not self._directory.is_dir():
            report.error(
                Place(str(self._directory)), (), "is not a directory", "Make it with: harken init", "unreadable"
            )
        if (self._directory / "harken.yml").exists():
            report.warn(Place("harken.yml"), (), "this file is not read", "Name it harken.yaml", "not_yet")
        root = self._root(MAIN, report)
        if root is not None:
            self._sections(root, [finding for finding in report.findings if finding.path])

    def _root(self, file: str, report: Report) -> Table | None:
        """What a file says at its top; what is wrong with it as a whole is kept as the file's."""
        path = self._directory / file
        tree = read(self._directory, file, self._lookup, report) if path.exists() or path.is_symlink() else None
        root = as_table(tree, report, ()) if tree is not None else None
        whole = [finding for finding in report.findings if not finding.path or root is None]
        self._keep(item("file", file), Report(whole))
        return root

    def _beside(self) -> None:
        """pollers.yaml, which holds jobs and, if you like, the agents they work for."""
        report = Report()
        root = self._root(POLLERS, report)
        if root is None and self._settings.store is None:
            self._keep(item("section", "store"), hidden_store(self._directory / POLLERS))
        for name, node in root.items.items() if root else ():
            own = [finding for finding in report.findings if finding.path[:1] == (name,)]
            if name == "pollers":
                self._watching.append(Section(file=POLLERS, node=node, found=own))
            elif name == "agents":
                self._items(name, node, own, POLLERS)
            else:
                other = Report()
                fix = suggest_fix(name, ("pollers", "agents"))
                other.error(
                    root.keys[name] if root else node.place, (name,), "does not belong here", fix, "unknown_key"
                )
                self._keep(item("file", POLLERS), other)

    def _read_jobs(self, checker: Checker | None) -> None:
        report = Report()
        block, written = read_sections(self._watching, report)
        legacy = self._legacy(written)
        if not self._watching and not legacy:
            return
        written += legacy
        if block is not None and block.state_db is not None:
            self._use_state_db(block.state_db, report)
        sound = self._keep(item("section", "pollers"), report)
        if block is not None and not block.enabled:
            return
        found = read_pollers(block or PollersBlock(), written, self._around, self._agents, checker)
        for name, report in found.reports:
            self._keep(item("poller", name), report)
        if not sound or block is None:
            # what is wrong with the jobs is told all the same
            return
        self._pollers = found.settings
        for name, entry in found.jobs.items():
            self._jobs[name] = entry.job
            self._origins[item("poller", name)] = entry.place.file
            self._claims.setdefault(name, []).append(entry.place)
            self._entries |= {one.workflow.name: one for one in entry.entries}

    def _legacy(self, explicit: list[Written]) -> list[Written]:
        found: list[Written] = []
        for file in LEGACY:
            report = Report()
            if (self._directory / file).exists() and (tree := read(self._directory, file, self._lookup, report)):
                found += read_legacy(tree, explicit, report)
            self._keep(item("file", file), report)
        return found

    def _use_state_db(self, file: str, report: Report) -> None:
        if self._settings.store is None:
            self._settings = self._settings.model_copy(update={"store": file})
        elif self._settings.store != file:
            node = self._watching[-1].node
            place = locate(node, ("state_db",))
            report.warn(place, ("pollers", "state_db"), "store: names another, which holds", "Remove it", "ignored")

    def _sections(self, root: Table, found: list[Finding]) -> None:
        for name, node in root.items.items():
            own = [finding for finding in found if finding.path[0] == name]
            if name in _NAMED:
                continue
            report = Report(own)
            if name == "pollers":
                self._watching.append(Section(file=MAIN, node=node, found=own))
                continue
            if name in LATER_SECTIONS:
                report = Report()
                message = "this section is not there yet in this version"
                report.warn(root.keys[name], (name,), message, "It is left alone", "not_yet")
            elif name in Settings.model_fields:
                self._section(name, node, root, report)
            else:
                known = {*Settings.model_fields, *_NAMED, "pollers"}
                report.error(
                    root.keys[name], (name,), "there is no such section", suggest_fix(name, known), "unknown_key"
                )
            self._keep(item("section", name), report)
        for name in _NAMED:
            if name in root.items:
                self._items(name, root.items[name], [finding for finding in found if finding.path[0] == name])

    def _section(self, name: str, node: Node, root: Table, report: Report) -> None:
        alone = Table(items={name: node}, keys=root.keys, place=root.place)
        self._around.secrets |= secrets_by_name(node)
        found = check(Settings, alone, report) if not report.failed else None
        if found is not None:
            self._around.secrets |= secrets_in(getattr(found, name))
            self._settings = self._settings.model_copy(update={name: getattr(found, name)})

    def _items(self, section: str, node: Node, found: list[Finding], file: str = MAIN) -> None:
        kind = section.removesuffix("s")
        self._agents.declared |= section == "agents"
        report = Report([finding for finding in found if len(finding.path) == 1])
        table = as_table(node, report, (section,))
        self._keep(item("section", section), report)
        by_name: dict[object, list[Finding]] = {}
        for finding in found:
            by_name.setdefault(finding.path[1] if len(finding.path) > 1 else None, []).append(finding)
        for name, inner in table.items.items() if table else ():
            report = Report(by_name.get(name, []))
            self._item(kind, name, inner, report, (section, name))
            self._origins[item(kind, name)] = file
            self._keep(item(kind, name), report)

    def _item(self, kind: str, name: str, node: Node, report: Report, path: tuple[str, str]) -> None:
        if kind == "integration":
            self._around.secrets |= secrets_by_name(node)
            account = read_account(name, node, self._around.plugins, report, path, self._around.stored)
            if account is not None and not report.failed:
                self._around.secrets |= secrets_in(account.model)
                self._around.accounts[name] = account
            return
        if kind == "agent":
            twice = name in self._agents.known
            if twice:
                report.error(node.place, path, f"the agent {name} stands in {MAIN} as well", "Keep one", "duplicate")
            agent = read_agent(name, node, self._around, report, path)
            self._agents.known[name] = replace(agent, accounts={}) if twice else agent
            return
        if name == INTERNAL or "/" in name or not name.strip():
            report.error(
                node.place, path, "this name is taken by Harken itself", "Use another, without a slash", "clash"
            )
        made = read_feed(name, node, self._around, report, path)
        if made is not None:
            self._around.feeds[name] = made

    def _workflow(self, file: str, checker: Checker | None) -> None:
        report = Report()
        tree = read(self._directory, file, self._lookup, report)
        entry = read_workflow(tree, file, self._around, checker, report) if tree is not None else None
        if tree is not None and entry is not None:
            check_prices(entry.trigger, entry.workflow.definition, self._settings.models, tree, report)
        name = name_of(tree) if tree is not None else ""
        label = item("workflow", name) if name else item("file", file)
        if name and tree is not None:
            place = tree.items["name"].place if isinstance(tree, Table) else tree.place
            self._claims.setdefault(name, []).append(place)
        self._origins.setdefault(label, file)
        if not self._keep(label, report) or entry is None:
            return
        self._entries.setdefault(name, entry)
        if len(self._claims[name]) > 1:
            self._entries.pop(name)

    def _refuse_clashes(self) -> None:
        for name, report in clashes(self._claims, self._entries):
            self._entries.pop(name, None)
            self._keep(item("workflow", name), report)
            if (job := self._jobs.pop(name, None)) is not None:
                self._entries.pop(job.alert, None)
                self._refused.setdefault(item("poller", name), []).extend(report.findings)

    def _loaded(self) -> Loaded:
        feeds: dict[str, Made] = {INTERNAL: Made(feed=internal_feed()), **self._around.feeds}
        for entry in self._entries.values():
            if entry.made is not None:
                name = entry.made.feed.name
                feeds[name] = share(feeds.get(name), entry.made)
        own = self._around.environ.get(_OWN_KEY, "")
        store = store_location(self._settings, self._directory, self._around.environ)
        passwords = {password_in(self._settings.http.proxy), password_in(store)}
        secrets = frozenset({*self._lookup.references.values(), *self._around.secrets, own, *passwords} - {""})
        loaded = Loaded(
            directory=self._directory,
            settings=self._settings,
            store=store,
            integrations=dict(self._around.accounts),
            feeds=tuple(made.feed for made in feeds.values()),
            triggers=tuple(entry.trigger for entry in self._entries.values() if entry.trigger),
            workflows={name: entry.workflow for name, entry in self._entries.items()},
            findings=redact(self._findings, secrets),
            refused={name: redact(found, secrets) for name, found in self._refused.items()},
            origins=self._origins,
            pollers=self._pollers,
            jobs=dict(self._jobs),
            agents={name: agent.accounts for name, agent in self._agents.known.items()},
            queries={name: made.query for name, made in feeds.items() if made.query is not None},
            references=dict(self._lookup.references),
            secrets=secrets,
        )
        return stamped(sharded(loaded))


def load(
    directory: Path,
    *,
    plugins: Mapping[str, Plugin],
    check_workflow: Checker | None = None,
    environ: Mapping[str, str] | None = None,
    secrets: Callable[[str], str | None] | None = None,
    check_condition: Callable[[str], object] | None = None,
    check_template: Callable[[str], object] | None = None,
    stored: Stored | None = None,
    checker_for: Callable[[Mapping[str, str]], Checker] | None = None,
    wanted: Iterable[str] = (),
) -> Loaded:
    """Read the directory. Never raises for what is in it: a wrong item is refused by name, and its siblings run.

    `checker_for` makes the check of workflows from the kinds of the accounts, by name. `wanted` accounts are looked
    up although nothing uses them.
    """
    lookup = Lookup(directory, environ or {}, secrets)
    around = Resolver(
        plugins=plugins,
        environ=environ or {},
        references=lookup.references,
        check_condition=check_condition or _condition,
        check_template=check_template or _template,
        stored=stored,
    )
    return Loader(directory, lookup, around).all(lambda: _checker(around, check_workflow, checker_for), wanted)


def _checker(
    around: Resolver, checker: Checker | None, checker_for: Callable[[Mapping[str, str]], Checker] | None
) -> Checker | None:
    return checker_for(around.kinds()) if checker_for else checker


def _condition(source: str) -> object:
    from harken.language.cel.condition import compile_condition

    return compile_condition(source)


def _template(source: str) -> object:
    from harken.language.go_template.template import compile_template

    return compile_template(source)
