"""How answers look: JSON as it is, a rich table on a terminal, plain aligned columns anywhere else."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from harken.cli.invocation import Session

__all__ = [
    "Column",
    "clean",
    "clock",
    "fields",
    "indented",
    "key_and_title",
    "listing",
    "print_json",
    "say",
    "table",
    "took",
]

Column: TypeAlias = tuple[str, str | Callable[[Mapping[str, Any]], Any]]

LONGEST_CELL = 500
LONGEST_KEY = 160
"""Room for most addresses of pages, so that a key can be copied; `--json` has the others whole."""
LONGEST_TITLE = 80
# by the heading: what strangers write, and need not be copied to its end
_LONGEST = {"title": LONGEST_TITLE, "key": LONGEST_KEY, "events": LONGEST_KEY}

# text of strangers must not move the cursor or colour the screen
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_STYLES = {
    "healthy": "green", "done": "green", "fired": "green", "ok": "green", "up": "green",
    "degraded": "yellow", "stale": "yellow", "held": "yellow", "warn": "yellow", "waiting": "yellow",
    "paused": "magenta", "gathered": "cyan", "gathering": "cyan", "running": "cyan", "new": "cyan",
    "refused": "red", "failed": "red", "dead": "red", "error": "red", "fail": "red",
    "filtered": "dim", "duplicate": "dim", "before_start": "dim", "cancelled": "dim",
}  # fmt: skip


def print_json(value: Any) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    # JSON itself escapes only some of what a terminal obeys
    print(_CONTROL.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text))


def say(text: str) -> None:
    print(clean(text))


def listing(session: Session, answer: Mapping[str, Any], columns: Sequence[Column], empty: str) -> None:
    """Print the items of an answer: an array of flat objects with --json, else a table."""
    items = answer["items"]
    if session.as_json:
        print_json(items)
    elif not items:
        print(empty)
    else:
        table(items, columns)
        if answer.get("next") is not None:
            print(f"There is more: --before {answer['next']}")


def table(items: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> None:
    rows = [[_cell(item, column, _LONGEST.get(header, LONGEST_CELL)) for header, column in columns] for item in items]
    headers = [header for header, _ in columns]
    if sys.stdout.isatty():
        _rich(headers, rows)
    else:
        print(plain_table(headers, rows))


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, two spaces apart."""
    lines = [list(headers), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def fields(session: Session, item: Mapping[str, Any], *, hide: Sequence[str] = ()) -> None:
    """Print one object: a line for each field that says something."""
    if session.as_json:
        print_json(item)
        return
    shown = {name: value for name, value in item.items() if name not in hide and value not in ("", None, [], {})}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        said = clock(value) if _is_time(name, value) else _value(value, width + 2)
        print(f"{name.replace('_', ' ').ljust(width)}  {said}")


def indented(item: Mapping[str, Any], depth: int = 1) -> None:
    """Print what an object says below a heading, with its own objects a step deeper; texts keep their lines."""
    said = {name: value for name, value in item.items() if value not in ("", None, [], {})}
    width = max((len(name) for name, value in said.items() if not isinstance(value, dict)), default=0)
    for name, value in said.items():
        label = "  " * depth + clean(name.ljust(width))
        if isinstance(value, dict):
            print(label.rstrip())
            indented(value, depth + 1)
            continue
        each = value if isinstance(value, list) and all(isinstance(one, str) for one in value) else [value]
        for one in each:
            lines = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)).splitlines()
            print(f"{label}  " + f"\n{' ' * (len(label) + 2)}".join(map(clean, lines)))


def key_and_title(key: str, title: str) -> str:
    """`INC-1 "Disk full"`, within a line: a stranger's title must not fill the screen."""
    return f'{_cut(key, LONGEST_KEY)} "{_cut(title, LONGEST_TITLE)}"' if title else _cut(key, LONGEST_KEY)


def took(seconds: float | None) -> str:
    """`0.02 s`, `3.4 s`, `12 min`: how long something took."""
    if seconds is None:
        return ""
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.0f} h"


def clock(text: Any) -> str:
    """A time as the reader's own wall clock shows it, with the zone."""
    if not text:
        return "-"
    return datetime.fromisoformat(str(text)).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def _cell(item: Mapping[str, Any], column: str | Callable[[Mapping[str, Any]], Any], longest: int) -> str:
    value = column(item) if callable(column) else item.get(column)
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    if isinstance(column, str) and _is_time(column, value):
        value = clock(value)
    return _cut(clean(str(value)), longest) if value not in (None, "") else "-"


def _cut(text: str, longest: int) -> str:
    """A cell as long as all others of its column would be: one title must not make every line a megabyte."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _is_time(name: str, value: Any) -> bool:
    """Whether a field of this name has a time as JSON has it."""
    if not value or not isinstance(value, str):
        return False
    return name in ("at", "since", "start_line", "watermark") or name.endswith(("_at", "_until"))


def _value(value: Any, indent: int) -> str:
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        value = ", ".join(map(str, value))
    if isinstance(value, dict | list):
        text = json.dumps(value, indent=2, ensure_ascii=False)
        return "\n".join(map(clean, text.splitlines())).replace("\n", "\n" + " " * indent)
    return clean(str(value))


def clean(text: str) -> str:
    """The text without characters that a terminal obeys."""
    return _CONTROL.sub(" ", text)


def _rich(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        grid.add_column(header, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console().print(grid)
