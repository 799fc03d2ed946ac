"""What the runs of a trigger have used of its budget in this hour and day.

Whoever looks whether there is room holds the trigger's row, so that two replicas do not both take the last of it.
"""

from __future__ import annotations

from harken.backends.budgets import left, window
from harken.backends.postgres.transaction import Books
from harken.feed import Budget
from harken.runs import StepRecord

__all__ = ["charge", "count_run", "has_room", "lock_budget", "room", "spend"]

SPEND = """INSERT INTO spent AS s (trigger, what, since, amount) VALUES ($1, $2, $3, $4)
ON CONFLICT (trigger, what) DO UPDATE SET since=excluded.since,
amount=CASE WHEN s.since=excluded.since THEN s.amount+excluded.amount ELSE excluded.amount END"""


async def spend(books: Books, trigger: int, what: str, amount: float) -> None:
    await books.do(SPEND, trigger, what, window(what, books.now), float(amount))


async def count_run(books: Books, seq: int, trigger: int) -> None:
    await spend(books, trigger, "runs", 1)
    await books.do("UPDATE runs SET budgeted=false WHERE seq=$1", seq)


async def charge(books: Books, seq: int, record: StepRecord) -> None:
    """Count what a model took for this step, once: a record that is written again is not charged again."""
    payer = await _payer(books, seq)
    if not payer:
        return
    if record.tokens:
        await spend(books, payer, "tokens", record.tokens)
    if record.usd:
        await spend(books, payer, "usd", record.usd)


async def _payer(books: Books, seq: int) -> int:
    """The trigger behind a run; a sub-run spends the budget of whoever asked for it."""
    row = await books.row("SELECT trigger, parent FROM runs WHERE seq=$1", seq)
    while row is not None and not row[0] and row[1] is not None:
        row = await books.row("SELECT trigger, parent FROM runs WHERE id=$1", row[1])
    return int(row[0]) if row is not None else 0


async def lock_budget(books: Books, trigger: int) -> None:
    await books.value("SELECT 1 FROM triggers WHERE id=$1 FOR NO KEY UPDATE", trigger)


async def has_room(books: Books, trigger: int, budget: Budget) -> bool:
    return await room(books, trigger, budget) > 0


async def room(books: Books, trigger: int, budget: Budget) -> float:
    """How many runs may start now."""
    rows = await books.rows("SELECT what, since, amount FROM spent WHERE trigger=$1", trigger)
    return left(budget, rows, books.now)
