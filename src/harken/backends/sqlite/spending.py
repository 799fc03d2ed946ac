"""What the runs of a trigger have used of its budget in this hour and day."""

from __future__ import annotations

from harken.backends.budgets import left, window
from harken.backends.sqlite.transaction import Books
from harken.feed import Budget
from harken.runs import StepRecord

__all__ = ["charge", "has_room", "room", "spend"]

SPEND = """INSERT INTO spent (trigger, what, since, amount) VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET
amount=CASE WHEN since=excluded.since THEN amount+excluded.amount ELSE excluded.amount END, since=excluded.since"""


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
    """How many runs may start now."""
    return left(budget, books.execute("SELECT what, since, amount FROM spent WHERE trigger=?", (trigger,)), now)
