"""Load a configuration directory: every file is read, and each wrong item is refused alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel

from harken.config.accounts import AccountStore, read_account
from harken.config.agent_account_bindings import Agents, read_agent
from harken.config.compiled_workflow_file_cache import FileForms, KeptForms
from harken.config.feed_labels import with_labels
from harken.config.feed_sources import with_shards
from harken.config.feeds import internal_feed, merge_specs, read_feed
from harken.config.files import allowed_directories, check_hidden_store, read_tree, tree_of, workflow_files
from harken.config.findings import Finding, Place, Report, redact
from harken.config.interpolate import Lookup
from harken.config.loaded import MAIN, Account, Loaded, item, with_generation
from harken.config.model_validation import as_table, check
from harken.config.on_failure import ON_FAILURE, compile_notify, compile_trigger
from harken.config.outcome_webhooks import OUTCOME_WEBHOOKS, compile_outcome_webhooks
from harken.config.pollers.load import LEGACY, POLLERS, PollersSection, read_legacy, read_pollers, read_sections
from harken.config.pollers.schema import Job, PollersBlock, PollerSettings, RawJob
from harken.config.resolver import FeedSpec, Resolver
from harken.config.secret_values_to_mask import password_in, secrets_by_name, secrets_in
from harken.config.settings import Settings, store_extra, store_location
from harken.config.streams import is_stream, read_named_stream
from harken.config.trackers.feed_and_triggers_from_tracker import compile_all
from harken.config.trackers.project_from_spec import Known
from harken.config.trackers.read import Section, Taken, Tickets, read_tickets
from harken.config.workflows import (
    Checker,
    WorkflowEntry,
    check_models,
    check_prices,
    find_clashes,
    read_workflow,
    workflow_name,
)
from harken.config.yaml.nodes import Node, Scalar, Table, locate, to_plain
from harken.config.yaml.parser import read_source
from harken.extras import how_to_install, is_missing
from harken.feed import INTERNAL, Trigger
from harken.source import Plugin
from harken.suggest import suggest_fix
from harken.tickets import feed_name

__all__ = ["load"]

_TICKET_SECTIONS = ("trackers", "projects")
_ITEM_SECTIONS = ("integrations", "feeds", "agents")
_ENCRYPTION_KEY = "HARKEN_ENCRYPTION_KEY"


def load(
    directory: Path,
    *,
    plugins: Mapping[str, Plugin],
    check_workflow: Checker | None = None,
    environ: Mapping[str, str] | None = None,
    secrets: Callable[[str], str | None] | None = None,
    check_condition: Callable[[str], object] | None = None,
    check_template: Callable[[str], object] | None = None,
    check_key: Callable[[str], object] | None = None,
    stored: AccountStore | None = None,
    checker_for: Callable[[Mapping[str, str]], Checker] | None = None,
    wanted: Iterable[str] = (),
    texts: Mapping[str, bytes] = MappingProxyType({}),
    kept: KeptForms | None = None,
) -> Loaded:
    """Read the directory. Never raises because of its contents: a wrong item is refused by name, and the others run.

    `checker_for` makes the check of workflows from the accounts (name to kind). `wanted` accounts are looked up
    although nothing uses them. `texts` stand for the files below workflows/ of these names, which may not exist.
    What is `kept` of workflow files that have not changed is not compiled again.
    """
    allowed = allowed_directories(directory)
    lookup = Lookup(directory, environ or {}, secrets, allowed)
    resolver = Resolver(
        plugins=plugins,
        environ=environ or {},
        references=lookup.references,
        check_condition=check_condition or _compile_condition,
        check_template=check_template or _compile_template,
        check_key=check_key or _compile_key,
        stored=stored,
        directory=directory,
        allowed=allowed,
    )

    def make_checker() -> Checker | None:
        # called when all accounts are known
        return checker_for(resolver.kinds()) if checker_for else check_workflow

    forms = FileForms(kept, resolver, lookup) if kept is not None else None
    return Loader(directory, lookup, resolver, allowed, texts, forms).load_all(make_checker, wanted)


def _compile_condition(source: str) -> object:
    from harken.language.cel import compile_condition

    return compile_condition(source)


def _compile_template(source: str) -> object:
    from harken.language.go_template import compile_template

    return compile_template(source)


def _compile_key(source: str) -> object:
    from harken.language.cel import compile_key

    return compile_key(source)


class Loader:
    """The state of one load: what was read so far, and the findings about it."""

    def __init__(
        self,
        directory: Path,
        lookup: Lookup,
        resolver: Resolver,
        allowed: Sequence[Path],
        texts: Mapping[str, bytes],
        forms: FileForms | None,
    ) -> None:
        self._directory = directory
        self._texts = texts
        self._forms = forms
        self._allowed = allowed
        self._lookup = lookup
        self._resolver = resolver
        self._settings = Settings()
        self._findings: list[Finding] = []
        self._refused: dict[str, list[Finding]] = {}
        self._origins: dict[str, str] = {}
        self._entries: dict[str, WorkflowEntry] = {}
        self._claims: dict[str, list[Place]] = {}
        self._agents = Agents(known={})
        self._poller_sections: list[PollersSection] = []
        self._pollers: PollerSettings | None = None
        self._jobs: dict[str, Job] = {}
        self._on_failure: Node | None = None
        self._outcome_webhooks: Node | None = None
        self._failure_trigger: Trigger | None = None
        self._ticket_sections: dict[str, Section] = {}
        self._places: dict[str, Place] = {}
        self._tickets = Tickets()

    def load_all(self, make_checker: Callable[[], Checker | None], wanted: Iterable[str]) -> Loaded:
        self._read_main()
        self._read_pollers_file()
        checker = make_checker()
        self._read_jobs(checker)
        report = Report()
        files = workflow_files(self._directory, report, self._allowed)
        self._record("file:workflows", report)
        for file in sorted({*files, *self._texts}):
            self._read_workflow(file, checker)
        if self._on_failure is not None:
            self._claims.setdefault(ON_FAILURE, []).append(self._on_failure.place)
        self._refuse_clashes()
        if self._on_failure is not None:
            self._read_on_failure(self._on_failure, checker)
        if self._outcome_webhooks is not None:
            self._read_outcome_webhooks(self._outcome_webhooks, checker)
        self._read_tickets()
        for name in wanted:
            self._resolve_account(name)
        self._check_extras()
        return self._build_loaded()

    def _read_main(self) -> None:
        report = Report()
        if not self._directory.is_dir():
            report.error(
                Place(str(self._directory)), (), "is not a directory", "Make it with: harken init", "unreadable"
            )
        if (self._directory / "harken.yml").exists():
            report.warn(Place("harken.yml"), (), "this file is not read", "Name it harken.yaml", "not_yet")
        root = self._read_root(MAIN, report)
        if root is not None:
            self._read_sections(root, [finding for finding in report.findings if finding.path])

    def _read_root(self, file: str, report: Report) -> Table | None:
        """Return the top-level mapping of a file. Findings about the file as a whole are recorded under its name."""
        path = self._directory / file
        tree = read_tree(self._directory, file, self._lookup, report) if path.exists() or path.is_symlink() else None
        root = as_table(tree, report, ()) if tree is not None else None
        whole = [finding for finding in report.findings if not finding.path or root is None]
        self._record(item("file", file), Report(whole))
        return root

    def _read_sections(self, root: Table, found: list[Finding]) -> None:
        for name, node in root.items.items():
            own = [finding for finding in found if finding.path[0] == name]
            if name in _ITEM_SECTIONS:
                continue
            report = Report(own)
            if name == "pollers":
                self._poller_sections.append(PollersSection(file=MAIN, node=node, found=own))
                continue
            if name in _TICKET_SECTIONS:
                self._ticket_sections[name] = Section(node=node, found=own)
                continue
            if name in Settings.model_fields:
                self._read_section(name, node, root, report)
            else:
                known = {*Settings.model_fields, *_ITEM_SECTIONS, *_TICKET_SECTIONS, "pollers"}
                report.error(
                    root.keys[name], (name,), "there is no such section", suggest_fix(name, known), "unknown_key"
                )
            self._record(item("section", name), report)
        for name in _ITEM_SECTIONS:
            if name in root.items:
                self._read_items(name, root.items[name], [finding for finding in found if finding.path[0] == name])

    def _read_section(self, name: str, node: Node, root: Table, report: Report) -> None:
        self._places[name] = node.place
        alone = Table(items={name: node}, keys=root.keys, place=root.place)
        self._resolver.secrets |= secrets_by_name(node)
        found = check(Settings, alone, report) if not report.failed else None
        if found is not None:
            self._resolver.secrets |= secrets_in(getattr(found, name))
            self._settings = self._settings.model_copy(update={name: getattr(found, name)})
            self._on_failure = node if name == ON_FAILURE else self._on_failure
            self._outcome_webhooks = node if name == OUTCOME_WEBHOOKS else self._outcome_webhooks

    def _read_items(self, section: str, node: Node, found: list[Finding], file: str = MAIN) -> None:
        kind = section.removesuffix("s")
        self._agents.declared |= section == "agents"
        report = Report([finding for finding in found if len(finding.path) == 1])
        table = as_table(node, report, (section,))
        self._record(item("section", section), report)
        by_name: dict[object, list[Finding]] = {}
        for finding in found:
            by_name.setdefault(finding.path[1] if len(finding.path) > 1 else None, []).append(finding)
        for name, inner in table.items.items() if table else ():
            report = Report(by_name.get(name, []))
            read = {"integration": self._read_integration, "agent": self._read_agent, "feed": self._read_feed}[kind]
            read(name, inner, report, (section, name))
            self._origins[item(kind, name)] = file
            self._record(item(kind, name), report)

    def _read_integration(self, name: str, node: Node, report: Report, path: tuple[str, str]) -> None:
        self._resolver.secrets |= secrets_by_name(node)
        account = read_account(name, node, self._resolver.plugins, report, path, self._resolver.stored)
        if account is not None and not report.failed:
            self._resolver.secrets |= secrets_in(account.model)
            self._resolver.accounts[name] = account

    def _read_agent(self, name: str, node: Node, report: Report, path: tuple[str, str]) -> None:
        duplicate = name in self._agents.known
        if duplicate:
            report.error(node.place, path, f"the agent {name} stands in {MAIN} as well", "Keep one", "duplicate")
        agent = read_agent(name, node, self._resolver, report, path)
        self._agents.known[name] = replace(agent, accounts={}) if duplicate else agent

    def _read_feed(self, name: str, node: Node, report: Report, path: tuple[str, str]) -> None:
        if name == INTERNAL or "/" in name or not name.strip():
            report.error(
                node.place, path, "this name is taken by Harken itself", "Use another, without a slash", "clash"
            )
        if isinstance(node, Table) and is_stream(node, self._resolver):
            spec = read_named_stream(name, node, self._resolver, report, path)
        else:
            spec = read_feed(name, node, self._resolver, report, path)
        if spec is not None:
            self._resolver.feeds[name] = spec

    def _read_pollers_file(self) -> None:
        """Read pollers.yaml: jobs and, optionally, the agents they work for."""
        report = Report()
        root = self._read_root(POLLERS, report)
        if root is None and self._settings.store is None:
            self._record(item("section", "store"), check_hidden_store(self._directory / POLLERS))
        for name, node in root.items.items() if root else ():
            own = [finding for finding in report.findings if finding.path[:1] == (name,)]
            if name == "pollers":
                self._poller_sections.append(PollersSection(file=POLLERS, node=node, found=own))
            elif name == "agents":
                self._read_items(name, node, own, POLLERS)
            else:
                other = Report()
                fix = suggest_fix(name, ("pollers", "agents"))
                other.error(
                    root.keys[name] if root else node.place, (name,), "does not belong here", fix, "unknown_key"
                )
                self._record(item("file", POLLERS), other)

    def _read_jobs(self, checker: Checker | None) -> None:
        report = Report()
        block, raw_jobs = read_sections(self._poller_sections, report)
        legacy = self._read_legacy(raw_jobs)
        if not self._poller_sections and not legacy:
            return
        raw_jobs += legacy
        if block is not None and block.state_db is not None:
            self._use_state_db(block.state_db, report)
        valid = self._record(item("section", "pollers"), report)
        if block is not None and not block.enabled:
            return
        found = read_pollers(block or PollersBlock(), raw_jobs, self._resolver, self._agents, checker)
        for name, report in found.reports:
            self._record(item("poller", name), report)
        if not valid or block is None:
            # the jobs were read for their findings only
            return
        self._pollers = found.settings
        for name, entry in found.jobs.items():
            report = Report()
            place = Scalar(value=None, place=entry.place)
            check_models(entry.entries[0].workflow.definition["steps"], place, report)
            if not self._record(item("poller", name), report):
                continue
            self._jobs[name] = entry.job
            self._origins[item("poller", name)] = entry.place.file
            self._claims.setdefault(name, []).append(entry.place)
            self._entries |= {one.workflow.name: one for one in entry.entries}

    def _read_legacy(self, explicit: list[RawJob]) -> list[RawJob]:
        found: list[RawJob] = []
        for file in LEGACY:
            report = Report()
            if (self._directory / file).exists() and (tree := read_tree(self._directory, file, self._lookup, report)):
                found += read_legacy(tree, explicit, report)
            self._record(item("file", file), report)
        return found

    def _use_state_db(self, file: str, report: Report) -> None:
        if self._settings.store is None:
            self._settings = self._settings.model_copy(update={"store": file})
        elif self._settings.store != file:
            node = self._poller_sections[-1].node
            place = locate(node, ("state_db",))
            report.warn(place, ("pollers", "state_db"), "store: names another, which holds", "Remove it", "ignored")

    def _read_workflow(self, file: str, checker: Checker | None) -> None:
        report = Report()
        text = self._texts.get(file)
        source = read_source(self._directory / file, file, report) if text is None else text
        restored = self._forms.restore(file, source) if self._forms is not None and source is not None else None
        if restored is not None:
            entry, place = restored
            self._take_workflow(file, entry.workflow.name, place, entry, report)
        else:
            self._compile_workflow(file, source, checker, report)

    def _compile_workflow(self, file: str, source: bytes | None, checker: Checker | None, report: Report) -> None:
        if self._forms is not None:
            self._forms.begin()
        tree = tree_of(source, file, self._lookup, report) if source is not None else None
        entry = read_workflow(tree, file, self._resolver, checker, report) if tree is not None else None
        if tree is not None and entry is not None:
            check_prices(entry.trigger, entry.workflow.definition, self._settings.models, tree, report)
        if isinstance(tree, Table) and "steps" in tree.items:
            check_models(to_plain(tree.items["steps"]), tree, report)
        name = workflow_name(tree) if tree is not None else ""
        named = isinstance(tree, Table) and "name" in tree.items
        place = tree.items["name"].place if isinstance(tree, Table) and named else Place(file)
        if self._forms is not None:
            self._forms.end(file, source or b"", entry if not report.findings else None, place)
        self._take_workflow(file, name, place, entry, report)

    def _take_workflow(self, file: str, name: str, place: Place, entry: WorkflowEntry | None, report: Report) -> None:
        label = item("workflow", name) if name else item("file", file)
        if name:
            self._claims.setdefault(name, []).append(place)
        self._origins.setdefault(label, file)
        if not self._record(label, report) or entry is None:
            return
        self._entries.setdefault(name, entry)
        if len(self._claims[name]) > 1:
            self._entries.pop(name)

    def _refuse_clashes(self) -> None:
        for name, report in find_clashes(self._claims, self._entries):
            self._entries.pop(name, None)
            self._record(item("workflow", name), report)
            if (job := self._jobs.pop(name, None)) is not None:
                self._entries.pop(job.alert, None)
                self._refused.setdefault(item("poller", name), []).extend(report.findings)

    def _check_extras(self) -> None:
        """Warn of feeds and accounts whose packages are not installed here."""
        report = Report()
        for name, entry in self._entries.items():
            if entry.spec is not None and (places := self._claims.get(name)):
                account = self._resolver.accounts.get(entry.spec.feed.integration)
                self._check_extra(entry.spec.feed.kind, entry.spec.query, account, places[0], report)
        for account in self._resolver.accounts.values():
            plugin = self._resolver.plugins.get(account.kind)
            if plugin is not None and plugin.source is None:
                self._check_extra(account.kind, None, account, Place(MAIN), report)
        self._findings += report.findings

    def _check_store_driver(self, store: str) -> None:
        extra = store_extra(store)
        if is_missing(extra):
            report = Report()
            place = self._places.get("store", Place(MAIN))
            message = f"this store needs a driver that is not installed (the extra {extra})"
            report.error(place, ("store",), message, how_to_install(extra), "not_installed")
            # recorded under no item: Harken does not start without its store, and nothing else is refused
            self._findings += report.findings

    def _check_extra(
        self, kind: str, query: BaseModel | None, account: Account | None, place: Place, report: Report
    ) -> None:
        plugin = self._resolver.plugins.get(kind)
        if plugin is None or plugin.extra is None:
            return
        extra = plugin.extra(query, account.model if account else None)
        if is_missing(extra):
            message = f"{kind} needs a package that is not installed (the extra {extra})"
            report.warn(place, (), message, how_to_install(extra), "not_installed")

    def _read_on_failure(self, node: Node, checker: Checker | None) -> None:
        if len(self._claims[ON_FAILURE]) > 1:
            return
        report, block = Report(), self._settings.on_failure
        workflows = {name: entry.workflow for name, entry in self._entries.items()}
        entry = compile_notify(block, node, self._resolver, checker, report)
        self._failure_trigger = compile_trigger(block, node, workflows, report)
        self._origins[item("workflow", ON_FAILURE)] = MAIN
        if self._record(item("workflow", ON_FAILURE), report) and entry is not None:
            self._entries[ON_FAILURE] = entry

    def _read_outcome_webhooks(self, node: Node, checker: Checker | None) -> None:
        report = Report()
        entries = compile_outcome_webhooks(self._settings.outcome_webhooks, node, self._resolver, checker, report)
        self._entries |= entries
        self._origins |= {item("workflow", name): MAIN for name in entries}
        self._record(item("section", OUTCOME_WEBHOOKS), report)

    def _read_tickets(self) -> None:
        """Read trackers and projects, after the workflows that are their pipelines."""
        known = Known(
            settings=self._settings,
            places=self._places,
            workflows={name: entry.workflow for name, entry in self._entries.items()},
            refused=self._resolver.refused,
        )
        named = {name: entry for name, entry in self._entries.items() if name in self._claims}
        paths = {
            entry.spec.feed.path: self._claims[name][0]
            for name, entry in named.items()
            if entry.spec is not None and entry.spec.feed.path
        }
        taken = Taken(triggers=self._entries.keys(), paths=paths)
        sections = self._ticket_sections
        self._tickets = read_tickets(sections.get("trackers"), sections.get("projects"), self._resolver, known, taken)
        for name, report in self._tickets.reports:
            self._origins[name] = MAIN
            self._record(name, report)

    def _resolve_account(self, name: str) -> None:
        report = Report()
        if item("integration", name) not in self._resolver.refused:
            self._resolver.account(name, Place(MAIN), report, ("integrations", name))
        self._record(item("integration", name), report)

    def _record(self, name: str, report: Report) -> bool:
        """Add the findings of an item, and return whether it is valid."""
        self._findings += report.findings
        if report.failed:
            self._refused.setdefault(name, []).extend(report.findings)
            self._resolver.refused.add(name)
        return not report.failed

    def _build_loaded(self) -> Loaded:
        feeds: dict[str, FeedSpec] = {INTERNAL: FeedSpec(feed=internal_feed()), **self._resolver.feeds}
        for entry in self._entries.values():
            if entry.spec is not None:
                name = entry.spec.feed.name
                feeds[name] = merge_specs(feeds.get(name), entry.spec)
        key = self._resolver.environ.get(_ENCRYPTION_KEY, "")
        store = store_location(self._settings, self._directory, self._resolver.environ)
        self._check_store_driver(store)
        passwords = {password_in(self._settings.http.proxy), password_in(store)}
        secrets = frozenset({*self._lookup.references.values(), *self._resolver.secrets, key, *passwords} - {""})
        listeners = [entry.trigger for entry in self._entries.values()]
        workflows = {name: entry.workflow for name, entry in self._entries.items()}
        compiled = compile_all(self._tickets.trackers, workflows, self._resolver.accounts, MAIN)
        hooks = {feed_name(name): hook for name, hook in self._tickets.hooks.items()}
        loaded = Loaded(
            directory=self._directory,
            settings=self._settings,
            store=store,
            integrations=dict(self._resolver.accounts),
            feeds=(*(spec.feed for spec in feeds.values()), *compiled.feeds),
            triggers=tuple(t for t in (*listeners, self._failure_trigger, *compiled.triggers) if t),
            workflows=workflows,
            findings=redact(self._findings, secrets),
            refused={name: redact(found, secrets) for name, found in self._refused.items()},
            origins=self._origins,
            pollers=self._pollers,
            jobs=dict(self._jobs),
            agents={name: agent.accounts for name, agent in self._agents.known.items()},
            trackers=self._tickets.trackers,
            queries={name: spec.query for name, spec in feeds.items() if spec.query is not None} | hooks,
            references=dict(self._lookup.references),
            secrets=secrets,
        )
        return with_generation(with_labels(with_shards(loaded)))
