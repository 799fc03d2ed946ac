"""What rows compile to, kept beside them: a start takes it as it is, if it was made of the same by the same code.

A form holds no secret. It has references in their place, and its query is compiled when its source is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

import harken
from harken.feed import Feed, Trigger
from harken.runs import Workflow
from harken.services import GROUP

__all__ = ["RowForm", "SharedValues", "code_mark", "read_form", "row_mark", "to_document", "without_defaults"]


class RowForm(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled row. `mark` is what it was made of, `depends` the state of the `accounts`, `kinds` and `feeds`.

    `references` are those of its secrets; `has_query`: its source needs a query, which is not kept.
    """

    mark: str
    depends: str
    trigger: Trigger
    feed: Feed
    workflow: Workflow | None = None
    uses: str = ""
    accounts: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    has_query: bool = False


MOST_SHARED = 10_000
"""So many values are remembered at most: what each row has for itself need not be."""

# nobody changes it
_NO_ROUTES: Mapping[str, str] = {}
_decode_form = msgspec.json.Decoder(RowForm).decode


@cache
def code_mark() -> str:
    """A digest of the code that compiles: of Harken itself, and of the services that others have added."""
    found = hashlib.sha256(harken.__version__.encode())
    root = Path(harken.__file__).parent
    for file in sorted(root.rglob("*.py")):
        found.update(file.read_bytes())
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        found.update(f"{point.name}={point.value} {point.dist.version if point.dist else ''}\n".encode())
    return found.hexdigest()[:16]


def row_mark(stored: bytes, shards: int) -> str:
    """What a row with this JSON is compiled from, where feeds are divided into so many shards."""
    content = hashlib.sha256(stored).hexdigest()[:24]
    return f"{code_mark()}-{shards}-{content}"


def to_document(form: RowForm) -> dict[str, Any]:
    """The form as it is stored: without what has its default, because there may be 100,000 of them."""
    found: dict[str, Any] = msgspec.to_builtins(form)
    found["trigger"] = without_defaults(found["trigger"], Trigger)
    found["feed"] = without_defaults(found["feed"], Feed)
    return without_defaults(found, RowForm)


def read_form(stored: bytes, mark: str) -> RowForm | None:
    """The form with this JSON, if it was made of what has the mark; None for any other."""
    try:
        form = _decode_form(stored)
    except (msgspec.ValidationError, msgspec.DecodeError):
        # what it stands for is compiled again, and replaces it
        return None
    return form if form.mark == mark else None


class SharedValues:
    """Values that many forms have in common, kept once: with 100,000 rows they would be most of what these take."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def names(self, names: Iterable[str]) -> frozenset[str]:
        found = frozenset(names)
        shared: frozenset[str] = self._share(found, found)
        return shared

    def use_in(self, form: RowForm) -> None:
        """Let a form that was just read have the shared values in place of equal ones of its own."""
        trigger, feed, workflow, put = form.trigger, form.feed, form.workflow, msgspec.structs.force_setattr
        if trigger.feed == feed.name:
            put(trigger, "feed", feed.name)
        if trigger.workflow == trigger.name:
            put(trigger, "workflow", trigger.name)
        else:
            put(trigger, "workflow", self._share(trigger.workflow, trigger.workflow))
            put(trigger, "workflow_rev", self._share(trigger.workflow_rev, trigger.workflow_rev))
        if workflow is not None and (workflow.name, workflow.rev) == (trigger.name, trigger.workflow_rev):
            put(workflow, "name", trigger.name)
            put(workflow, "rev", trigger.workflow_rev)
        if not trigger.routes:
            put(trigger, "routes", _NO_ROUTES)
        put(feed, "kind", self._share(feed.kind, feed.kind))
        put(feed, "integration", self._share(feed.integration, feed.integration))
        put(feed, "query", self._share(msgspec.json.encode(feed.query), feed.query))

    def _share(self, key: Any, value: Any) -> Any:
        if len(self._known) < MOST_SHARED:
            return self._known.setdefault(key, value)
        return self._known.get(key, value)


def without_defaults(value: Mapping[str, Any], model: type[msgspec.Struct]) -> dict[str, Any]:
    """The stored value of a struct without what has its default."""
    defaults = _defaults(model)
    return {name: found for name, found in value.items() if name not in defaults or defaults[name] != found}


@cache
def _defaults(model: type[msgspec.Struct]) -> dict[str, Any]:
    """The default of each field that has one, as it would be stored."""
    found: dict[str, Any] = {}
    for one in msgspec.structs.fields(model):
        if one.default is not msgspec.NODEFAULT:
            found[one.name] = msgspec.to_builtins(one.default)
        elif one.default_factory is not msgspec.NODEFAULT:
            found[one.name] = msgspec.to_builtins(one.default_factory())
    return found
