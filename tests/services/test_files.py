"""Local files: what was created, changed, deleted and renamed, whatever is written there and whenever."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import ValidationError

from harken.errors import CursorExpired, NeedsAttention, RetryLater
from harken.event import Event
from harken.kit.globs import Globs
from harken.services.files import LocalFiles, Query
from harken.services.files.content import read_content
from harken.services.files.directory_tree_listing import Scanner, pack_stamp
from harken.source import Cursor, Host, PollSource
from harken.testing import START, HandClock
from harken.testing.source import Service, SourceContract, stored
from tests.cpu_time import cpu_at_most
from tests.soak import larger


class Tree:
    """A directory, and a source that reads it from the cursor of its last read."""

    page_size = 3
    since = START

    def __init__(self, root: Path, host: Host, clock: HandClock, **query: Any) -> None:
        self.root, self._host, self._clock = root, host, clock
        self._query = {"settle": 0, **query}
        self._numbers = count(1)
        self.cursor: Cursor = None
        self.restart()

    def restart(self, **query: Any) -> None:
        """A new process, which has nothing but the cursor; perhaps with another query."""
        self._query |= query
        self.files = LocalFiles(Query(path=str(self.root), **self._query), self._host, page=self.page_size)
        self.source: PollSource = self.files

    def write(self, name: str, text: str = "x") -> Path:
        """Write a file, dated by the virtual clock."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (self._clock.time(), self._clock.time()))
        return path

    async def put(self, count: int, *, tied: bool = False) -> Sequence[str]:
        names = [f"i{next(self._numbers)}" for _ in range(count)]
        for name in names:
            self._clock.advance(0 if tied else 10)
            self.write(name)
        return names

    async def expire(self) -> bool:
        return False

    async def read(self) -> list[Event]:
        events, more = list[Event](), True
        while more:
            batch = await self.source.poll(stored(self.cursor), START)
            self.cursor, more = batch.cursor, batch.more
            events += batch.events
        return events

    async def names(self) -> list[str]:
        return [f"{event.type.removeprefix('file.')} {event.subject}" for event in await self.read()]


@pytest.fixture
def tree(tmp_path: Path, host: Host, clock: HandClock) -> Tree:
    return Tree(tmp_path, host, clock)


class TestContract(SourceContract):
    @pytest.fixture
    def service(self, tree: Tree) -> Service:
        return tree


async def test_a_file_is_created_changed_renamed_and_deleted(tree: Tree, clock: HandClock):
    tree.write("in/a.csv")
    assert await tree.names() == ["created in/a.csv"]
    clock.advance(5)
    tree.write("in/a.csv", "more")
    assert await tree.names() == ["changed in/a.csv"]
    (tree.root / "in/a.csv").rename(tree.root / "b.csv")
    [renamed] = await tree.read()
    assert (renamed.type, renamed.subject, renamed.data["change"]) == ("file.renamed", "b.csv", "renamed")
    assert renamed.data["old_path"] == "in/a.csv"
    (tree.root / "b.csv").unlink()
    assert await tree.names() == ["deleted b.csv"]
    assert await tree.names() == []


async def test_a_file_that_moves_to_and_fro_has_a_name_for_each_move(tree: Tree):
    here, there = tree.write("a"), tree.root / "b"
    events = await tree.read()
    for _ in range(2):
        here.rename(there)
        events += await tree.read()
        there.rename(here)
        events += await tree.read()
    assert len({(event.subject, event.state) for event in events}) == 5


async def test_what_changed_while_nothing_ran_is_found(tree: Tree, clock: HandClock):
    for name in ("stays", "changes", "goes", "moves"):
        tree.write(name)
    await tree.read()
    clock.advance(60)
    tree.write("changes", "more")
    tree.write("new")
    (tree.root / "goes").unlink()
    (tree.root / "moves").rename(tree.root / "moved")
    tree.restart()
    assert sorted(await tree.names()) == ["changed changes", "created new", "deleted goes", "renamed moved"]


