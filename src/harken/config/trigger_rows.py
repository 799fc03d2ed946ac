"""Triggers that are rows in the store: compiled to the same values as files, by the same checks.

A row is written as the workflow file that it stands for, and read like one: what is wrong with it is said in the same
words, with the line of what `export` gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from harken.config.accounts import AccountStore
from harken.config.feeds import merge_specs
from harken.config.findings import Finding, Place, Report, redact
from harken.config.interpolate import Lookup, interpolate
from harken.config.loaded import Account, Loaded, item
from harken.config.reload_plan import inherit_cursors
from harken.config.resolver import FeedSpec, Resolver
from harken.config.secrets import secrets_by_name, secrets_in
from harken.config.sources import shards_of, with_shard
from harken.config.trigger_schema import KINDS
from harken.config.triggers import read_trigger
from harken.config.validate import check
from harken.config.workflows import Checker, WorkflowFile, check_models, check_prices, read_workflow
from harken.config.yaml.nodes import Table, strings, to_plain
from harken.config.yaml.parser import parse
from harken.config.yaml.writer import to_yaml
from harken.errors import Misconfigured, Refused
from harken.feed import Feed, Trigger
from harken.runs import Workflow
from harken.source import Plugin
from harken.store import Definitions, Part
from harken.suggest import suggest_fix

__all__ = [
    "SCHEMA_VERSION",
    "CompiledRow",
    "RowCompiler",
    "RowSet",
    "TriggerRow",
    "as_file",
    "from_file",
    "read_row",
    "refuse_findings",
]

SCHEMA_VERSION = 1
MIGRATIONS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = ()
"""The first makes version 2 of version 1, and so on."""
_ONLY_SECRETS = "a row may refer to secrets alone"


class TriggerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger as somebody sent it to the API.

    `provider` is the kind of its block (poll, webhook, schedule …), `config` what stands in that block; `options` are
    the settings beside it. `workflow` is the name of a workflow, or steps with inputs and outputs.
    """

    id: str
    name: str
    provider: str
    created_at: datetime
    updated_at: datetime
    user_id: str = ""
    config: Any = None
    condition: str = ""
    options: dict[str, Any] = {}
    workflow: str | dict[str, Any] = ""
    enabled: bool = True
    schema_version: int = SCHEMA_VERSION


def read_row(value: Mapping[str, Any]) -> TriggerRow:
    """The row of a stored document, brought to the current version."""
    version = value.get("schema_version", 1)
    if version > SCHEMA_VERSION:
        message = f"the trigger {value.get('name')} was written by a newer Harken (version {version} of rows)"
        raise Refused(message, fix="Upgrade this one")
    found = dict(value)
    for migrate in MIGRATIONS[version - 1 :]:
        found = migrate(found)
    return msgspec.convert(found | {"schema_version": SCHEMA_VERSION}, TriggerRow)


def as_file(row: TriggerRow) -> dict[str, Any]:
    """The workflow file that the row stands for; one that starts another workflow has `workflow:` in place of steps."""
    block = {row.provider: row.config, **({"condition": row.condition} if row.condition else {}), **row.options}
    rest = row.workflow if isinstance(row.workflow, dict) else {"workflow": row.workflow}
    return {"name": row.name, "trigger": block, **rest}


