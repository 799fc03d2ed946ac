"""What the runs of a trigger have used of its budget in this hour and day."""

from __future__ import annotations

from typing import Any

from harken.feed import Budget
from harken.runs import StepRecord
from harken.stores.sqlite.books import Books

__all__ = ["HOUR", "charge", "has_room", "room", "spend", "window"]

HOUR, DAY = 3_600_000_000, 86_400_000_000
_WINDOWS = {"runs": HOUR, "tokens": DAY, "usd": DAY}

SPEND = """INSERT INTO spent (trigger, what, since, amount) VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET
amount=CASE WHEN since=excluded.since THEN amount+excluded.amount ELSE excluded.amount END, since=excluded.since"""


def window(what: str, now: int) -> int:
    """Where the hour or day begins that this is counted in: calendar ones, in UTC."""
    return now - now % _WINDOWS[what]


def spend(books: Books, trigger: int, what: str, amount: float, now: int) -> None:
    books.execute(SPEND, (trigger, what, window(what, now), amount))


def charge(books: Books, seq: int, record: StepRecord) -> None:
    """Count what a model took for this step, once: a record that is written again is not charged again."""
    payer = _payer(books, seq)
    if not payer:
        return
    now = books.now()
    if record.tokens:
        spend(books, payer, "tokens", record.tokens, now)
    if record.usd:
        spend(books, payer, "usd", record.usd, now)


def _payer(books: Books, seq: int) -> int:
    """The trigger behind a run; a sub-run spends the budget of whoever asked for it."""
    row = books.row("SELECT trigger, parent FROM runs WHERE seq=?", (seq,))
    while row is not None and not row[0] and row[1] is not None:
        row = books.row("SELECT trigger, parent FROM runs WHERE id=?", (row[1],))
    return int(row[0]) if row is not None else 0


def has_room(books: Books, trigger: int, budget: Budget, now: int) -> bool:
    return room(books, trigger, budget, now) > 0


def room(books: Books, trigger: int, budget: Budget, now: int) -> float:
    """How many runs may start now; without end while only tokens or money are limited and not used up."""
    rows = books.execute("SELECT what, since, amount FROM spent WHERE trigger=?", (trigger,))
    used: dict[str, Any] = {what: amount for what, since, amount in rows if since == window(what, now)}
    if budget.tokens_per_day is not None and used.get("tokens", 0) >= budget.tokens_per_day:
        return 0
    if budget.usd_per_day is not None and used.get("usd", 0.0) >= budget.usd_per_day:
        return 0
    return float("inf") if budget.runs_per_hour is None else budget.runs_per_hour - used.get("runs", 0)
