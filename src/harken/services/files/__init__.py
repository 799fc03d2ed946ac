"""Local files: created, changed, deleted and renamed, found by comparing the tree with what it had before.

Notifications of the operating system only make the next scan come sooner, so those that get lost cost nothing.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import structlog
from pydantic import BeforeValidator, Field, field_validator

from harken.clock import from_unix
from harken.durations import parse_duration
from harken.errors import RetryLater
from harken.event import Event
from harken.kit import QueryModel, dump_cursor, load_cursor
from harken.kit.digest import digest_of
from harken.kit.file_manifest import Difference, Manifest, apply, differences, dump, load
from harken.kit.globs import Globs, glob_regex
from harken.services.files.changes import Change, Settling, changes_of
from harken.services.files.content import read_content
from harken.services.files.directory_tree_listing import Scan, Scanner, unpack_stamp
from harken.source import Batch, Cursor, Host, Plugin

__all__ = ["LocalFiles", "Place", "Query", "plugin"]

log = structlog.get_logger("harken.services")

# below the engine's limit for a page: a slower scan is awaited by the next polls
PATIENCE_SECONDS = 5.0
PAGE = 10_000
"""So many events are in a page at most: each page writes the manifest to the store."""
PAGE_BYTES = 8_000_000
"""A page ends when it has so much content."""
SCAN_SHARE = 0.1
"""Of the time, scans that follow notifications may take this part."""
LOOK_SECONDS = 5.0
"""How often the watcher makes sure that the directory is still the same one."""
WATCH_AGAIN_SECONDS = 60.0


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _seconds(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class Query(QueryModel):
    """Which files to look at, and how."""

    path: str = Field(min_length=1, description="the directory; a relative one begins at that of harken.yaml")
    include: Patterns = Field((), description="patterns of the files that count, such as *.csv or in/**/*.json")
    exclude: Patterns = Field((), description="patterns of files and directories that do not count")
    hidden: bool = Field(False, description="whether names that begin with a dot count")
    recursive: bool = Field(True, description="whether directories within it are read too")
    watch: Literal["auto", "poll"] = Field("auto", description="auto: scan soon after a change; poll: by interval only")
    settle: Annotated[float, BeforeValidator(_seconds)] = Field(
        1.0, ge=0, le=3600, description="a file counts when it stayed the same for so long; 0 for at once"
    )
    content: bool = Field(False, description="whether events have what is in the file")
    max_content: int = Field(262_144, ge=1, le=16_000_000, description="larger files come without content (bytes)")
    max_files: int = Field(200_000, ge=1, le=1_000_000, description="with more files that match, the read fails")

    @field_validator("path")
    @classmethod
    def _is_path(cls, value: str) -> str:
        if "\0" in value:
            raise ValueError("must hold no NUL")
        return value

    @field_validator("include", "exclude")
    @classmethod
    def _are_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            glob_regex(pattern)
        return value

    def selection(self) -> str:
        """A digest of what decides which files count."""
        chosen = [self.path, self.include, self.exclude, self.hidden, self.recursive]
        return digest_of(msgspec.json.encode(chosen))


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The files that were shown up to page `number`, which was read at `at`; `selection` is that of the query then.

    `first`: the page belongs to the first read, which is not at its end. `root` is the inode of the directory.
    """

    path: str
    selection: str
    number: int
    at: float
    root: int
    files: str
    first: bool = False


