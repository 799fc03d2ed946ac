"""The SELECT that a user writes, and the statements around it.

It becomes a subquery (`SELECT … FROM (query) AS found WHERE …`), so it needs no placeholder, order or limit.
A read-only transaction makes sure that it only reads; this file only finds mistakes early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["Dialect", "Statements", "one_select"]

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`)
    |(?P<comment>--|/\*|\*/)
    |(?P<dollar>\$\w*\$|\$\d)
    |(?P<open>\()|(?P<close>\))|(?P<end>;)|(?P<quote>['"`])""",
    re.VERBOSE,
)
_AMBIGUOUS = re.compile(r"""\\['"`]""")
_REFUSED = {
    "comment": "a comment may end where you do not expect it. Write it as a comment of the YAML file",
    "dollar": "no placeholder or $-quoted text is possible here. Write the value itself, in single quotes",
    "end": "it is more than one statement. Write one SELECT",
    "quote": "a quote is not closed",
}


def one_select(sql: str) -> str:
    """The query without its last semicolon; ValueError if it is anything but one whole SELECT."""
    sql = sql.strip().rstrip(";").strip()
    if not re.match(r"(select|with)\b", sql, re.IGNORECASE):
        raise ValueError("the query must be one SELECT (it may begin with WITH)")
    if "\0" in sql or _AMBIGUOUS.search(sql):
        # some databases take it for a quote within a text, others for the end of the text
        raise ValueError("a backslash before a quote means different things in different databases. Double the quote")
    depth = 0
    for token in _TOKEN.finditer(sql):
        kind = token.lastgroup or ""
        if kind in _REFUSED:
            raise ValueError(_REFUSED[kind])
        depth += (kind == "open") - (kind == "close")
        if depth < 0:
            break
    if depth:
        raise ValueError("its parentheses do not match")
    return sql


class Dialect(Protocol):
    """How a database writes names, parameters and the text of a query."""

    def name(self, name: str) -> str: ...
    def mark(self, number: int) -> str: ...
    def text(self, sql: str) -> str: ...


class Statements:
    """The statements that read a query's rows in the order of their watermark and key."""

    def __init__(self, dialect: Dialect, query: str, watermark: str, key: str) -> None:
        self._dialect = dialect
        self._from = f"FROM (\n{dialect.text(query)}\n) AS found"
        # without the table's name, SQLite reads the quoted name of a missing column as a string
        self._watermark = f"found.{dialect.name(watermark)}"
        self._key = f"found.{dialect.name(key)}"

    def columns(self) -> str:
        return f"SELECT * {self._from} LIMIT 0"

    def empty(self, *, key: bool) -> str:
        """Finds a row without a watermark, or without a key, which no page would contain."""
        return f"SELECT 1 AS one {self._from} WHERE {self._key if key else self._watermark} IS NULL LIMIT 1"

    def newest(self) -> str:
        return f"SELECT {self._watermark} AS newest {self._from} ORDER BY {self._watermark} DESC LIMIT 1"

    def page(self, lower: Sequence[Any], limit: int) -> tuple[str, list[Any]]:
        """Rows from `lower` on, which is included: (), (watermark,) or (watermark, key)."""
        mark, where, values = self._dialect.mark, "", list(lower)
        if values:
            where = f" WHERE {self._watermark} >= {mark(1)}"
        if len(values) == 2:
            # written out, because not every database uses an index for (a, b) >= (x, y)
            where += f" AND ({self._watermark} > {mark(2)} OR {self._key} >= {mark(3)})"
            values.insert(0, values[0])
        order = f" ORDER BY {self._watermark}, {self._key} LIMIT {limit:d}"
        return f"SELECT * {self._from}{where}{order}", values
