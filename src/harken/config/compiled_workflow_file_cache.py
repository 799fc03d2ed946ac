"""What workflow files compile to, kept in a file beside the store: a start compiles only what has changed since.

A form is used if the file, the code that compiled it, and everything that it names elsewhere are the same. Only files
without a finding have one, and none that would hold a secret: references stand in their place, and are looked up anew.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import structlog

from harken.config.accounts import plugin_of
from harken.config.compiled_trigger_cache import code_mark, without_defaults
from harken.config.dependency_digest import Dependencies
from harken.config.feed_sources import query_model
from harken.config.findings import Place
from harken.config.interpolate import Lookup
from harken.config.loaded import reveal
from harken.config.resolver import FeedSpec, Resolver
from harken.config.workflows import WorkflowEntry
from harken.feed import Feed, Trigger
from harken.private_files import write_private
from harken.runs import Workflow

__all__ = ["FileForm", "FileForms", "KeptForms", "forms_beside"]

MAGIC = b"harken compiled workflows 1\n"
MAX_BYTES = 128 * 1024 * 1024
"""Of the whole file; a larger one is neither written nor read."""
MAX_FORM_BYTES = 256 * 1024
WORTH_WRITING = 20
"""Files that a load had to compile: for fewer, and for fewer than a fiftieth of all, nothing is written."""

log = structlog.get_logger("harken.config")


class FileForm(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled workflow file, whose content has the digest `content`; its name stands at `line` and `column`.

    `depends` is the state of the `accounts`, `kinds` and `feeds`. `used` has the references of the file: their values,
    or None for a secret. `given` is what the feed's query is validated from.
    """

    content: bytes
    line: int
    column: int
    depends: str
    workflow: Workflow
    trigger: Trigger | None = None
    feed: Feed | None = None
    given: dict[str, Any] | None = None
    accounts: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()
    used: dict[str, str | None] = {}


class _Content(msgspec.Struct, array_like=True, frozen=True):
    mark: str
    forms: dict[str, FileForm]


_decoder = msgspec.msgpack.Decoder(_Content)
_form_decoder = msgspec.msgpack.Decoder(FileForm)


def forms_beside(base: Path) -> KeptForms:
    """The forms that are kept beside the store with this path."""
    return KeptForms(base.with_name(base.name + ".compiled"))


