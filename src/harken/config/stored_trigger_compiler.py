"""Triggers that are rows in the store: compiled to the same values as files, by the same checks.

A row is written as the workflow file that it stands for, and read like one: what is wrong with it is said in the same
words, with the line of what `export` gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec
from pydantic import BaseModel

from harken.config.accounts import AccountStore
from harken.config.compiled_trigger_cache import RowForm, SharedValues, read_form, row_mark
from harken.config.dependency_digest import Dependencies
from harken.config.feed_sources import shards_of, with_shard
from harken.config.findings import Finding, Place, Report, redact
from harken.config.interpolate import Lookup, interpolate
from harken.config.loaded import Account, Loaded, reveal
from harken.config.model_validation import check
from harken.config.resolver import FeedSpec, Resolver
from harken.config.secret_values_to_mask import secrets_by_name, secrets_in
from harken.config.trigger_schema import KINDS
from harken.config.triggers import read_trigger
from harken.config.workflows import Checker, WorkflowFile, check_models, check_prices, read_workflow
from harken.config.yaml.nodes import Node, Table, strings, to_nodes, to_plain
from harken.config.yaml.parser import parse
from harken.config.yaml.writer import to_yaml
from harken.errors import Misconfigured, Refused
from harken.feed import Trigger
from harken.runs import Workflow
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = [
    "ALL_FIELDS",
    "SCHEMA_VERSION",
    "CompiledRow",
    "RowCompiler",
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
# shared by all rows without any
_NO_REFERENCES: Mapping[str, str] = {}


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


ALL_FIELDS = frozenset(TriggerRow.__struct_fields__)


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
    block: dict[str, Any] = {row.provider: row.config, **({"condition": row.condition} if row.condition else {})}
    rest = row.workflow if isinstance(row.workflow, dict) else {"workflow": row.workflow}
    if not row.user_id:
        # rows of earlier versions may say something twice, and this is what they mean
        return {"name": row.name, "trigger": {**block, **row.options}, **rest}
    # what an owner may do was checked by the fields of the row itself
    file: dict[str, Any] = {"name": row.name, "trigger": {**row.options, **block}}
    return file | {key: value for key, value in rest.items() if key not in file}


_OWN = {"name": ("name",), "trigger": ("provider", "config", "condition", "options")}
"""Of a workflow file, what a row has in fields of its own."""


def _check_fields(row: TriggerRow, sent: Collection[str], file: str, report: Report) -> None:
    """Report what stands in two fields of the row, if one of them is sent now: which counts nobody could see.

    A row of an owner never has such."""
    steps = row.workflow if isinstance(row.workflow, dict) else {}
    twice = [("workflow", key, fields) for key, fields in _OWN.items() if key in steps]
    twice += [("options", row.provider, ("provider", "config"))] if row.provider in row.options else []
    twice += [("options", "condition", ("condition",))] if row.condition and "condition" in row.options else []
    for where, key, fields in twice:
        if row.user_id or not {where, *fields}.isdisjoint(sent):
            fix = f"Send it as {', '.join(fields)}"
            report.error(Place(file), (where, key), "is a field of the row itself", fix, "duplicate")


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
    """What a row becomes. `uses` is the workflow that it starts by name; else it brings `workflow`.

    `accounts` and `kinds` are the names that it was looked up by. If its query is `pending`, that is the row itself, as
    JSON: the query is compiled when the source of its feed is needed.
    """

    id: str
    name: str
    trigger: Trigger
    spec: FeedSpec
    workflow: Workflow | None = None
    uses: str = ""
    references: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    accounts: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    pending: bytes = field(default=b"", repr=False)

    @property
    def query_mark(self) -> Any:
        """Equal for rows whose queries are, also while they are not compiled."""
        return (self.spec.feed.query, self.references, self.secrets)


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
        self._shards = shards_of(files)
        # how many rows were compiled, and not restored
        self.compiled = 0
        self._values: dict[tuple[str, ...], Mapping[str, str] | None] | None = None
        self._shared = SharedValues()
        named_feeds = {name.removeprefix("feed:") for name in files.origins if name.startswith("feed:")}
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
                name: FeedSpec(feed=feed, query=files.queries.get(name))
                for name in sorted(named_feeds)
                if (feed := files.feed(name)) is not None
            },
            refused=set(files.refused),
        )
        self._dependencies = Dependencies(self._resolver)
        self._checker = checker_for(self._resolver.kinds())

    @property
    def accounts(self) -> Mapping[str, Account]:
        return self._resolver.accounts

    def compile(
        self, row: TriggerRow, *, quick: bool = False, sent: Collection[str] = ALL_FIELDS
    ) -> tuple[CompiledRow | None, tuple[Finding, ...]]:
        """What the row becomes, or None; and what is wrong or odd about it. `sent`: its fields that are new.

        `quick` is for rows that were good when they were written: only what is wrong with them has its line."""
        self.compiled += 1
        file, report = f"/api/triggers/{row.id}", Report()
        _check_fields(row, () if quick else sent, file, report)
        if report.failed:
            return None, tuple(report.findings)
        tree = to_nodes(as_file(row), Place(file)) if quick and row.provider in KINDS else None
        if tree is not None:
            found = self._compile(row, tree, file, Report())
            if found[0] is not None:
                return found
        if row.provider not in KINDS:
            fix = suggest_fix(row.provider, KINDS)
            report.error(Place(file), ("provider",), f"{row.provider!r} is not a kind of trigger", fix, "unknown_name")
            return None, tuple(report.findings)
        return self._compile(row, parse(to_yaml(as_file(row)).encode(), file, report), file, report)

    def _compile(
        self, row: TriggerRow, tree: Node | None, file: str, report: Report
    ) -> tuple[CompiledRow | None, tuple[Finding, ...]]:
        lookup, resolver = _SecretLookup(self._files.directory, {}, self._secrets), self._resolver
        resolver.references, resolver.secrets, resolver.asked, resolver.named = lookup.references, set(), set(), set()
        tree = interpolate(tree, lookup, report) if tree is not None else None
        found = self._read(row, tree, file, report) if isinstance(tree, Table) else None
        if row.user_id and found is not None:
            definition = reveal(found.workflow.definition, lookup.references) if found.workflow else {}
            self._check_owner(row.user_id, found.trigger, definition, file, report)
        hidden = {*lookup.references.values(), *resolver.secrets}
        findings = redact(report.findings, hidden)
        if found is None or report.failed:
            return None, findings
        account = resolver.accounts.get(found.spec.feed.integration)
        with_account = replace(self._files, integrations={account.name: account}) if account else self._files
        feed = with_shard(found.spec.feed, with_account, self._shards)
        compiled = replace(
            found,
            trigger=msgspec.structs.replace(found.trigger, owner=row.user_id),
            spec=replace(found.spec, feed=feed),
            references=dict(lookup.references),
            secrets=frozenset(hidden),
            accounts=frozenset(resolver.asked),
            kinds=frozenset(resolver.named),
        )
        return compiled, findings

    def _check_owner(self, owner: str, trigger: Trigger, definition: Any, file: str, report: Report) -> None:
        """Report the accounts of the row, and of the feeds that it hears, that are for others than its owner.

        `definition` has the steps as they are executed: what they use counts however it is written."""
        from harken.run.compiled_workflows import uses_of

        resolver = self._resolver
        for kind, step_uses in sorted(uses_of(definition)):
            if kind == "channel" and "{{" in step_uses:
                fix = "Write its name; for several use if or switch"
                message = "a step notifies a channel that is only known when it runs"
                report.error(Place(file), ("steps",), message, fix, "not_allowed")
            elif kind != "workflow":
                integration = step_uses.rpartition(".")[0] if kind == "action" else step_uses
                resolver.require(integration, Place(file), Report(), ())
        heard = [resolver.feeds[name].feed.integration for name in trigger.feeds if name in resolver.feeds]
        # what was asked for the row depends on: it is compiled again once one of them is for others
        resolver.asked.update(name for name in heard if name in resolver.accounts)
        used = [resolver.account(name, Place(file), Report(), ()) for name in sorted(resolver.asked)]
        accounts = {found[0].name: found[0] for found in used if found is not None}
        for name, account in sorted(accounts.items()):
            if account.agents is not None and owner not in account.agents:
                fix = "Name another. Who may use it stands in its allow_agents"
                report.error(
                    Place(file), ("trigger",), f"the integration {name} is not for {owner}", fix, "not_allowed"
                )

    def form(self, value: Mapping[str, Any], compiled: CompiledRow) -> RowForm | None:
        """What is kept of the row with this stored value, so that it need not be compiled again.

        None if that would hold a secret, or if the row depends on a file that may change."""
        names = {*compiled.references.values()}.union(
            *(self._dependencies.secrets_of(name) for name in compiled.accounts)
        )
        if compiled.secrets - names or b'"schema":"' in msgspec.json.encode(value.get("config")):
            return None
        trigger, feeds = (
            compiled.trigger,
            tuple(name for name in compiled.trigger.feeds if name in self._resolver.feeds),
        )
        accounts, kinds = tuple(sorted(compiled.accounts)), tuple(sorted(compiled.kinds))
        return RowForm(
            mark=row_mark(msgspec.json.encode(value), self._shards),
            depends=self._dependencies.state(accounts, kinds, feeds),
            trigger=trigger,
            feed=compiled.spec.feed,
            workflow=compiled.workflow,
            uses=compiled.uses,
            accounts=accounts,
            kinds=kinds,
            feeds=feeds,
            references=tuple(sorted(compiled.references)),
            has_query=compiled.spec.query is not None,
        )

    def restore(self, id: str, row: bytes, stored: bytes) -> CompiledRow | None:
        """The compiled row of its JSON and that of its form; None if the form was made of something else."""
        form = read_form(stored, row_mark(row, self._shards))
        if form is None or form.depends != self._dependencies.state(form.accounts, form.kinds, form.feeds):
            return None
        if form.uses and (form.uses not in self._files.workflows or form.uses in self._files.rows):
            return None
        references = self._values_of(form.references)
        if references is None:
            return None
        secrets = frozenset(references.values()).union(*(self._dependencies.secrets_of(name) for name in form.accounts))
        spec = self._resolver.feeds.get(form.feed.name) or FeedSpec(feed=form.feed)
        shared = self._shared
        shared.use_in(form)
        return CompiledRow(
            id=id,
            name=form.trigger.name,
            trigger=form.trigger,
            spec=spec,
            workflow=form.workflow,
            uses=form.uses,
            references=references,
            secrets=shared.names(secrets),
            accounts=shared.names(form.accounts),
            kinds=shared.names(form.kinds),
            pending=row if form.has_query and spec.query is None else b"",
        )

    def query(self, pending: bytes) -> BaseModel | None:
        """The query of a row that was restored from its form. Raise Misconfigured if it is wrong by now."""
        compiled, findings = self.compile(read_row(msgspec.json.decode(pending)), quick=True)
        if compiled is None:
            raise refuse_findings(findings)
        return compiled.spec.query

    def _values_of(self, references: tuple[str, ...]) -> Mapping[str, str] | None:
        """The secrets of these references; None if one cannot be had."""
        if not references:
            return _NO_REFERENCES
        if self._values is not None and references in self._values:
            return self._values[references]
        found = self._look_up(references)
        if self._values is not None:
            self._values[references] = found
        return found

    @contextmanager
    def reading_secrets_once(self) -> Iterator[None]:
        """Meanwhile each secret is read once for all rows that are restored."""
        self._values = {}
        try:
            yield
        finally:
            self._values = None

    def _look_up(self, references: Sequence[str]) -> Mapping[str, str] | None:
        lookup = _SecretLookup(self._files.directory, {}, self._secrets)
        try:
            for reference in references:
                lookup.resolve(reference[2:-1])
        except Lookup.unset:
            return None
        return lookup.references

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


def refuse_findings(findings: Iterable[Finding]) -> Misconfigured:
    """The error of a row that cannot be used: the first finding, and how many more there are."""
    errors = [finding for finding in findings if finding.severity == "error"]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    first = errors[0]
    where = ".".join(map(str, first.path))
    return Misconfigured(f"{where}: {first.message}{more}" if where else f"{first.message}{more}", fix=first.fix)