class LocalFiles:
    """Scans in a thread. What the tree had before comes with the cursor; `_known` has the last ones unpacked."""

    def __init__(self, query: Query, host: Host, *, page: int = PAGE) -> None:
        self._query, self._host, self._most = query, host, page
        self._root = os.fsencode(os.path.join(host.directory, os.path.expanduser(query.path)))
        database = os.path.relpath(os.path.join(os.fsencode(host.directory), b"harken.db"), self._root)
        self._scanner = Scanner(
            self._root,
            include=Globs(query.include),
            exclude=Globs(query.exclude),
            hidden=query.hidden,
            recursive=query.recursive,
            max_files=query.max_files,
            # what Harken writes about a change would be the next change
            own_files=lambda path: path.startswith(database) and path[len(database) :] in (b"", b"-wal", b"-shm"),
        )
        self._selection = query.selection()
        self._settling = Settling(query.settle)
        self._known: dict[str, Manifest] = {}
        self._scanning: asyncio.Task[Scan] | None = None
        self._ended = threading.Event()
        self._scan_seconds = 0.0
        self._said: set[tuple[bytes, str]] = set()
        self._bell: AsyncGenerator[object, None] | None = None
        self._unwatched = threading.Event()
        self._listening = False
        self._unwatched_because: str | None = None

    @property
    def ring_floor_seconds(self) -> float:
        return max(1.0, self._scan_seconds / SCAN_SHARE)

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        place = load_cursor(cursor, Place)
        if place is not None and place.path != self._query.path:
            # another directory: nothing of it was read yet, but the feed is not new
            place = msgspec.structs.replace(place, files="", root=0)
        before = await self._unpack(place)
        began = self._host.clock.time()
        scan = await self._scan(before)
        if scan is None:
            return Batch(cursor=cursor, more=True)
        self._say(scan)
        if place is not None and before and not scan.files and scan.root != place.root:
            fix = "Mount its disk; if it is meant to be empty, put a file into it once"
            raise RetryLater(f"{self._query.path} is another directory now, and an empty one", fix=fix)
        changes, silent = self._changes(place, before, scan, began)
        if not changes and place is not None and place.selection == self._selection and not place.first:
            return Batch(cursor=cursor, unchanged=True, complete=not scan.unreadable, next_at=self._next_scan())
        return await self._page(place, before, scan, changes, silent, began)

    def _changes(
        self, place: Place | None, before: Manifest, scan: Scan, now: float
    ) -> tuple[list[Change], list[Difference]]:
        """Return what counts now, and differences that nobody has to be told of."""
        found, silent = changes_of(differences(before, scan.files))
        if place is not None and place.selection != self._selection:
            # the query was edited: what it did not look at before is no news, unless it is younger than that
            old, found = found, [change for change in found if not _is_unasked(change, self._scanner, place.at)]
            kept = {change.path for change in found}
            silent += [change.difference for change in old if change.path not in kept]
        return self._settling.settled(found, now, first=place is None or place.first), silent

    def _next_scan(self) -> datetime | None:
        """When what has not settled yet may have, if anything."""
        if not self._settling:
            return None
        return from_unix(self._host.clock.time() + max(self._query.settle, self._scan_seconds / SCAN_SHARE))

    async def _page(
        self,
        place: Place | None,
        before: Manifest,
        scan: Scan,
        changes: Sequence[Change],
        silent: Sequence[Difference],
        began: float,
    ) -> Batch:
        number = place.number + 1 if place is not None else 1
        first = place is None or place.first
        events, shown, tried = await asyncio.to_thread(self._events, changes, number, first)
        files = apply(before, [*silent, *(piece for change in shown for piece in change.differences)])
        text = await asyncio.to_thread(dump, files)
        self._known = {text: files}
        self._settling.forget(change.path for change in changes[:tried])
        read = Place(
            path=self._query.path,
            selection=self._selection,
            number=number,
            at=began,
            root=scan.root,
            files=text,
            first=first and tried < len(changes),
        )
        return Batch(
            events=events,
            cursor=dump_cursor(read),
            more=tried < len(changes),
            complete=not scan.unreadable,
            next_at=self._next_scan(),
        )

    def _events(self, changes: Sequence[Change], number: int, first: bool) -> tuple[list[Event], list[Change], int]:
        """Return the events of a page, the changes they show, and how many changes were tried."""
        events, shown, size, tried = list[Event](), list[Change](), 0, 0
        root = os.path.realpath(self._root)
        for change in changes[: self._most]:
            if size > PAGE_BYTES:
                break
            tried += 1
            content: dict[str, Any] | None = {}
            if self._query.content and change.new:
                path = os.path.join(root, change.path)
                content = read_content(path, change.new, self._query.max_content, root)
            if content is None:
                # it changed or went while it was read: the next scan tells what became of it
                continue
            size += len(content.get("content") or "")
            events.append(self._event(change, number, first, content))
            shown.append(change)
        return events, shown, tried

    def _event(self, change: Change, number: int, first: bool, content: dict[str, Any]) -> Event:
        stamp = unpack_stamp(change.new or change.old)
        data: dict[str, Any] = {"change": change.kind, **_names(change.path, self._query.path), "size": stamp.size}
        data["modified_at"] = msgspec.to_builtins(_instant(stamp.mtime_ns / 1e9))
        if change.kind == "renamed":
            data["old_path"] = _names(change.old_path, self._query.path)["path"]
        return Event(
            subject=_subject(change.path),
            type=f"file.{change.kind}",
            state=f"{number}-{digest_of(change.new)[:8]}" if change.new else f"{number}-deleted",
            data=data | content,
            occurred_at=self._written_at(change, first),
        )

    def _written_at(self, change: Change, first: bool) -> datetime | None:
        """When it happened, if the time of the file tells."""
        if change.kind not in ("created", "changed"):
            return None
        at, now = unpack_stamp(change.new).mtime_ns / 1e9, self._host.clock.time()
        # a file that was moved here, or dated by another clock, may be older than a scan that did not show it
        known = first or (change.after is not None and at >= change.after)
        return _instant(at) if known and at <= now else None

    async def _unpack(self, place: Place | None) -> Manifest:
        if place is None or not place.files:
            return {}
        files = self._known.get(place.files)
        if files is None:
            files = await asyncio.to_thread(load, place.files)
            self._known = {place.files: files}
        return files

    async def _scan(self, before: Manifest) -> Scan | None:
        """Return a new scan, or None if it takes longer than the engine waits."""
        if self._scanning is None:
            self._scanning = asyncio.create_task(self._scan_in_thread(before), name=f"scan {self._query.path}")
        done, _ = await asyncio.wait({self._scanning}, timeout=PATIENCE_SECONDS)
        if not done:
            return None
        scanning, self._scanning = self._scanning, None
        return scanning.result()

    async def _scan_in_thread(self, before: Manifest) -> Scan:
        loop = asyncio.get_running_loop()
        began = loop.time()
        scan = await asyncio.to_thread(self._scanner.scan, before, self._ended)
        self._scan_seconds = loop.time() - began
        return scan

    def _say(self, scan: Scan) -> None:
        """Log each path that is left out once, until it is readable again."""
        now = {*scan.unreadable.items(), *scan.refused.items()}
        for path, reason in sorted(now - self._said):
            log.warning("files.left_out", path=_names(path, self._query.path)["path"], reason=reason)
        self._said = now

    async def rung(self) -> None:
        """Wait until the operating system says that something changed."""
        while self._query.watch == "auto" and not self._ended.is_set():
            if self._bell is None:
                self._bell = self._notifications()
            self._listening = True
            try:
                await anext(self._bell)
                return
            except (OSError, RuntimeError, StopAsyncIteration) as error:
                self._bell = None
                if self._ended.is_set():
                    break
                self._say_unwatched(str(error))
            except asyncio.CancelledError:
                self._bell = None
                raise
            finally:
                self._listening = False
            await self._host.clock.sleep(WATCH_AGAIN_SECONDS)
        await asyncio.Event().wait()

    def _say_unwatched(self, reason: str) -> None:
        if reason != self._unwatched_because:
            self._unwatched_because = reason
            log.warning("files.unwatched", path=self._query.path, reason=reason, instead="scans by interval")

    async def _notifications(self) -> AsyncGenerator[object, None]:
        from watchfiles import awatch

        # it is set when the wait is cancelled, too
        unwatched = self._unwatched = threading.Event()
        while not self._ended.is_set():
            # the watch stays with a directory that was replaced by another one of its name
            watched = await asyncio.to_thread(_identity, self._root)
            async for changed in awatch(
                os.fsdecode(self._root),
                watch_filter=None,
                debounce=400,
                step=100,
                stop_event=unwatched,
                rust_timeout=int(LOOK_SECONDS * 1000),
                yield_on_timeout=True,
                force_polling=False,
                recursive=self._query.recursive,
                ignore_permission_denied=True,
            ):
                if changed:
                    yield changed
                if await asyncio.to_thread(_identity, self._root) != watched:
                    yield changed
                    break

    async def aclose(self) -> None:
        """End the scan and the watch."""
        self._ended.set()
        self._unwatched.set()
        if self._scanning is not None:
            await asyncio.gather(self._scanning, return_exceptions=True)
        bell, self._bell = self._bell, None
        # one that is waited for ends by the event
        if bell is not None and not self._listening:
            await bell.aclose()