async def test_a_page_that_was_not_committed_is_shown_again_with_the_same_names(tree: Tree):
    await tree.read()
    tree.write("a")
    first = (await tree.source.poll(tree.cursor, START)).events
    again = (await tree.source.poll(tree.cursor, START)).events
    assert [(event.subject, event.state) for event in first] == [(event.subject, event.state) for event in again] != []


async def test_a_quiet_scan_leaves_the_cursor_as_it_is(tree: Tree):
    tree.write("a")
    await tree.read()
    batch = await tree.source.poll(tree.cursor, START)
    assert batch.unchanged
    assert batch.cursor is tree.cursor


async def test_a_file_counts_when_two_scans_showed_the_same(tree: Tree, clock: HandClock):
    tree.restart(settle="2s")
    await tree.read()
    tree.write("growing", "1")
    batch = await tree.source.poll(tree.cursor, START)
    assert (batch.events, batch.next_at is not None) == ((), True)
    clock.advance(2)
    tree.write("growing", "12")
    assert await tree.names() == []
    clock.advance(2)
    [event] = await tree.read()
    assert (event.subject, event.data["size"]) == ("growing", 2)


async def test_a_file_that_is_deleted_and_written_anew_between_two_scans_is_a_change(tree: Tree, clock: HandClock):
    tree.write("a")
    tree.restart(settle="2s")
    clock.advance(10)
    await tree.read()
    (tree.root / "a").unlink()
    assert await tree.names() == []
    tree.write("a", "other")
    assert await tree.names() == []
    clock.advance(2)
    assert await tree.names() == ["changed a"]


async def test_a_time_that_tells_when_it_happened_is_the_time_of_the_event(tree: Tree, clock: HandClock):
    await tree.read()
    clock.advance(60)
    tree.write("fresh")
    moved = tree.write("moved")
    os.utime(moved, (1_000_000, 1_000_000))
    at = {event.subject: event.occurred_at for event in await tree.read()}
    assert at == {"fresh": clock.now(), "moved": None}


async def test_a_file_that_was_there_at_the_first_read_is_dated_also_if_it_settles_later(tree: Tree, clock: HandClock):
    tree.restart(settle="2s")
    tree.write("young")
    written = clock.now()
    assert await tree.names() == []
    clock.advance(2)
    [event] = await tree.read()
    assert event.occurred_at == written


async def test_patterns_choose_files(tmp_path: Path, host: Host, clock: HandClock):
    tree = Tree(tmp_path, host, clock, include=["*.csv", "deep/**/x.?"], exclude="old/**")
    for name in ("a.csv", "b.txt", "old/c.csv", "sub/d.csv", "deep/1/2/x.y", "deep/x.yy", ".hidden.csv", ".git/e.csv"):
        tree.write(name)
    assert sorted(await tree.names()) == ["created a.csv", "created deep/1/2/x.y", "created sub/d.csv"]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.csv", "a/b.csv", True),
        ("a/*.csv", "a/b/c.csv", False),
        ("a/**", "a/b/c.csv", True),
        ("**/c", "c", True),
        ("[!a]b", "cb", True),
        ("[!a]b", "a/b", False),
        ("[a-c].x", "b.x", True),
        ("a+b(.x", "a+b(.x", True),
        ("*", "a\nb", True),
    ],
)
def test_a_pattern(pattern: str, path: str, matches: bool):
    assert Globs([pattern]).match(path) is matches


@pytest.mark.parametrize("pattern", ["[a", "a//b", "", "[b-a]"])
def test_a_pattern_that_is_none_is_refused(pattern: str):
    with pytest.raises(ValidationError):
        Query(path="x", include=pattern)


