"""The rows of the store beside the configuration of the files: all of them at the start, then only what changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from harken.config.findings import Finding, Place, Report
from harken.config.loaded import Loaded
from harken.config.trigger_rows import RowCompiler, RowSet, read_row
from harken.errors import HarkenError
from harken.operate.configuration import row_compiler
from harken.store import Definitions, Store
from harken.store.documents import CHANGES, TRIGGER_LOG, TRIGGER_ROW

__all__ = ["ChangedRows", "TriggerRows"]

log = structlog.get_logger("harken.app")


@dataclass(frozen=True, kw_only=True)
class ChangedRows:
    """The configuration with the changed rows, the part of it that is to be applied, and the feeds to open again."""

    loaded: Loaded
    part: Definitions
    renewed: frozenset[str]


class TriggerRows:
    """Reads rows from the store and compiles them. Remembers up to which change it has read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._revision: int | None = None
        self._rows: RowSet | None = None
        self._compiler: RowCompiler | None = None

    def forget(self) -> None:
        """What was read last is not applied: the next look reads everything."""
        self._revision = None

    async def load(self, files: Loaded) -> Loaded:
        """The configuration of the files with all rows that are enabled."""
        # before the rows: a change in between is read twice, and none is missed
        document = await self._store.get(TRIGGER_LOG, CHANGES)
        if document is None:
            self._rows, self._compiler, self._revision = None, None, 0
            return files
        documents = await self._store.documents(TRIGGER_ROW)
        values = [found.value for found in documents]
        compiler, rows = await asyncio.to_thread(_compile_all, files, values)
        self._compiler, self._rows, self._revision = compiler, rows, document.revision
        return rows.loaded(compiler.accounts)

    async def changed(self, files: Loaded) -> ChangedRows | None:
        """What changed since the last look; None if nothing did."""
        document = await self._store.get(TRIGGER_LOG, CHANGES)
        if document is None or document.revision == self._revision:
            return None
        recent = list(document.value["recent"])
        missed = document.revision - self._revision if self._revision is not None else None
        rows, compiler = self._rows or RowSet(files), self._compiler or row_compiler(files)
        if missed is None or missed > len(recent):
            ids: Iterable[str] = {*rows.ids, *(found.name for found in await self._store.documents(TRIGGER_ROW))}
        else:
            ids = set(recent[-missed:])
        for id in sorted(ids):
            found = await self._store.get(TRIGGER_ROW, id)
            if found is None:
                rows.remove(id)
            else:
                _put(rows, compiler, found.value)
        self._rows, self._compiler, self._revision = rows, compiler, document.revision
        part, renewed = rows.changes(files.generation)
        return ChangedRows(loaded=rows.loaded(compiler.accounts), part=part, renewed=renewed)


def _compile_all(files: Loaded, values: Iterable[Mapping[str, Any]]) -> tuple[RowCompiler, RowSet]:
    compiler, rows = row_compiler(files), RowSet(files)
    for value in values:
        _put(rows, compiler, value)
    rows.forget_changes()
    return compiler, rows


def _put(rows: RowSet, compiler: RowCompiler, value: Mapping[str, Any]) -> None:
    """Have the row as it is stored, or note why it cannot be used."""
    id, name = str(value["id"]), str(value["name"])
    if not value.get("enabled", True):
        rows.disable(id, name, str(value.get("user_id", "")))
        return
    try:
        compiled, findings = compiler.compile(read_row(value))
    except HarkenError as error:
        compiled, findings = None, _finding(id, error.message, error.fix)
    taken = rows.clash(compiled) if compiled else ""
    if taken:
        compiled, findings = None, _finding(id, taken, "Give the row another name")
    if compiled is not None:
        rows.put(compiled)
        return
    rows.refuse(id, name, findings)
    for finding in findings:
        if finding.severity == "error":
            log.error("row.refused", trigger=name, reason=finding.message, fix=finding.fix)


def _finding(id: str, message: str, fix: str) -> tuple[Finding, ...]:
    report = Report()
    report.error(Place(f"/api/triggers/{id}"), (), message, fix)
    return tuple(report.findings)