def _identity(path: bytes) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _is_unasked(change: Change, scanner: Scanner, at: float) -> bool:
    if not change.new:
        return not scanner.selects(change.path)
    return not change.old and unpack_stamp(change.new).mtime_ns / 1e9 <= at


def _instant(seconds: float) -> datetime | None:
    try:
        return from_unix(seconds)
    except (ValueError, OverflowError, OSError):
        # file systems keep years that no calendar has
        return None


def _subject(path: bytes) -> str:
    text = path.decode("utf-8", "backslashreplace")
    # a name that is no text could look like another one that is
    return text if text.encode() == path else f"{text} ({digest_of(path)[:8]})"


def _names(path: bytes, root: str) -> dict[str, Any]:
    text = path.decode("utf-8", "backslashreplace")
    names: dict[str, Any] = {"path": text, "name": text.rpartition("/")[2], "directory": root}
    return names if text.encode() == path else names | {"path_hex": path.hex()}


def _source(query: Query, account: object, host: Host) -> LocalFiles:
    return LocalFiles(query, host)


plugin = Plugin(
    kind="files",
    summary="Files of a local directory: created, changed, deleted, renamed",
    docs="reference/services/files.md",
    query=Query,
    source=_source,
    identity="change",
    floor_seconds=1.0,
    lookback_seconds=0.0,
)