async def test_after_an_edit_only_what_is_news_is_shown(tree: Tree, clock: HandClock):
    tree.restart(include="*.csv")
    tree.write("a.csv")
    tree.write("b.txt")
    await tree.read()
    clock.advance(60)
    tree.write("new.txt")
    tree.restart(include="*.txt")
    assert await tree.names() == ["created new.txt"]
    assert await tree.names() == []
    (tree.root / "b.txt").unlink()
    assert await tree.names() == ["deleted b.txt"]


async def test_names_that_are_no_texts_are_told_apart(tree: Tree):
    root = os.fsencode(tree.root)
    names = [b"\xff", b"\\xff", b"line\nbreak", b"..dots", b"a" * 255]
    for name in names:
        os.close(os.open(os.path.join(root, name), os.O_CREAT | os.O_WRONLY))
    events = await tree.read()
    subjects = {event.subject for event in events}
    assert len(subjects) == 4  # one begins with a dot
    assert {bytes.fromhex(event.data["path_hex"]) for event in events if "path_hex" in event.data} == {b"\xff"}
    assert all(event.payload() for event in events)
    os.unlink(os.path.join(root, b"\xff"))
    [gone] = await tree.names()
    assert gone.startswith("deleted \\xff (")


async def test_a_path_of_four_kilobytes_is_read_as_far_as_the_system_goes(tree: Tree):
    where = os.getcwd()
    os.chdir(tree.root)
    try:
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        Path("too deep").touch()
    finally:
        os.chdir(where)
    tree.write("a")
    with structlog.testing.capture_logs() as logs:
        assert await tree.names() == ["created a"]
        assert await tree.names() == []
    assert [entry["event"] for entry in logs] == ["files.left_out"]


async def test_a_link_out_of_the_tree_is_refused_and_that_is_said_once(tree: Tree, tmp_path_factory: Any):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("s")
    (tree.root / "link").symlink_to(outside / "secret")
    (tree.root / "folder").symlink_to(outside)
    (tree.root / "nowhere").symlink_to(outside / "missing")
    tree.write("a")
    (tree.root / "inside").symlink_to(tree.root / "a")
    with structlog.testing.capture_logs() as logs:
        assert sorted(await tree.names()) == ["created a", "created inside"]
        await tree.read()
    assert sorted(entry["path"] for entry in logs) == ["folder", "link"]


async def test_pipes_and_our_own_database_are_no_files(tmp_path: Path, host: Host, clock: HandClock):
    os.mkfifo(tmp_path / "pipe")
    tree = Tree(tmp_path, Host(http=host.http, clock=clock, random=host.random, directory=str(tmp_path)), clock)
    for name in ("harken.db", "harken.db-wal", "harken.db.txt"):
        tree.write(name)
    assert await tree.names() == ["created harken.db.txt"]


async def test_a_directory_that_is_away_deletes_nothing(tree: Tree):
    tree.write("a")
    await tree.read()
    elsewhere = tree.root.with_name("elsewhere")
    tree.root.rename(elsewhere)
    with pytest.raises(RetryLater, match="cannot be listed: No such file"):
        await tree.read()
    tree.root.mkdir()
    with pytest.raises(RetryLater, match="another directory now"):
        await tree.read()
    tree.root.rmdir()
    elsewhere.rename(tree.root)
    assert await tree.names() == []


async def test_a_file_in_place_of_the_directory_needs_a_person(tree: Tree):
    tree.write("a")
    tree.root = tree.root / "a"
    tree.restart()
    with pytest.raises(NeedsAttention, match="not a directory"):
        await tree.read()


def test_a_folder_that_cannot_be_read_keeps_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    root, none = os.fsencode(tmp_path), Globs([])
    scanner = Scanner(
        root, include=none, exclude=none, hidden=False, recursive=True, max_files=9, own_files=lambda path: False
    )
    before = scanner.scan({}, threading.Event())
    listed = os.scandir

    def refuse(path: bytes) -> Any:
        if path != root:
            raise PermissionError(13, "Permission denied")
        return listed(path)

    # the tests may run as root, whom no directory refuses
    monkeypatch.setattr(os, "scandir", refuse)
    after = scanner.scan(before.files, threading.Event())
    assert (after.files, after.unreadable) == (before.files, {b"in": "Permission denied"})


