"""Ids of runs that stand within documents and journals. They are hashes of names, which encryption makes keyed ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from harken.store.document_kinds import RUN_FIELDS

__all__ = ["rename_in_document", "rename_in_step"]

_ID = re.compile(r"[0-9a-f]{32}(?![0-9a-f])")
_SUB_WORKFLOW = b'"workflow"'
_Fields = dict[str, msgspec.Raw]


def rename_in_document(kind: str, value: bytes, rename: Callable[[bytes], bytes]) -> bytes:
    """The document with the ids that its runs have now."""
    fields = RUN_FIELDS.get(kind, ())
    return _replace(value, fields, rename) if fields else value


def rename_in_step(record: bytes, rename: Callable[[bytes], bytes]) -> bytes:
    """The record of a step; one that starts a workflow knows by the id which run it waits for."""
    if _SUB_WORKFLOW not in record:
        return record
    found = msgspec.json.decode(record, type=_Fields)
    output = bytes(found.get("output", b""))
    if bytes(found.get("action", b"")) != _SUB_WORKFLOW or not output.startswith(b"{"):
        return record
    return msgspec.json.encode({**found, "output": msgspec.Raw(_replace(output, ("run",), rename))})


def _replace(value: bytes, fields: Iterable[str], rename: Callable[[bytes], bytes]) -> bytes:
    """The object with another id at the beginning of these fields. All else stays as it is written."""
    found = msgspec.json.decode(value, type=_Fields)
    for name in fields:
        text = msgspec.json.decode(found[name]) if name in found else None
        if isinstance(text, str) and (id := _ID.match(text)):
            renamed = rename(bytes.fromhex(id[0])).hex() + text[id.end() :]
            found[name] = msgspec.Raw(msgspec.json.encode(renamed))
    return msgspec.json.encode(found)
