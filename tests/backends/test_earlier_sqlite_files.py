"""A store in a file that an earlier version wrote opens, is migrated, and keeps every row.

The files were written by `harken start` of commits b7ac51a (schema 4) and abfea9f (schema 7): six orders by webhook, of
which four start runs, each with a run that waits for a person and one that died; and a schedule.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import apsw
import pytest

from harken.backends.sqlite.connection import connect, migrate
from harken.cli.root import run

FILES = Path(__file__).parent / "earlier_stores"
SCHEMAS = sorted(FILES.glob("sqlite-*.xz"))


@pytest.fixture(params=SCHEMAS, ids=lambda file: file.name.split(".")[0])
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    store = tmp_path / "harken.db"
    store.write_bytes(lzma.decompress(request.param.read_bytes()))
    (tmp_path / "harken.yaml").write_text("models: {default: echo}\n")
    return store


def tables(store: Path) -> dict[str, dict[str, list[Any]]]:
    """Every column of every table, as sorted texts."""
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
    found: dict[str, dict[str, list[Any]]] = {}
    for name in names:
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
        found[name] = {
            column: sorted(map(repr, (value for (value,) in connection.execute(f'SELECT "{column}" FROM "{name}"'))))
            for column in columns
        }
    connection.close()
    return found


def test_every_row_is_there_after_the_migration_as_it_was_before(earlier: Path) -> None:
    before = tables(earlier)
    connection = connect(earlier)
    migrate(connection)
    connection.close()
    after = tables(earlier)
    assert sum(len(next(iter(columns.values()))) for columns in before.values()) > 50
    changed = [
        f"{table}.{column}"
        for table, columns in before.items()
        for column, values in columns.items()
        if after.get(table, {}).get(column) != values
    ]
    assert changed == []


def test_a_migration_is_done_once(earlier: Path) -> None:
    for _ in range(2):
        connection = connect(earlier)
        migrate(connection)
        assert connection.pragma("integrity_check") == "ok"
        connection.close()


def rows(store: Path, capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    code = run(["--config", str(store.parent), *command, "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)


def test_its_runs_and_events_are_shown_by_this_version(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    connection = connect(earlier)
    migrate(connection)
    connection.close()
    capsys.readouterr()
    runs = rows(earlier, capsys, "runs", "list", "--limit", "200")
    assert Counter(run["status"] for run in runs if run["trigger"] != "hello") == {"done": 4, "waiting": 4, "dead": 4}
    events = rows(earlier, capsys, "events", "list", "--trigger", "orders", "--limit", "200")
    assert len(events) == 6
    one = next(run for run in runs if run["trigger"] == "orders")
    shown = rows(earlier, capsys, "runs", "show", one["id"])
    assert "order o-" in json.dumps(shown)


def test_a_store_of_a_newer_version_is_refused_and_stays_as_it_is(
    earlier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    connection = apsw.Connection(str(earlier))
    connection.execute("PRAGMA user_version=999")
    connection.close()
    content = earlier.read_bytes()
    assert run(["--config", str(earlier.parent), "runs", "list"]) == 1
    assert "written by a newer Harken (schema 999" in capsys.readouterr().err
    assert earlier.read_bytes() == content
