"""What a measurement reports, and how the table shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

__all__ = ["Figure", "Say", "at_least", "at_most", "middle", "percentile", "table"]

Say = Callable[[str], None]
HEADINGS = ("measure", "value", "limit", "ratio", "goal", "ok")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure. `limit` is what the same machine does without Harken, in the same unit; `limit_is` names it.

    Without a value it could not be measured, and `limit_is` says why.
    """

    measure: str
    value: float | None
    unit: str
    limit: float | None = None
    limit_is: str = ""
    ratio: float | None = None
    goal: str = ""
    ok: bool | None = None


def at_most(figure: Figure, bound: float, *, of: str = "value") -> Figure:
    """The figure with its goal: its value (or ratio) is no larger than this."""
    return _judged(figure, bound, of, "≤", lambda found: found <= bound)


def at_least(figure: Figure, bound: float, *, of: str = "value") -> Figure:
    return _judged(figure, bound, of, "≥", lambda found: found >= bound)


def _judged(figure: Figure, bound: float, of: str, sign: str, holds: Callable[[float], bool]) -> Figure:
    found = figure.value if of == "value" else figure.ratio
    goal = f"{sign} {bound:g} {figure.unit}" if of == "value" else f"ratio {sign} {bound:g}"
    return msgspec.structs.replace(figure, goal=goal, ok=found is not None and holds(found))


def middle(values: Sequence[float]) -> float:
    """The median: one round that something disturbed does not count."""
    return float(median(values))


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def table(figures: Sequence[Figure]) -> str:
    """All figures as plain text, one line each."""
    rows = [HEADINGS, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _row(figure: Figure) -> tuple[str, ...]:
    limit = "" if figure.limit is None else f"{_number(figure.limit)} {figure.unit}"
    if figure.limit_is:
        limit = f"{limit} ({figure.limit_is})" if limit else figure.limit_is
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    ok = {True: "yes", False: "NO", None: ""}[figure.ok]
    value = "-" if figure.value is None else f"{_number(figure.value)} {figure.unit}"
    return figure.measure, value, limit, ratio, figure.goal, ok


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
