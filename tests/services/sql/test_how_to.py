"""The user that docs/how-to/sql.md makes reads what it was granted, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harken.errors import NeedsAttention
from harken.source import Host
from tests.services.reading import read, subjects
from tests.services.sql.databases import Hand, MariaDb, PostgresDb, order, rows_of

pytestmark = pytest.mark.worker_group("sql")

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "sql.md").read_text("utf-8")
POSTGRES, MARIADB, INDEX = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


def statements(block: str) -> list[str]:
    # the servers of the tests have a user harken, who may do everything
    # the servers of the tests have a user harken already
    found = block.replace("'…'", "'reader'").replace("harken", "reader").replace("shop.", "test.").split(";")
    return [one.strip() for one in found if one.strip()]


@pytest.mark.parametrize(
    ("db", "block", "before"),
    [
        ("postgres", POSTGRES, "DROP ROLE IF EXISTS reader"),
        ("mariadb", MARIADB, "DROP USER IF EXISTS reader"),
    ],
    indirect=["db"],
)
async def test_the_user_of_the_page_reads_what_it_was_granted_and_nothing_else(
    db: PostgresDb | MariaDb, hand: Hand, host: Host, block: str, before: str
) -> None:
    await hand.do(before, *statements(block), order(1))
    url = db.server.url("postgres" if isinstance(db, PostgresDb) else "test", "reader", "reader")
    assert subjects(await read(rows_of(host, url))) == ["1"]
    await hand.do("CREATE TABLE salaries (id integer PRIMARY KEY, at integer)")
    with pytest.raises(NeedsAttention, match="salaries"):
        await read(rows_of(host, url, query="SELECT * FROM salaries"))


@pytest.mark.parametrize("db", ["postgres", "mariadb"], indirect=True)
async def test_the_index_of_the_page_can_be_made(hand: Hand) -> None:
    [statement] = statements(INDEX)
    await hand.do(statement.replace("CREATE INDEX ON", "CREATE INDEX of_the_page ON").replace("created_at", "at"))
