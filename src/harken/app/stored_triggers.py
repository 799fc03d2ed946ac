"""The rows of the store beside the configuration of the files: all of them at the start, then only what changed.

What a row compiles to is kept beside it (`TRIGGER_FORM`), so that a start takes it as it is.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from sys import intern
from typing import Any

import msgspec
import structlog

from harken.config.compiled_trigger_cache import to_document
from harken.config.files_and_rows import RowSet
from harken.config.findings import Finding, Place, Report
from harken.config.loaded import IdleRow, Loaded
from harken.config.stored_trigger_compiler import CompiledRow, RowCompiler, read_row
from harken.errors import HarkenError
from harken.operate.load_and_check_configuration import row_compiler
from harken.store import Definitions, Document, DocumentChange, Store
from harken.store.document_kinds import CHANGES, TRIGGER_FORM, TRIGGER_LOG, TRIGGER_ROW

__all__ = ["ChangedRows", "TriggerRows", "without_collection"]

log = structlog.get_logger("harken.app")

PAGE = 50_000
"""So many rows are read in one query. Redis lists the names of all of them for each."""
AT_ONCE = 500
"""So many forms are written in one transaction."""
TELL_SECONDS = 5.0
"""While rows are compiled, a line says so often how many are done."""


@dataclass(frozen=True, kw_only=True)
class ChangedRows:
    """The configuration with the changed rows, the part of it that is to be applied, and the feeds to open again."""

    loaded: Loaded
    part: Definitions
    renewed: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class _Compiled:
    """All rows, and what is to be changed in the forms that the store has."""

    compiler: RowCompiler
    rows: RowSet
    forms: list[DocumentChange] = field(default_factory=list)


class TriggerRows:
    """Reads rows from the store and compiles them. Remembers up to which change it has read.

    Without `keeping` it writes no forms: whoever only looks may not be allowed to write."""

    def __init__(self, store: Store, *, keeping: bool = True) -> None:
        self._store = store
        self._keeping = keeping
        self._revision: int | None = None
        self._rows: RowSet | None = None
        self._compiler: RowCompiler | None = None

    def forget(self) -> None:
        """What was read last is not applied: the next look reads everything."""
        self._revision = None

    @contextmanager
    def kept_if_applied(self) -> Iterator[None]:
        """If what is loaded meanwhile cannot be applied, go on with the rows of before and the files that they had."""
        before = self._revision, self._rows, self._compiler
        try:
            yield
        except BaseException:
            self._revision, self._rows, self._compiler = before
            raise

    async def load(self, files: Loaded) -> Loaded:
        """The configuration of the files with all rows that are enabled."""
        # before the rows: a change in between is read twice, and none is missed
        document = await self._store.get(TRIGGER_LOG, CHANGES)
        if document is None:
            self._rows, self._compiler, self._revision = None, None, 0
            return files
        with without_collection():
            documents, forms = await asyncio.gather(self._all(TRIGGER_ROW, raw=True), self._all(TRIGGER_FORM, raw=True))
            found = await asyncio.to_thread(_compile_all, files, documents, forms)
        self._compiler, self._rows, self._revision = found.compiler, found.rows, document.revision
        if self._keeping:
            for begin in range(0, len(found.forms), AT_ONCE):
                await self._store.change(found.forms[begin : begin + AT_ONCE])
        return found.rows.loaded(found.compiler.accounts)

    async def _all(self, kind: str, *, raw: bool = False) -> list[Document]:
        """All documents of a kind, in pages: a store limits how long one query may take."""
        found: list[Document] = []
        while True:
            page = await self._store.documents(kind, after=found[-1].name if found else "", limit=PAGE, raw=raw)
            found += page
            if len(page) < PAGE:
                return found

    async def changed(self, files: Loaded) -> ChangedRows | None:
        """What changed since the last look; None if nothing did."""
        document = await self._store.get(TRIGGER_LOG, CHANGES)
        if document is None or document.revision == self._revision:
            return None
        recent = list(document.value["recent"])
        missed = document.revision - self._revision if self._revision is not None else None
        compiler = self._compiler or row_compiler(files)
        rows = self._rows or RowSet(files, compiler.query)
        if missed is None or missed > len(recent):
            ids: Iterable[str] = {*rows.ids, *(found.name for found in await self._all(TRIGGER_ROW))}
        else:
            ids = set(recent[-missed:])
        documents = {id: await self._store.get(TRIGGER_ROW, id) for id in sorted(ids)}
        # first what is gone: a new row may have its name or the path of its webhook
        for id in [id for id, found in documents.items() if found is None]:
            rows.remove(id)
        for id, found in documents.items():
            if found is not None:
                form = await self._store.get(TRIGGER_FORM, id)
                _put(rows, compiler, _encode(found.value), _encode(form.value) if form else None)
        self._rows, self._compiler, self._revision = rows, compiler, document.revision
        part, renewed = rows.changes(files.generation)
        return ChangedRows(loaded=rows.loaded(compiler.accounts), part=part, renewed=renewed)


@contextmanager
def without_collection(*, keep: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Collect no garbage meanwhile: nearly everything that is made stays, and would be looked at each time.

    If `keep` is true at the end it is not looked at later either, and not once when the collection goes on."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if keep():
            gc.freeze()
        if enabled:
            gc.enable()


def _compile_all(files: Loaded, documents: Sequence[Document], forms: Sequence[Document]) -> _Compiled:
    compiler = row_compiler(files)
    rows, known = RowSet(files, compiler.query), {form.name: form.value for form in forms}
    found, told = _Compiled(compiler=compiler, rows=rows), time.monotonic()
    with compiler.reading_secrets_once():
        for number, document in enumerate(documents):
            form = known.pop(document.name, None)
            compiled = _put(rows, compiler, document.value, form)
            if compiled is not None:
                kept = compiler.form(msgspec.json.decode(document.value), compiled)
                value: Any = msgspec.UNSET if kept is None else to_document(kept)
                if kept is not None or form is not None:
                    found.forms.append(DocumentChange(kind=TRIGGER_FORM, name=document.name, value=value))
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                log.info("rows.compiling", done=number + 1, of=len(documents))
    # of rows that are gone
    found.forms.extend(DocumentChange(kind=TRIGGER_FORM, name=name) for name in known)
    rows.forget_changes()
    return found


class _Head(msgspec.Struct, frozen=True, gc=False):
    """What has to be known of a row that is not compiled; the rest of its JSON is passed over."""

    id: str
    name: str
    enabled: bool = True
    user_id: str = ""
    provider: str = ""
    workflow: msgspec.Raw = msgspec.Raw(b"null")


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_Head).decode


def _workflow_name(head: _Head) -> str:
    """The workflow that the row names; its own is called as the row."""
    written = bytes(head.workflow)
    return str(msgspec.json.decode(written)) if written.startswith(b'"') else head.name


def _put(rows: RowSet, compiler: RowCompiler, row: bytes, form: bytes | None) -> CompiledRow | None:
    """Have the row with this JSON, or note why it cannot be used. Return it if it had to be compiled."""
    head = _decode_head(row)
    id, name = head.id, head.name
    if not head.enabled:
        rows.disable(name, IdleRow(id, head.user_id, intern(head.provider), _workflow_name(head)))
        return None
    findings: tuple[Finding, ...] = ()
    compiled = restored = compiler.restore(id, row, form) if form is not None else None
    if compiled is None:
        try:
            compiled, findings = compiler.compile(read_row(msgspec.json.decode(row)), quick=True)
        except HarkenError as error:
            findings = _finding(id, error.message, error.fix)
    taken = rows.clash(compiled) if compiled else ""
    if taken:
        compiled, findings = None, _finding(id, taken, "Give the row another name")
    if compiled is not None:
        rows.put(compiled)
        return compiled if restored is None else None
    rows.refuse(id, name, head.user_id, findings)
    for finding in findings:
        if finding.severity == "error":
            log.error("row.refused", trigger=name, reason=finding.message, fix=finding.fix)
    return None


def _finding(id: str, message: str, fix: str) -> tuple[Finding, ...]:
    report = Report()
    report.error(Place(f"/api/triggers/{id}"), (), message, fix)
    return tuple(report.findings)
