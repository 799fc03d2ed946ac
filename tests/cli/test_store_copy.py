"""`harken store copy` and `harken store reopen`, as a person types them."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harken.backends.postgres import PostgresStore
from harken.backends.sqlite import SqliteStore
from harken.cli.root import run
from harken.clock import SystemClock
from harken.store.transfer_protocol_and_exclusive_access import refuse_marked
from harken.testing.store.world import definitions
from tests.backends.postgres_database import server, url
from tests.servers.postgres import PASSWORD

__all__ = ["server", "url"]

Types = Callable[..., tuple[int, str, str]]


@pytest.fixture
def types(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Types:
    """Run a command line; its exit code, output and errors."""
    monkeypatch.delenv("HARKEN_ENCRYPTION_KEY", raising=False)

    def typed(*words: str) -> tuple[int, str, str]:
        code = run(list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return typed


@pytest.fixture
def old(tmp_path: Path) -> str:
    """A store with two feeds and two triggers."""

    async def made() -> None:
        store = SqliteStore.at(tmp_path / "old.db", SystemClock())
        await store.open(definitions())
        await store.close()

    asyncio.run(made())
    return str(tmp_path / "old.db")


def test_a_copy_says_what_is_in_it(types: Types, old: str, tmp_path: Path) -> None:
    new = str(tmp_path / "new.db")
    code, out, err = types("store", "copy", old, new)
    assert (code, err) == (0, "")
    assert out == f"{new} has all of {old}: 2 feeds, 2 triggers, 1 documents\n"


def test_a_program_gets_the_counts(types: Types, old: str, tmp_path: Path) -> None:
    _, out, _ = types("store", "copy", old, str(tmp_path / "new.db"), "--json")
    answer = json.loads(out)
    assert (answer["from"], answer["moved"], answer["counts"]["triggers"]) == (old, False, 2)


def test_a_store_that_is_not_empty_is_left_alone(types: Types, old: str, tmp_path: Path) -> None:
    new = str(tmp_path / "new.db")
    types("store", "copy", old, new)
    code, _, err = types("store", "copy", old, new)
    assert code == 1
    assert "is not empty: it has 2 feeds" in err


def test_a_store_is_not_copied_into_itself(types: Types, old: str) -> None:
    code, _, err = types("store", "copy", old, old)
    assert (code, "into itself" in err) == (1, True)


def test_a_store_that_is_not_there_is_not_copied(types: Types, tmp_path: Path) -> None:
    code, _, err = types("store", "copy", str(tmp_path / "none.db"), str(tmp_path / "new.db"))
    assert (code, "there is no store at" in err) == (1, True)
    assert not (tmp_path / "new.db").exists()


def test_after_a_live_copy_the_old_store_names_the_new_one_until_it_is_reopened(
    types: Types, old: str, tmp_path: Path
) -> None:
    new = str(tmp_path / "new.db")
    code, out, _ = types("store", "copy", old, new, "--live")
    assert (code, "Start with the new store now" in out) == (0, True)
    code, _, err = types("store", "copy", old, str(tmp_path / "third.db"))
    assert (code, f"moved to {new}" in err) == (1, True)
    assert types("store", "reopen", old)[0] == 0
    assert types("store", "copy", old, str(tmp_path / "third.db"))[0] == 0


def test_no_password_is_ever_shown(types: Types, old: str) -> None:
    for target in ("postgresql://me:geheim@127.0.0.1:1/db", "redis://:geheim@127.0.0.1:1/0"):
        code, out, err = types("store", "copy", old, target)
        assert code == 1
        assert "cannot be reached" in err
        assert "geheim" not in out + err


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_it_is(
    types: Types, old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    assert types("store", "copy", old, str(tmp_path / "new.db"))[0] == 0
    lines = [line.strip() for line in screen.getvalue().split("\r")]
    assert lines[1:] == ["Copied 2 feeds", "Copied 2 feeds, 2 triggers", "Copied 2 feeds, 2 triggers, 1 documents"]


async def _looked_at(store: Any) -> int:
    await refuse_marked(store)
    found = len(await store.triggers())
    await store.close()
    return found


def test_a_file_goes_to_a_server_and_back(types: Types, old: str, url: str, tmp_path: Path) -> None:
    said = [types("store", "copy", old, url, "--live"), types("store", "copy", url, str(tmp_path / "back.db"))]
    assert [code for code, _, _ in said] == [0, 0]
    assert PASSWORD not in repr(said)
    assert "PostgreSQL at 127.0.0.1" in said[0][1]
    assert asyncio.run(_looked_at(PostgresStore.at(url))) == 2
    assert asyncio.run(_looked_at(SqliteStore.at(tmp_path / "back.db", SystemClock()))) == 2