async def test_too_many_files_need_a_person(tree: Tree):
    tree.restart(max_files=2)
    await tree.put(3)
    with pytest.raises(NeedsAttention, match="more than 2 files"):
        await tree.read()


async def test_a_cursor_that_cannot_be_read_is_said_to_be_so(tree: Tree):
    await tree.put(1)
    await tree.read()
    tree.cursor = {**tree.cursor, "files": "!"}
    with pytest.raises(CursorExpired):
        await tree.read()


async def test_content_is_text_or_base64_or_left_out(tree: Tree):
    tree.restart(content=True, max_content=8)
    tree.write("text", "grüße")
    tree.write("large", "x" * 9)
    (tree.root / "binary").write_bytes(b"\xff\x00")
    data = {event.subject: event.data for event in await tree.read()}
    assert (data["text"]["content"], data["text"]["encoding"]) == ("grüße", "utf-8")
    assert (data["binary"]["content"], data["binary"]["encoding"]) == ("/wA=", "base64")
    assert (data["large"]["content"], data["large"]["content_left_out"]) == (None, "larger than 8 bytes")


def test_content_of_another_version_than_the_listed_one_is_not_read(tmp_path: Path):
    path = tmp_path / "a"
    path.write_text("listed")
    stamp = pack_stamp(path.stat())
    assert read_content(os.fsencode(path), stamp, 100, os.fsencode(tmp_path)) == {
        "content": "listed",
        "encoding": "utf-8",
    }
    path.write_text("written meanwhile")
    assert read_content(os.fsencode(path), stamp, 100, os.fsencode(tmp_path)) is None
    path.unlink()
    assert read_content(os.fsencode(path), stamp, 100, os.fsencode(tmp_path)) is None
    os.mkfifo(path)
    assert read_content(os.fsencode(path), stamp, 100, os.fsencode(tmp_path)) is None


def test_content_is_not_read_through_a_folder_that_became_a_link_out_of_the_tree(tmp_path: Path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    secret = outside / "secret"
    secret.write_text("s")
    (inside / "folder").symlink_to(outside)
    path = os.fsencode(inside / "folder" / "secret")
    assert read_content(path, pack_stamp(secret.stat()), 100, os.fsencode(inside)) is None


async def test_notifications_ring(tree: Tree):
    tree.write("a")
    await tree.read()
    ringing = asyncio.create_task(tree.files.rung())
    while not ringing.done():
        # the watch takes a moment to begin
        tree.write(f"b{next(tree._numbers)}")
        await asyncio.wait({ringing}, timeout=0.2)
    await tree.files.aclose()
    assert ringing.result() is None


async def test_a_quiet_scan_of_many_files_is_cheap(tmp_path: Path, host: Host, clock: HandClock):
    count = larger(__file__, 10_000)
    for number in range(count):
        folder = tmp_path / f"d{number % 50}"
        folder.mkdir(exist_ok=True)
        (folder / f"report-{number:06}.csv").touch()
    tree = Tree(tmp_path, host, clock)
    tree.page_size = count
    tree.restart()
    assert len(await tree.read()) == count
    # by itself a tenth of the files, in a tenth of the time
    with cpu_at_most(2.0 * count / 100_000):
        assert await tree.read() == []


async def test_a_directory_that_cannot_be_watched_is_said_once_and_tried_again(tree: Tree, clock: HandClock):
    tree.root = tree.root / "missing"
    tree.restart()
    before = clock.time()
    with structlog.testing.capture_logs() as logs:
        ringing = asyncio.create_task(tree.files.rung())
        while clock.time() < before + 180:
            await asyncio.wait({ringing}, timeout=0.01)
        ringing.cancel()
        await asyncio.wait({ringing})
    assert [entry["event"] for entry in logs] == ["files.unwatched"]
