"""Objects of a bucket: created, changed and deleted, found by comparing a whole listing with the one before.

Nothing at the service is moved or marked. A service brings a function that lists one page; the rest is here.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import structlog
from pydantic import BeforeValidator, Field, field_validator

from harken.clock import from_unix
from harken.errors import NeedsAttention
from harken.event import Event
from harken.kit.cursor_codec import dump_cursor, load_cursor
from harken.kit.digest import digest_of
from harken.kit.file_manifest import Difference, Folder, FolderBuilder, Manifest, apply, differences, dump, load
from harken.kit.globs import Globs, glob_regex
from harken.kit.models import QueryModel
from harken.source import Batch, Cursor, Host

__all__ = ["VERSION_BYTES", "BucketListing", "BucketQuery", "ListedObject", "ListedPage", "shown_key"]

log = structlog.get_logger("harken.services")

VERSION_BYTES = 18
STAMP = struct.Struct(f"<qq{VERSION_BYTES}s")
# below the engine's limit for a page: a longer listing goes on with the next poll
PATIENCE_SECONDS = 5.0
PAGE = 10_000
"""So many events are in a page at most: each page writes the manifest to the store."""
STALE_SECONDS = 900.0
"""A listing that was interrupted for so long begins again."""

Kind = Literal["created", "changed", "deleted"]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_list)]


class BucketQuery(QueryModel):
    """Which objects to look at."""

    bucket: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{1,221}$", description="the bucket")
    prefix: str = Field("", max_length=1024, description="only objects whose keys begin with it")
    include: Patterns = Field((), description="patterns of the keys that count, such as *.csv or in/**/*.json")
    exclude: Patterns = Field((), description="patterns of keys that do not count")
    max_objects: int = Field(200_000, ge=1, le=2_000_000, description="with more objects that match, the read fails")

    @field_validator("include", "exclude")
    @classmethod
    def _are_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            glob_regex(pattern)
        return value

    def selection(self) -> str:
        """A digest of what decides which objects count."""
        return digest_of(msgspec.json.encode([self.bucket, self.prefix, self.include, self.exclude]))


class ListedObject(msgspec.Struct, frozen=True, gc=False):
    """`version` is what the service calls it (an ETag, a generation), in at most VERSION_BYTES bytes."""

    key: bytes
    size: int
    modified_at: float
    version: bytes


class ListedPage(msgspec.Struct, frozen=True):
    """One page of a listing, and what to ask for the next one with, if there is one."""

    objects: Sequence[ListedObject]
    next: str = ""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that were shown up to page `number`, which was listed at `at`.

    `selection` is that of the query then. `first`: the page belongs to the first read, which is not at its end.
    """

    selection: str
    number: int
    at: float
    objects: str
    first: bool = False


class _Listing:
    """A listing that is under way."""

    def __init__(self, began: float) -> None:
        self.began = self.touched_at = began
        self.next = ""
        self.count = 0
        self.folders: dict[bytes, FolderBuilder] = {}

    def manifest(self) -> Manifest:
        """What was listed. Each folder is let go of once it is packed, so that no more than one is there twice."""
        found: dict[bytes, Folder] = {}
        for path in list(self.folders):
            found[path] = self.folders.pop(path).build()
        return found


