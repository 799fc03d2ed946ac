"""Operations on triggers that are rows in the store: create, replace, edit, delete, export."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harken.errors import HarkenError, Misconfigured, NotFound, Outdated, Refused, StoreBusy, Unconditional
from harken.operate.context import Context
from harken.operate.idempotency import new_id
from harken.operate.load_and_check_configuration import credentials_of, finding_row, row_compiler, workflow_tree
from harken.operate.output_rows import Plain, own_secrets, plain
from harken.operate.owner_access import Ownership
from harken.store import Document, DocumentChange
from harken.store.document_kinds import CHANGES, TRIGGER_FORM, TRIGGER_LOG, TRIGGER_NAME, TRIGGER_ROW
from harken.suggest import suggest_fix

if TYPE_CHECKING:
    from harken.config.findings import Finding
    from harken.config.stored_trigger_compiler import CompiledRow, RowCompiler, TriggerRow

__all__ = [
    "InvalidRow",
    "create",
    "delete",
    "edit",
    "export",
    "find_row",
    "named_by_id",
    "refuse_taken",
    "replace",
    "row_view",
    "with_secrets_hidden",
    "workflow_of",
]

RECENT = 500
"""So many changes are remembered by id; a replica that has missed more reads all rows."""
TRIES = 100
ID_LENGTH = 36
"""The characters of a UUID."""
SHORTEST = 6
"""A shorter secret is replaced only where it is the whole text, as it may be part of any word."""


class InvalidRow(Misconfigured):
    """A row that cannot be used; `findings` has everything that is wrong with it."""

    def __init__(self, message: str, *, fix: str = "", findings: Sequence[Plain] = ()) -> None:
        super().__init__(message, fix=fix)
        self.findings = findings


async def create(
    context: Context,
    *,
    name: str,
    provider: str,
    workflow: Any,
    config: Any = None,
    condition: str = "",
    options: Mapping[str, Any] | None = None,
    enabled: bool = True,
) -> Plain:
    """Make a trigger. Its provider, config and options are what a workflow file has under `trigger:`."""
    from harken.config.stored_trigger_compiler import ALL_FIELDS, TriggerRow

    now = context.clock.now()
    id = str(new_id("trigger"))
    if (known := await context.store.get(TRIGGER_ROW, id)) is not None:
        # the first request with this key made it, and was not answered
        return await _changed(context, known)
    await refuse_taken(context, name)
    row = TriggerRow(
        id=id,
        user_id=context.principal.owner,
        name=name,
        provider=provider,
        config=config,
        condition=condition,
        options=dict(options or {}),
        workflow=workflow_of(workflow),
        enabled=enabled,
        created_at=now,
        updated_at=now,
    )
    row, form = await asyncio.to_thread(_prepare, context, row, ALL_FIELDS)
    changes = [
        DocumentChange(kind=TRIGGER_ROW, name=id, value=msgspec.to_builtins(row), expect=0),
        DocumentChange(kind=TRIGGER_NAME, name=name, value=id, expect=0),
        DocumentChange(kind=TRIGGER_FORM, name=id, value=form),
    ]
    written = await _write(context, id, changes)
    if written is None or written[0] is None:
        raise Refused(f"the name {name} is taken by another row", fix=f"See: harken triggers show {name}")
    return await _changed(context, written[0])


async def replace(
    context: Context,
    *,
    name: str,
    provider: str,
    workflow: Any,
    config: Any = None,
    condition: str = "",
    options: Mapping[str, Any] | None = None,
    enabled: bool = True,
    match: str = "",
) -> Plain:
    """Have another version of the trigger; what is not given has its default."""
    return await _edit(
        context,
        name,
        match,
        {
            "provider": provider,
            "workflow": workflow,
            "config": config,
            "condition": condition,
            "options": dict(options or {}),
            "enabled": enabled,
        },
    )


async def edit(
    context: Context,
    *,
    name: str,
    provider: str | None = None,
    workflow: Any = None,
    config: Any = None,
    condition: str | None = None,
    options: Mapping[str, Any] | None = None,
    enabled: bool | None = None,
    match: str = "",
) -> Plain:
    """Change what is given, and leave the rest. A trigger that is not enabled reads nothing and starts nothing."""
    given = {
        "provider": provider,
        "workflow": workflow,
        "config": config,
        "condition": condition,
        "options": None if options is None else dict(options),
        "enabled": enabled,
    }
    return await _edit(context, name, match, {key: value for key, value in given.items() if value is not None})


async def _edit(context: Context, name: str, match: str, given: Mapping[str, Any]) -> Plain:
    document = await _matching(context, name, match)
    changed = dict(given)
    if "workflow" in changed:
        changed["workflow"] = workflow_of(changed["workflow"])
    row = msgspec.structs.replace(_read(document), **changed, updated_at=context.clock.now())
    form: Any = msgspec.UNSET
    if row.enabled or set(given) != {"enabled"}:
        row, form = await asyncio.to_thread(_prepare, context, row, given.keys())
    changes = [
        DocumentChange(kind=TRIGGER_ROW, name=row.id, value=msgspec.to_builtins(row), expect=document.revision),
        DocumentChange(kind=TRIGGER_FORM, name=row.id, value=form),
    ]
    written = await _write(context, row.id, changes)
    if written is None or written[0] is None:
        raise _outdated(row.name)
    return await _changed(context, written[0])


async def delete(context: Context, *, name: str, match: str = "") -> Plain:
    """Remove the trigger. What it has recorded stays until it is old; its secrets are forgotten."""
    document = await _matching(context, name, match)
    row = _read(document)
    changes = [
        DocumentChange(kind=TRIGGER_ROW, name=row.id, expect=document.revision),
        DocumentChange(kind=TRIGGER_NAME, name=row.name),
        DocumentChange(kind=TRIGGER_FORM, name=row.id),
    ]
    if await _write(context, row.id, changes) is None:
        raise _outdated(row.name)
    await context.sync_rows()
    await asyncio.to_thread(_forget_secrets, context, row.id)
    return {"id": row.id, "name": row.name, "deleted": True}


async def export(context: Context, *, name: str) -> Plain:
    """The trigger as a workflow file; secrets are references in it."""
    from harken.config.stored_trigger_compiler import as_file
    from harken.config.yaml.nodes import to_storable
    from harken.config.yaml.writer import to_yaml

    document = await find_row(context, name)
    if document is not None:
        row = _read(document)
        if isinstance(row.workflow, str):
            row = msgspec.structs.replace(row, workflow=dict(context.workflow(row.workflow).definition))
        return {"name": row.name, "source": f"/api/triggers/{row.id}", "yaml": to_yaml(as_file(row))}
    state = await context.trigger(name)
    definition = context.triggers().get(state.name)
    if context.loaded is None or definition is None or definition.name not in context.workflows():
        raise Refused(f"trigger {name} is not one workflow in a file", fix="See: harken triggers show NAME")
    tree = await asyncio.to_thread(workflow_tree, context.loaded, state.name)
    return {"name": state.name, "source": definition.source, "yaml": to_yaml(to_storable(tree))}


async def find_row(context: Context, name: str) -> Document | None:
    """The document of the row with this name or id; None if there is none."""
    named = await context.store.get(TRIGGER_NAME, name)
    return await context.store.get(TRIGGER_ROW, str(named.value) if named else name)


async def named_by_id(context: Context, given: str) -> str:
    """The name of the row with this id; what was given if there is none."""
    if len(given) != ID_LENGTH or given in context.triggers():
        return given
    document = await context.store.get(TRIGGER_ROW, given)
    return str(document.value["name"]) if document else given


def row_view(context: Context, document: Document, last_checked: Any = None) -> Plain:
    """The row as the API shows it; `revision` is its ETag."""
    row = _read(document)
    shown: Plain = plain(row)
    return shown | {"last_checked": last_checked, "revision": str(document.revision)}


async def _matching(context: Context, name: str, match: str) -> Document:
    """The row, if `match` names its current version."""
    if not match:
        fix = 'Read it first, and send its ETag as If-Match: "…"'
        raise Unconditional(f"a change of {name} has to say which version it means", fix=fix)
    document = await find_row(context, name)
    if document is None:
        raise await _no_row(context, name)
    if match != "*" and match.strip('"') != str(document.revision):
        raise _outdated(_read(document).name)
    return document


async def _no_row(context: Context, name: str) -> HarkenError:
    definition = context.triggers().get(name)
    if definition is None:
        return NotFound(f"there is no trigger {name}", fix=suggest_fix(name, context.triggers()))
    where = await asyncio.to_thread(_place, context, name)
    return Refused(
        f"trigger {name} is defined in {where}, and only there", fix="Change it there; it is loaded by itself"
    )


def _place(context: Context, name: str) -> str:
    """The file and line where a trigger is written."""
    from harken.config.yaml.nodes import locate

    definition = context.triggers()[name]
    if context.loaded is None or name not in context.workflows():
        return definition.source or "the files"
    place = locate(workflow_tree(context.loaded, name), ("trigger",), key=True)
    return f"{place.file}:{place.line}"


async def refuse_taken(context: Context, name: str) -> None:
    """Raise Refused if something else has the name."""
    if await context.store.get(TRIGGER_NAME, name) is not None:
        raise Refused(f"the name {name} is taken by another row", fix=f"See: harken triggers show {name}")
    if name in context.triggers():
        where = await asyncio.to_thread(_place, context, name)
        raise Refused(f"the name {name} is taken by {where}", fix="Choose another name")
    if name in context.workflows():
        raise Refused(f"the name {name} is taken by a workflow", fix="Choose another name, and start it by its name")


def _outdated(name: str) -> Outdated:
    return Outdated(f"trigger {name} was changed meanwhile", fix="Read it again, and change what is there now")


def workflow_of(given: Any) -> str | dict[str, Any]:
    """What a row starts: the name of a workflow, or steps. Raise Misconfigured if it is neither."""
    if not isinstance(given, (str, dict)) or not given:
        raise Misconfigured("workflow: is neither a name nor steps", fix='Write "workflow": "NAME", or {"steps": […]}')
    return given


def _read(document: Document) -> TriggerRow:
    from harken.config.stored_trigger_compiler import read_row

    return read_row(document.value)


def _prepare(context: Context, row: TriggerRow, sent: Collection[str]) -> tuple[TriggerRow, Any]:
    """Check the row as a file is checked, and keep its secrets elsewhere. Raise InvalidRow if it cannot be used.

    `sent`: its fields that are new. Return it with the form that is kept of it, or UNSET."""
    assert context.loaded is not None
    loaded = context.loaded
    compiler = row_compiler(loaded)
    compiled, findings = compiler.compile(row, sent=sent)
    if compiled is None:
        raise _invalid(findings)
    Ownership(context, context.principal).admit_row(row, compiled)
    path = compiled.spec.feed.path
    other = loaded.feed_at(path) if path else None
    mine = loaded.trigger(row.name) if loaded.rows.get(row.name) == row.id else None
    if other is not None and (mine is None or mine.feed != other.name):
        raise Refused(f"the webhook {path} is taken", fix="Give config another id")
    texts = compiler.secret_texts(row)
    if not texts:
        return row, _form(compiler, row, compiled)
    credentials = credentials_of(loaded.directory)
    before = frozenset(credentials.secrets())
    hidden = _hide(row, texts, credentials.store_secret)
    compiler = row_compiler(loaded)
    again, findings = compiler.compile(hidden, sent=sent)
    if again is None:
        # the version that runs goes on with what it has
        _forget_secrets(context, row.id, but=before)
        raise _invalid(findings)
    return hidden, _form(compiler, hidden, again)


def _form(compiler: RowCompiler, row: TriggerRow, compiled: CompiledRow) -> Any:
    from harken.config.compiled_trigger_cache import to_document

    form = compiler.form(msgspec.to_builtins(row), compiled)
    return msgspec.UNSET if form is None else to_document(form)


def _hide(row: TriggerRow, texts: set[str], keep: Callable[[str, str], object]) -> TriggerRow:
    """The row with references in place of these texts, which are kept as secrets of their own."""
    references: dict[str, str] = {}
    for text in sorted(texts):
        # the name has to be another one than that of an older version, which may still run
        name = f"{own_secrets(row.id)}{new_id(text).hex[:12]}"
        keep(name, text)
        references[text] = f"${{secret:{name}}}"
    fields = {name: _replace(getattr(row, name), references) for name in ("config", "options", "workflow")}
    return msgspec.structs.replace(row, **fields)


def with_secrets_hidden(row: TriggerRow, texts: set[str]) -> TriggerRow:
    """The row as it may be shown: these texts are references to secrets that nobody has stored yet."""
    names = (f"{row.name or 'my'}-secret{'' if at == 0 else f'-{at + 1}'}" for at in range(len(texts)))
    references = {text: f"${{secret:{name}}}" for text, name in zip(sorted(texts), names, strict=True)}
    fields = {name: _replace(getattr(row, name), references) for name in ("config", "options", "workflow")}
    return msgspec.structs.replace(row, **fields)


def _replace(value: Any, references: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _replace(inner, references) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replace(inner, references) for inner in value]
    if not isinstance(value, str):
        return value
    for text, reference in references.items():
        if value == text or (len(text) >= SHORTEST and text in value):
            value = value.replace(text, reference)
    return value


def _forget_secrets(context: Context, id: str, but: Collection[str] = ()) -> None:
    if context.loaded is None:
        return
    credentials = credentials_of(context.loaded.directory)
    for name in credentials.secrets():
        if name.startswith(own_secrets(id)) and name not in but:
            credentials.forget("secret", name)


def _invalid(findings: Sequence[Finding]) -> InvalidRow:
    from harken.config.stored_trigger_compiler import refuse_findings

    error = refuse_findings(findings)
    return InvalidRow(error.message, fix=error.fix, findings=[finding_row(one) for one in findings])


async def _write(context: Context, id: str, changes: Sequence[DocumentChange]) -> Sequence[Document | None] | None:
    """Write the changes of a row together with the note that it changed; None if it is not as expected."""
    for _ in range(TRIES):
        noted = await context.store.get(TRIGGER_LOG, CHANGES)
        recent = [*(noted.value["recent"] if noted else ()), id][-RECENT:]
        note = DocumentChange(
            kind=TRIGGER_LOG, name=CHANGES, value={"recent": recent}, expect=noted.revision if noted else 0
        )
        written = await context.store.change([*changes, note])
        if written is not None:
            return written
        for change in changes:
            current = await context.store.get(change.kind, change.name)
            if change.expect not in (None, current.revision if current else 0):
                return None
    raise StoreBusy("others change rows all the time", after=1.0)


async def _changed(context: Context, document: Document) -> Plain:
    await context.sync_rows()
    return row_view(context, document)