class KeptForms:
    """The forms of the last load, by file. A file of them that is damaged, foreign or of another version is as none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before = _read(path)
        self._now: dict[str, FileForm] = {}
        self._new = 0

    def find(self, file: str, content: bytes) -> FileForm | None:
        form = self._before.get(file)
        return form if form is not None and form.content == content else None

    def keep(self, file: str, form: FileForm, *, new: bool = False) -> None:
        """The form belongs to the files that there are now."""
        self._now[file] = form
        self._new += new

    @property
    def restored(self) -> int:
        """How many files were not compiled."""
        return len(self._now) - self._new

    def save(self, worth: int = WORTH_WRITING) -> None:
        """Write the forms, if that saves the next load anything. Nothing depends on it: trouble with it is no error."""
        if self._new < max(worth, len(self._now) // 50):
            return
        forms = {file: _to_document(form) for file, form in self._now.items()}
        payload = msgspec.msgpack.encode((_mark(), forms))
        content = MAGIC + hashlib.sha256(payload).digest() + payload
        if len(content) > MAX_BYTES:
            log.info("config.forms_too_large", bytes=len(content))
            return
        try:
            write_private(self._path, content)
        except OSError as error:
            # such as a directory that is read-only: the next load compiles again
            log.debug("config.forms_not_written", file=str(self._path), reason=error.strerror)


@cache
def _mark() -> str:
    """What decides how a file compiles, beside the file and what it names."""
    return f"{code_mark()} {sys.version_info[:3]} pydantic {pydantic.VERSION} cel {version('cel-expr-python')}"


def _read(path: Path) -> Mapping[str, FileForm]:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            # others must not be able to say what our workflows are
            if found.st_size > MAX_BYTES or found.st_mode & 0o022 or found.st_uid not in (os.geteuid(), 0):
                return {}
            content = file.read()
    except OSError:
        return {}
    at = len(MAGIC) + hashlib.sha256().digest_size
    payload = memoryview(content)[at:]
    if content[:at] != MAGIC + hashlib.sha256(payload).digest():
        return {}
    try:
        kept = _decoder.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return {}
    return kept.forms if kept.mark == _mark() else {}


def _to_document(form: FileForm) -> dict[str, Any]:
    """The form as it is written: without what has its default, because there may be many thousands."""
    # in the form that msgpack has for bytes
    found = without_defaults(msgspec.to_builtins(form, builtin_types=(bytes,)), FileForm)
    for name, model in (("trigger", Trigger), ("feed", Feed)):
        if name in found:
            found[name] = without_defaults(found[name], model)
    return found


class FileForms:
    """The forms while files are loaded: restores what has one, and keeps what was compiled."""

    def __init__(self, kept: KeptForms, resolver: Resolver, lookup: Lookup) -> None:
        self._kept = kept
        self._resolver = resolver
        self._lookup = lookup
        self._dependencies = Dependencies(resolver)
        self._secrets: set[str] = set()

    def restore(self, file: str, source: bytes) -> tuple[WorkflowEntry, Place] | None:
        """What the file compiles to, and the place of its name; None if it has to be compiled."""
        form = self._kept.find(file, _digest(source))
        if form is None or form.depends != self._dependencies.state(form.accounts, form.kinds, form.feeds):
            return None
        if form.used and not self._are_as_before(form.used):
            return None
        spec = self._spec(form) if form.feed is not None else None
        if form.feed is not None and spec is None:
            return None
        for account in form.accounts:
            self._resolver.secrets |= self._dependencies.secrets_of(account)
        self._kept.keep(file, form)
        entry = WorkflowEntry(workflow=form.workflow, trigger=form.trigger, spec=spec)
        return entry, Place(file, form.line, form.column)

    def begin(self) -> None:
        """A file is compiled now: note what it looks up."""
        resolver = self._resolver
        resolver.asked, resolver.named, self._lookup.used = set(), set(), {}
        self._secrets, resolver.secrets = resolver.secrets, set()

    def end(self, file: str, source: bytes, entry: WorkflowEntry | None, place: Place) -> None:
        """The file was compiled to this, and nothing was found about it; or to nothing that can be kept."""
        resolver = self._resolver
        own, asked, named, used = resolver.secrets, resolver.asked, resolver.named, self._lookup.used
        # what is looked up from here on is not this file's
        self._lookup.used, resolver.secrets = {}, self._secrets | own
        if entry is None or not self._may_keep(source, entry):
            return
        accounts, kinds = tuple(sorted(asked)), tuple(sorted(named))
        known = {self._lookup.references[f"${{{inner}}}"] for inner, value in used.items() if value is None}
        if own - known.union(*map(self._dependencies.secrets_of, accounts)):
            # a secret that stands there openly
            return
        trigger, spec = entry.trigger, entry.spec
        feeds = tuple(name for name in (trigger.feeds if trigger else ()) if name in resolver.feeds)
        form = FileForm(
            content=_digest(source),
            line=place.line,
            column=place.column,
            depends=self._dependencies.state(accounts, kinds, feeds),
            workflow=entry.workflow,
            trigger=trigger,
            feed=spec.feed if spec else None,
            given=dict(spec.given) if spec and spec.query is not None and spec.given is not None else None,
            accounts=accounts,
            kinds=kinds,
            feeds=feeds,
            used=used,
        )
        if _survives(form):
            self._kept.keep(file, form, new=True)

    def _may_keep(self, source: bytes, entry: WorkflowEntry) -> bool:
        trigger, spec = entry.trigger, entry.spec
        if b"$${" in source:
            # what is written so looks like a reference later
            return False
        if trigger is not None and trigger.budget is not None and trigger.budget.usd_per_day is not None:
            # the models' prices are looked at
            return False
        if spec is None or spec.feed.name in self._resolver.feeds:
            return True
        plugin = plugin_of(spec.feed.kind, self._resolver.plugins)
        if plugin is not None and plugin.extra is not None:
            # whether its packages are installed is looked at
            return False
        return spec.query is None or (spec.given is not None and self._is_hidden_alike(spec.feed, spec.given))

    def _are_as_before(self, used: Mapping[str, str | None]) -> bool:
        """Whether the references have the same values, and secrets any."""
        try:
            found = {inner: self._lookup.resolve(inner) for inner in used}
        except Lookup.unset:
            return False
        return all((None if secret else value) == used[inner] for inner, (value, secret) in found.items())

    def _spec(self, form: FileForm) -> FeedSpec | None:
        """The feed with its query; None if that has to be compiled."""
        assert form.feed is not None
        named = self._resolver.feeds.get(form.feed.name)
        if named is not None:
            return named
        if form.given is None:
            return FeedSpec(feed=form.feed)
        plugin = plugin_of(form.feed.kind, self._resolver.plugins)
        model = query_model(plugin, form.feed) if plugin is not None else None
        if model is None or not self._is_hidden_alike(form.feed, form.given):
            return None
        try:
            query = model.model_validate(reveal(form.given, self._lookup.references))
        except pydantic.ValidationError:
            return None
        return FeedSpec(feed=form.feed, query=query, given=form.given)

    def _is_hidden_alike(self, feed: Feed, given: Mapping[str, Any]) -> bool:
        """Whether references stand where they stood: secrets of other files may have the same value, or this text."""
        hide = self._resolver.hide
        if not self._resolver.references:
            return True
        return bool(hide(feed.query) == feed.query and hide(reveal(given, self._lookup.references)) == given)


def _digest(source: bytes) -> bytes:
    return hashlib.sha256(source).digest()


def _survives(form: FileForm) -> bool:
    """Whether the form is the same after it was written and read, down to 1 and 1.0, which count in digests."""
    try:
        written = msgspec.msgpack.encode(_to_document(form))
        found = _form_decoder.decode(written)
        same = found == form and msgspec.json.encode(found) == msgspec.json.encode(form)
    except (TypeError, ValueError, OverflowError):
        return False
    return same and len(written) <= MAX_FORM_BYTES