def from_file(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the row that a workflow file stands for; the reverse of `as_file`."""
    block = dict(value.get("trigger") or {})
    given = [kind for kind in KINDS if kind in block]
    if len(given) != 1:
        fix = f"Add one of {', '.join(KINDS)} under trigger:"
        raise Misconfigured("a row has a trigger of one kind", fix=fix)
    steps = {key: inner for key, inner in value.items() if key not in ("name", "trigger", "workflow")}
    return {
        "name": value.get("name", ""),
        "provider": given[0],
        "config": block.pop(given[0]),
        "condition": block.pop("condition", ""),
        "options": block,
        "workflow": value.get("workflow") or steps,
    }


@dataclass(frozen=True, kw_only=True)
class CompiledRow:
    """What a row becomes. `uses` is the workflow that it starts by name; else it brings `workflow`."""

    id: str
    name: str
    trigger: Trigger
    spec: FeedSpec
    workflow: Workflow | None = None
    uses: str = ""
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)


class _SecretLookup(Lookup):
    """Finds secrets, and neither variables nor files: who writes rows need not be who runs the process."""

    def resolve(self, inner: str) -> tuple[str, bool]:
        if not inner.startswith("secret:"):
            raise self.unset(_ONLY_SECRETS, "Write ${secret:NAME}; $${ stands for a plain ${")
        return super().resolve(inner)


class RowCompiler:
    """Compiles rows against the configuration that the files give. `accounts` has those that rows use beside it."""

    def __init__(
        self,
        files: Loaded,
        plugins: Mapping[str, Plugin],
        checker_for: Callable[[Mapping[str, str]], Checker],
        *,
        environ: Mapping[str, str] | None = None,
        secrets: Callable[[str], str | None] | None = None,
        stored: AccountStore | None = None,
    ) -> None:
        from harken.language.cel import compile_condition, compile_key
        from harken.language.go_template import compile_template

        self._files = files
        self._secrets = secrets
        self._resolver = Resolver(
            plugins=plugins,
            environ=os.environ if environ is None else environ,
            references={},
            check_condition=compile_condition,
            check_template=compile_template,
            check_key=compile_key,
            stored=stored,
            accounts=dict(files.integrations),
            feeds={
                feed.name: FeedSpec(feed=feed, query=files.queries.get(feed.name))
                for feed in files.feeds
                if item("feed", feed.name) in files.origins
            },
            refused=set(files.refused),
        )
        self._checker = checker_for(self._resolver.kinds())

    @property
    def accounts(self) -> Mapping[str, Account]:
        return self._resolver.accounts

    def compile(self, row: TriggerRow) -> tuple[CompiledRow | None, tuple[Finding, ...]]:
        """What the row becomes, or None; and what is wrong or odd about it."""
        report, lookup = Report(), _SecretLookup(self._files.directory, {}, self._secrets)
        self._resolver.references = lookup.references
        self._resolver.secrets = set()
        file = f"/api/triggers/{row.id}"
        if row.provider not in KINDS:
            fix = suggest_fix(row.provider, KINDS)
            report.error(Place(file), ("provider",), f"{row.provider!r} is not a kind of trigger", fix, "unknown_name")
            return None, tuple(report.findings)
        tree = parse(to_yaml(as_file(row)).encode(), file, report)
        tree = interpolate(tree, lookup, report) if tree is not None else None
        found = self._read(row, tree, file, report) if isinstance(tree, Table) else None
        hidden = {*lookup.references.values(), *self._resolver.secrets}
        findings = redact(report.findings, hidden)
        if found is None or report.failed:
            return None, findings
        account = self._resolver.accounts.get(found.spec.feed.integration)
        with_account = replace(self._files, integrations={account.name: account}) if account else self._files
        owned = msgspec.structs.replace(found.trigger, owner=row.user_id)
        feed = with_shard(found.spec.feed, with_account, shards_of(self._files))
        spec = replace(found.spec, feed=feed)
        known = dict(lookup.references)
        return replace(found, trigger=owned, spec=spec, references=known, secrets=frozenset(hidden)), findings

    def _read(self, row: TriggerRow, tree: Table, file: str, report: Report) -> CompiledRow | None:
        if isinstance(row.workflow, str):
            return self._read_named(row, row.workflow, tree, file, report)
        entry = read_workflow(tree, file, self._resolver, self._checker, report)
        if "steps" in tree.items:
            check_models(to_plain(tree.items["steps"]), tree, report)
        if entry is None or entry.trigger is None or entry.spec is None:
            return None
        check_prices(entry.trigger, entry.workflow.definition, self._files.settings.models, tree, report)
        return CompiledRow(id=row.id, name=row.name, trigger=entry.trigger, spec=entry.spec, workflow=entry.workflow)

    def _read_named(self, row: TriggerRow, named: str, tree: Table, file: str, report: Report) -> CompiledRow | None:
        check(WorkflowFile, tree.without("workflow"), report)
        workflow = self._files.workflows.get(named) if named not in self._files.rows else None
        if workflow is None:
            fix = suggest_fix(named, self._files.workflows)
            place = tree.items["workflow"].place
            report.error(place, ("workflow",), f"there is no workflow {named!r} in the files", fix, "unknown_name")
        rev = workflow.rev if workflow else ""
        found = read_trigger(row.name, rev, tree.items["trigger"], self._resolver, report, file)
        if found is None or workflow is None:
            return None
        trigger = msgspec.structs.replace(found[0], workflow=named)
        return CompiledRow(id=row.id, name=row.name, trigger=trigger, spec=found[1], uses=named)

    def secret_texts(self, row: TriggerRow) -> set[str]:
        """The texts in the row that are secrets and stand there openly, by the type or the name of their setting."""
        report, lookup = Report(), _SecretLookup(self._files.directory, {}, self._secrets)
        tree = parse(to_yaml(as_file(row)).encode(), "row", report)
        if tree is None:
            return set()
        self._resolver.references, self._resolver.secrets = lookup.references, set()
        filled = interpolate(tree, lookup, report)
        found = self._read(row, filled, "row", Report()) if isinstance(filled, Table) else None
        by_type = secrets_in(found.spec.query) if found else set()
        written = {str(scalar.value) for _, scalar in strings(tree)}
        return {text for text in by_type | secrets_by_name(tree) if text in written and "${" not in text and text}


class RowSet:
    """The configuration of the files with the rows that are enabled. Knows what changed since it was last asked."""

    def __init__(self, files: Loaded) -> None:
        self._files = files
        self._file_feeds: dict[str, Feed] = {feed.name: feed for feed in files.feeds}
        self._file_names = frozenset({*(trigger.name for trigger in files.triggers), *files.workflows})
        self._feeds = dict(self._file_feeds)
        self._triggers: dict[str, Trigger] = {trigger.name: trigger for trigger in files.triggers}
        self._workflows = dict(files.workflows)
        self._queries = dict(files.queries)
        self._rows: dict[str, CompiledRow] = {}
        self._names: dict[str, str] = {}
        self._paths: dict[str, str] = {feed.path: feed.name for feed in files.feeds if feed.path}
        self._by_feed: dict[str, dict[str, FeedSpec]] = {}
        self._refused: dict[str, tuple[Finding, ...]] = {}
        self._disabled: dict[str, tuple[str, str]] = {}
        self._references: dict[str, str] = dict(files.references)
        self._secrets: set[str] = set(files.secrets)
        self._feeds_touched: set[str] = set()
        self._triggers_touched: set[str] = set()
        self._renewed: set[str] = set()

    @property
    def ids(self) -> frozenset[str]:
        return frozenset({*self._rows, *self._refused})

    def clash(self, compiled: CompiledRow) -> str:
        """What already has the row's name or its webhook's path, in words; empty if nothing has."""
        name, path = compiled.name, compiled.spec.feed.path
        other = self._names.get(name)
        if other is not None and other != compiled.id:
            return f"the name {name} is taken by another row"
        if name in self._file_names:
            return f"the name {name} is taken by {self._files.origins.get(item('workflow', name), 'the files')}"
        owner = self._paths.get(path) if path else None
        mine = self._rows.get(compiled.id)
        if owner is not None and (mine is None or mine.spec.feed.name != owner):
            return f"the webhook {path} is taken"
        return ""

    def put(self, compiled: CompiledRow) -> None:
        """Have this version of the row. The cursor of the feed that it read before is inherited where it fits."""
        before = self._rows.get(compiled.id)
        earlier = self._feeds.get(before.trigger.feed) if before else None
        spec = compiled.spec
        if before is not None and earlier is not None and spec.feed.name not in self._feeds:
            [feed] = inherit_cursors([spec.feed], [compiled.trigger], [earlier], [before.trigger])
            spec = replace(spec, feed=feed)
        self._take_out(compiled.id)
        self._rows[compiled.id] = compiled
        self._names[compiled.name] = compiled.id
        self._refused.pop(compiled.id, None)
        self._disabled.pop(compiled.name, None)
        self._triggers[compiled.name] = self._with_revision(compiled)
        if compiled.workflow is not None:
            self._workflows[compiled.name] = compiled.workflow
        self._by_feed.setdefault(spec.feed.name, {})[compiled.id] = spec
        self._merge_feed(spec.feed.name)
        self._references |= compiled.references
        self._secrets |= compiled.secrets
        self._triggers_touched.add(compiled.name)

    def disable(self, id: str, name: str, owner: str) -> None:
        """The row is not enabled: it is as if it were not there, but for its name."""
        self.remove(id)
        self._disabled[name] = (id, owner)

    def remove(self, id: str) -> None:
        self._take_out(id)
        self._refused.pop(id, None)
        self._disabled = {name: other for name, other in self._disabled.items() if other[0] != id}

    def refuse(self, id: str, name: str, findings: Iterable[Finding]) -> None:
        """The row cannot be used: its old version runs on, if there is one."""
        self._refused[id] = tuple(findings)
        self._names.setdefault(name, id)

    def _take_out(self, id: str) -> None:
        old = self._rows.pop(id, None)
        if old is None:
            return
        self._names.pop(old.name, None)
        self._triggers.pop(old.name, None)
        if old.workflow is not None:
            self._workflows.pop(old.name, None)
        self._triggers_touched.add(old.name)
        sharing = self._by_feed.get(old.spec.feed.name, {})
        sharing.pop(id, None)
        self._merge_feed(old.spec.feed.name)

    def _merge_feed(self, name: str) -> None:
        """Define the feed anew from the files and the rows that share it."""
        self._feeds_touched.add(name)
        own = self._file_feeds.get(name)
        merged = FeedSpec(feed=own, query=self._files.queries.get(name)) if own else None
        for spec in self._by_feed.get(name, {}).values():
            merged = merge_specs(merged, spec)
        if merged is None:
            gone = self._feeds.pop(name, None)
            self._queries.pop(name, None)
            self._paths.pop(gone.path if gone else "", None)
            return
        if merged.query is not None and self._queries.get(name) not in (None, merged.query):
            self._renewed.add(name)
        self._feeds[name] = merged.feed
        if merged.feed.path:
            self._paths[merged.feed.path] = name
        if merged.query is not None:
            self._queries[name] = merged.query

    def _with_revision(self, compiled: CompiledRow) -> Trigger:
        if not compiled.uses:
            return compiled.trigger
        workflow = self._files.workflows.get(compiled.uses)
        rev = workflow.rev if workflow else compiled.trigger.workflow_rev
        return msgspec.structs.replace(compiled.trigger, workflow_rev=rev)

    def loaded(self, accounts: Mapping[str, Account]) -> Loaded:
        """The whole configuration, with these accounts beside those of the files, whose generation it has."""
        rows = {row.name: row.id for row in self._rows.values()}
        return replace(
            self._files,
            integrations={**accounts, **self._files.integrations},
            feeds=tuple(self._feeds.values()),
            triggers=tuple(self._triggers.values()),
            workflows=dict(self._workflows),
            queries=dict(self._queries),
            references=dict(self._references),
            secrets=frozenset(self._secrets),
            refused={**self._files.refused, **self._refused_items()},
            rows=rows,
            disabled={name: owner for name, (_, owner) in self._disabled.items()},
        )

    def _refused_items(self) -> dict[str, tuple[Finding, ...]]:
        names = {id: name for name, id in self._names.items()}
        return {item("row", names[id]): found for id, found in self._refused.items() if id in names}

    def changes(self, generation: str) -> tuple[Definitions, frozenset[str]]:
        """What changed since the last call, as a part; and the feeds whose source has to be opened again."""
        touched = {self._triggers[name].feed for name in self._triggers_touched if name in self._triggers}
        feeds = frozenset(self._feeds_touched | touched)
        part = Definitions(
            generation=generation,
            feeds=[self._feeds[name] for name in sorted(feeds) if name in self._feeds],
            triggers=[self._triggers[name] for name in sorted(self._triggers_touched) if name in self._triggers],
            workflows={
                name: (flow.rev, msgspec.json.encode(flow.definition))
                for name in sorted(self._triggers_touched)
                if (flow := self._workflows.get(name)) is not None
            },
            only=Part(feeds=feeds, triggers=frozenset(self._triggers_touched)),
        )
        renewed = frozenset(self._renewed)
        self.forget_changes()
        return part, renewed

    def forget_changes(self) -> None:
        """Everything is applied as a whole."""
        self._feeds_touched, self._triggers_touched, self._renewed = set(), set(), set()


def refuse_findings(findings: Iterable[Finding]) -> Misconfigured:
    """The error of a row that cannot be used: the first finding, and how many more there are."""
    errors = [finding for finding in findings if finding.severity == "error"]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    first = errors[0]
    where = ".".join(map(str, first.path))
    return Misconfigured(f"{where}: {first.message}{more}" if where else f"{first.message}{more}", fix=first.fix)