class BucketListing:
    """A polled source. `list_page(next)` lists a page, `show_version` gives the fields of an event about a version."""

    def __init__(
        self,
        query: BucketQuery,
        host: Host,
        list_page: Callable[[str], Awaitable[ListedPage]],
        show_version: Callable[[bytes], dict[str, Any]],
        *,
        kind: str,
        page: int = PAGE,
    ) -> None:
        self._query, self._host, self._most, self._kind = query, host, page, kind
        self._list_page, self._show_version = list_page, show_version
        self._include, self._exclude = Globs(query.include), Globs(query.exclude)
        self._selection = query.selection()
        self._listing: _Listing | None = None
        self._known: dict[str, Manifest] = {}
        self._listed_at: float | None = None
        self._said: set[bytes] = set()

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        listing = await self._list()
        if listing is None:
            return Batch(cursor=cursor, more=True)
        place = load_cursor(cursor, Place)
        before = await self._unpack(place)
        found = differences(before, await asyncio.to_thread(listing.manifest))
        last, self._listed_at = self._listed_at, listing.began
        silent = [one for one in found if self._is_unasked(one, place)]
        shown = sorted((one for one in found if not self._is_unasked(one, place)), key=_order)
        if not shown and place is not None and place.selection == self._selection and not place.first:
            return Batch(cursor=cursor, unchanged=True)
        first = place is None or place.first
        some, more = shown[: self._most], len(shown) > self._most
        number = place.number + 1 if place is not None else 1
        objects = await asyncio.to_thread(apply, before, [*silent, *some])
        text = await asyncio.to_thread(dump, objects)
        self._known = {text: objects}
        read = Place(selection=self._selection, number=number, at=listing.began, objects=text, first=first and more)
        since_last = None if first else last if last is not None else listing.began
        events = [self._event(one, number, since_last) for one in some]
        return Batch(events=events, cursor=dump_cursor(read), more=more)

    async def _list(self) -> _Listing | None:
        """Return a whole listing, or None if it takes longer than the engine waits for a page."""
        clock = self._host.clock
        listing = self._listing
        if listing is None or clock.time() - listing.touched_at > STALE_SECONDS:
            listing = self._listing = _Listing(clock.time())
        until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            page = await self._list_page(listing.next)
            listing.touched_at = clock.time()
            for listed in page.objects:
                self._add(listing, listed)
            if not page.next:
                self._listing = None
                return listing
            if page.next == listing.next:
                self._listing = None
                raise NeedsAttention(f"the listing of {self._query.bucket} does not end", fix="Check the endpoint")
            listing.next = page.next
            if asyncio.get_running_loop().time() > until:
                return None

    def _add(self, listing: _Listing, listed: ListedObject) -> None:
        key = listed.key
        if not self._is_chosen(key):
            return
        if b"\0" in key:
            if key not in self._said:
                self._said.add(key)
                log.warning(f"{self._kind}.left_out", key=shown_key(key), reason="has a NUL in its name")
            return
        # a slash before each key keeps /a and a apart: the manifest knows names in folders
        folder, _, name = (b"/" + key).rpartition(b"/")
        entries = listing.folders.get(folder) or listing.folders.setdefault(folder, FolderBuilder())
        entries.add(name, STAMP.pack(listed.size, int(listed.modified_at * 1000), listed.version))
        listing.count += 1
        if listing.count > self._query.max_objects:
            self._listing = None
            message = f"{self._query.bucket} has more than {self._query.max_objects} objects that match"
            raise NeedsAttention(message, fix="Name a longer prefix, or raise max_objects")

    def counts(self, key: bytes) -> bool:
        """Whether the query is about this object."""
        return key.startswith(self._query.prefix.encode()) and self._is_chosen(key)

    def _is_chosen(self, key: bytes) -> bool:
        if not self._include and not self._exclude:
            return True
        text = key.decode("utf-8", "surrogateescape")
        return not self._exclude.match(text) and (not self._include or self._include.match(text))

    async def _unpack(self, place: Place | None) -> Manifest:
        if place is None:
            return {}
        objects = self._known.get(place.objects)
        if objects is None:
            objects = await asyncio.to_thread(load, place.objects)
            self._known = {place.objects: objects}
        return objects

    def _is_unasked(self, found: Difference, place: Place | None) -> bool:
        """After an edit of the query, what it did not look at before is no news, nor what it does not look at now."""
        if place is None or place.selection == self._selection:
            return False
        if not found.new:
            return not self.counts(_key(found.path))
        return not found.old and bool(STAMP.unpack(found.new)[1] / 1000 <= place.at)

    def _event(self, found: Difference, number: int, since_last: float | None) -> Event:
        kind: Kind = "deleted" if not found.new else "changed" if found.old else "created"
        size, modified, version = STAMP.unpack(found.new or found.old)
        key, at = shown_key(_key(found.path)), modified / 1000
        known = found.new and at <= self._host.clock.time() and (since_last is None or at >= since_last)
        data = {
            "change": kind,
            "bucket": self._query.bucket,
            "key": key,
            "name": key.rpartition("/")[2],
            "size": size,
            "modified_at": msgspec.to_builtins(from_unix(at)),
        }
        return Event(
            subject=key,
            type=f"object.{kind}",
            state=f"{number}-{digest_of(found.new)[:8]}" if found.new else f"{number}-deleted",
            data=data | self._show_version(version),
            # objects that are restored or copied may be older than the listing that did not show them
            occurred_at=from_unix(at) if known else None,
        )


def _order(found: Difference) -> tuple[int, bytes]:
    return (STAMP.unpack(found.new)[1] if found.new else 0), found.path


def _key(path: bytes) -> bytes:
    return path.removeprefix(b"/")


def shown_key(key: bytes) -> str:
    """The key as events have it."""
    return key.decode("utf-8", "backslashreplace")
