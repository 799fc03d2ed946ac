"""The configuration of the files with the rows of the store: what it is as a whole, and what of it changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
from pydantic import BaseModel

from harken.config.copy_on_write_map import Items, SnapshotValues
from harken.config.findings import Finding
from harken.config.loaded import Account, IdleRow, Loaded, item
from harken.config.reload_plan import inherit_cursors
from harken.config.resolver import FeedSpec
from harken.config.stored_trigger_compiler import CompiledRow
from harken.feed import Feed, Trigger
from harken.schedule import Every
from harken.store import Definitions, Part

__all__ = ["RowQueries", "RowSet", "is_row_feed", "query_mark"]


class RowQueries(Mapping[str, BaseModel]):
    """The queries of feeds by name. That of a row that was restored is compiled when it is looked up."""

    def __init__(self, files: Mapping[str, BaseModel], compile: Callable[[bytes], BaseModel | None]) -> None:
        self._files = files
        self._compile = compile
        self._known: dict[str, BaseModel] = {}
        self._rows: dict[str, CompiledRow] = {}

    def __getitem__(self, name: str) -> BaseModel:
        """Raise Misconfigured if a query that was good when its row was written is wrong by now."""
        known = self._files.get(name) or self._known.get(name)
        if known is not None:
            return known
        row = self._rows[name]
        found = self._compile(row.pending) if row.pending else row.spec.query
        if found is None:
            raise KeyError(name)
        self._known[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._files.keys() | self._rows.keys())

    def __len__(self) -> int:
        return len(self._files.keys() | self._rows.keys())

    def is_row(self, feed: str) -> bool:
        """Whether only rows read the feed, and not the files."""
        return feed in self._rows

    def mark(self, name: str) -> Any:
        """Equal for equal queries, without compiling any."""
        return self._files.get(name) or (self._rows[name].query_mark if name in self._rows else None)

    def use(self, name: str, row: CompiledRow | None) -> None:
        """The feed has the query of this row now; None if the feed is gone."""
        self._known.pop(name, None)
        if row is None:
            self._rows.pop(name, None)
        else:
            self._rows[name] = row


def query_mark(loaded: Loaded, feed: str) -> Any:
    """Equal for equal queries of a feed, without compiling those of rows."""
    queries = loaded.queries
    return queries.mark(feed) if isinstance(queries, RowQueries) else queries.get(feed)


def is_row_feed(loaded: Loaded, feed: str) -> bool:
    """Whether only rows of the store read the feed, and not the files."""
    return isinstance(loaded.queries, RowQueries) and loaded.queries.is_row(feed)


class _SharedFeed:
    """The rows that read one feed. It is read at the shortest of their intervals."""

    __slots__ = ("_id", "_intervals", "_several", "_spec")

    def __init__(self, id: str, spec: FeedSpec) -> None:
        self._id, self._spec = id, spec
        # not made while there is one row, as there is for most feeds; then how many rows have each interval, too
        self._several: dict[str, FeedSpec] | None = None
        self._intervals: Counter[float] | None = None

    @property
    def specs(self) -> Mapping[str, FeedSpec]:
        """What each row wants of the feed, by its id."""
        return {self._id: self._spec} if self._several is None else self._several

    def put(self, id: str, spec: FeedSpec) -> None:
        if self._several is None or self._intervals is None:
            self._several = dict(self.specs)
            self._intervals = Counter(map(_seconds, self._several.values()))
        self._several[id] = spec
        self._intervals[_seconds(spec)] += 1

    def remove(self, id: str) -> None:
        if self._several is None:
            self._several = dict(self.specs)
        spec = self._several.pop(id)
        if self._intervals is not None:
            self._intervals[_seconds(spec)] -= 1
            self._intervals += Counter()

    def merge(self, own: Feed | None) -> Feed | None:
        """The feed for all of them, and for the files if it is their `own` too."""
        feed = own or next((spec.feed for spec in self.specs.values()), None)
        if feed is None or not isinstance(feed.schedule, Every):
            return feed
        intervals = self._intervals if self._intervals is not None else map(_seconds, self.specs.values())
        seconds = min((feed.schedule.seconds, *intervals))
        if seconds == feed.schedule.seconds:
            return feed
        return msgspec.structs.replace(feed, schedule=Every(seconds=seconds))


def _seconds(spec: FeedSpec) -> float:
    return spec.feed.schedule.seconds if isinstance(spec.feed.schedule, Every) else inf


class RowSet:
    """The configuration of the files with the rows that are enabled. Knows what changed since it was last asked.

    `compile` makes the query of a row whose query is pending."""

    def __init__(self, files: Loaded, compile: Callable[[bytes], BaseModel | None]) -> None:
        self._files = files
        self._file_feeds: dict[str, Feed] = {feed.name: feed for feed in files.feeds}
        self._file_names = frozenset({*(trigger.name for trigger in files.triggers), *files.workflows})
        self._feeds = Items(self._file_feeds)
        self._triggers = Items({trigger.name: trigger for trigger in files.triggers})
        self._workflows = Items(files.workflows)
        self._queries = RowQueries(files.queries, compile)
        self._rows: dict[str, CompiledRow] = {}
        self._names: dict[str, str] = {}
        self._ids: Items[str] = Items({})
        self._paths = Items({feed.path: feed.name for feed in files.feeds if feed.path})
        self._by_feed: dict[str, _SharedFeed] = {}
        self._refused: dict[str, tuple[str, str, tuple[Finding, ...]]] = {}
        self._disabled: dict[str, tuple[str, IdleRow]] = {}
        self._disabled_rows: Mapping[str, IdleRow] | None = None
        # these are replaced and not changed: whoever has them sees at once that they are the same
        self._references: Mapping[str, str] = files.references
        self._secrets = files.secrets
        self._new_references: dict[str, str] = {}
        self._new_secrets: set[str] = set()
        self._feeds_touched: set[str] = set()
        self._triggers_touched: set[str] = set()
        self._renewed: set[str] = set()

    @property
    def ids(self) -> frozenset[str]:
        return frozenset({*self._rows, *self._refused, *self._disabled})

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
        if compiled.id not in self._rows and compiled.spec.feed.name not in self._feeds:
            self._add(compiled)
            return
        before = self._rows.get(compiled.id)
        earlier = self._feeds.get(before.trigger.feed) if before else None
        spec = compiled.spec
        if before is not None and earlier is not None and spec.feed.name not in self._feeds:
            [feed] = inherit_cursors([spec.feed], [compiled.trigger], [earlier], [before.trigger])
            spec = replace(spec, feed=feed)
        query = self._queries.mark(spec.feed.name)
        self._take_out(compiled.id)
        self._note(compiled)
        sharing = self._by_feed.get(spec.feed.name)
        if sharing is None:
            self._by_feed[spec.feed.name] = _SharedFeed(compiled.id, spec)
        else:
            sharing.put(compiled.id, spec)
        self._merge_feed(spec.feed.name)
        if query not in (None, self._queries.mark(spec.feed.name)):
            self._renewed.add(spec.feed.name)

    def _add(self, compiled: CompiledRow) -> None:
        """Have a row that is new, as is its feed; as at a start nearly all of them are."""
        self._note(compiled)
        feed, name = compiled.spec.feed, compiled.spec.feed.name
        self._by_feed[name] = _SharedFeed(compiled.id, compiled.spec)
        self._feeds[name] = feed
        self._feeds_touched.add(name)
        if feed.path:
            self._paths[feed.path] = name
        self._queries.use(name, compiled)

    def _note(self, compiled: CompiledRow) -> None:
        self._rows[compiled.id] = compiled
        self._names[compiled.name] = compiled.id
        self._ids[compiled.name] = compiled.id
        self._refused.pop(compiled.id, None)
        self._enable(compiled.id)
        self._triggers[compiled.name] = self._with_revision(compiled)
        if compiled.workflow is not None:
            self._workflows[compiled.name] = compiled.workflow
        if compiled.references:
            self._new_references |= compiled.references
        if compiled.secrets:
            self._new_secrets |= compiled.secrets
        self._triggers_touched.add(compiled.name)

    def disable(self, name: str, row: IdleRow) -> None:
        """The row is not enabled: it is as if it were not there, but for its name."""
        self.remove(row.id)
        self._disabled[row.id] = (name, row)
        self._disabled_rows = None

    def _enable(self, id: str) -> None:
        if self._disabled.pop(id, None) is not None:
            self._disabled_rows = None

    def remove(self, id: str) -> None:
        self._take_out(id)
        name, *_ = self._refused.pop(id, ("", "", ()))
        if name and self._names.get(name) == id:
            del self._names[name]
        self._enable(id)

    def refuse(self, id: str, name: str, owner: str, findings: Iterable[Finding]) -> None:
        """The row cannot be used: its old version runs on, if there is one."""
        self._enable(id)
        self._refused[id] = (name, owner, tuple(findings))
        self._names.setdefault(name, id)

    def _take_out(self, id: str) -> None:
        old = self._rows.pop(id, None)
        if old is None:
            return
        self._names.pop(old.name, None)
        self._ids.pop(old.name)
        self._triggers.pop(old.name)
        if old.workflow is not None:
            self._workflows.pop(old.name)
        self._triggers_touched.add(old.name)
        sharing = self._by_feed.get(old.spec.feed.name)
        if sharing is not None:
            sharing.remove(id)
        self._merge_feed(old.spec.feed.name)

    def _merge_feed(self, name: str) -> None:
        """Define the feed anew from the files and the rows that share it."""
        self._feeds_touched.add(name)
        sharing = self._by_feed[name]
        merged = sharing.merge(self._file_feeds.get(name))
        before = self._queries.mark(name)
        if merged is None:
            del self._by_feed[name]
            gone = self._feeds.pop(name)
            self._queries.use(name, None)
            self._paths.pop(gone.path if gone else "")
            return
        self._feeds[name] = merged
        if merged.path:
            self._paths[merged.path] = name
        if name in self._file_feeds:
            return
        self._queries.use(name, self._rows[next(iter(sharing.specs))])
        if before not in (None, self._queries.mark(name)):
            self._renewed.add(name)

    def _with_revision(self, compiled: CompiledRow) -> Trigger:
        workflow = self._files.workflows.get(compiled.uses) if compiled.uses else None
        if workflow is None or workflow.rev == compiled.trigger.workflow_rev:
            return compiled.trigger
        return msgspec.structs.replace(compiled.trigger, workflow_rev=workflow.rev)

    def loaded(self, accounts: Mapping[str, Account]) -> Loaded:
        """The whole configuration, with these accounts beside those of the files, whose generation it has."""
        if any(self._references.get(name) != value for name, value in self._new_references.items()):
            self._references = {**self._references, **self._new_references}
        if not self._new_secrets <= self._secrets:
            self._secrets |= self._new_secrets
        self._new_references, self._new_secrets = {}, set()
        if self._disabled_rows is None:
            self._disabled_rows = dict(self._disabled.values())
        return replace(
            self._files,
            integrations={**accounts, **self._files.integrations},
            feeds=SnapshotValues(self._feeds.snapshot()),
            triggers=SnapshotValues(self._triggers.snapshot()),
            workflows=self._workflows.snapshot(),
            queries=self._queries,
            references=self._references,
            secrets=self._secrets,
            refused={**self._files.refused, **self._refused_items()},
            rows=self._ids.snapshot(),
            disabled=self._disabled_rows,
            refused_rows={name: IdleRow(id, owner) for id, (name, owner, _) in self._refused.items()},
            paths=self._paths.snapshot(),
        )

    def _refused_items(self) -> dict[str, tuple[Finding, ...]]:
        return {item("row", name): found for name, _, found in self._refused.values()}

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
