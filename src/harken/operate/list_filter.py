"""One filter language for lists: CEL over the fields of a row, the same in every door.

`status == "failed" && trigger.startsWith("on")`. A field that rows do not have is an error with the nearest name, never
an empty list. What a store finds by itself is asked of it; for the rest rows are looked through, within a bound.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from harken.errors import Malformed, Misconfigured
from harken.language.cel import Condition, bind, compile_condition
from harken.language.cel.failed_clauses import and_clauses
from harken.language.cel.parser import Node, literal_text, loop_variable, parse, static_path
from harken.operate.output_rows import Plain
from harken.suggest import suggest_fix

__all__ = ["DEAD_FIELDS", "EVENT_FIELDS", "FIELDS", "RUN_FIELDS", "TRIGGER_FIELDS", "Where", "filter_page"]

MOST_LOOKED_AT = 5_000
"""So many rows are looked through for one page; the next page goes on from there."""
SMALLEST_READ = 10

EVENT_FIELDS = (
    "id", "feed", "feed_id", "key", "subject", "title", "state", "type", "occurred_at", "recorded_at", "data",
    "verdicts", "repeats", "last_repeat_at",
)  # fmt: skip
RUN_FIELDS = (
    "id", "trigger", "workflow", "status", "outcome", "event_keys", "attempt", "created_at", "started_at",
    "finished_at", "seconds", "error", "hold", "due_at", "waiting_for",
)  # fmt: skip
DEAD_FIELDS = ("id", "what", "trigger", "key", "reason", "at")
TRIGGER_FIELDS = (
    "name", "type", "status", "reason", "advice", "needs_person", "feed", "feed_id", "integration", "workflow",
    "interval_seconds", "failures", "fired", "held", "dead", "last_fired_at", "last_tick_at", "last_read_at",
    "next_read_at", "paused", "start_line", "late_seconds",
)  # fmt: skip

FIELDS: Mapping[str, Sequence[str]] = {
    "dead.list": DEAD_FIELDS,
    "events.list": EVENT_FIELDS,
    "runs.list": RUN_FIELDS,
    "triggers.list": TRIGGER_FIELDS,
}
"""What the items of each of these lists have."""

_ROW = "item"

Reading = Callable[..., Awaitable[Plain]]


class Where:
    """A compiled filter. `equal` has the fields that have to have one text: a store may find these by itself."""

    def __init__(self, source: str, fields: Collection[str]) -> None:
        self.source = source
        self._condition = _compile(source, fields)
        self.equal = dict(_equalities(self._condition))
        self.failed = 0
        self.reason = ""

    def accepts(self, row: Mapping[str, Any]) -> bool:
        """Whether the filter is true for the row. One that fails on it, as a field of its data is missing, is not."""
        decision = self._condition.decide(bind({_ROW: row}))
        if decision.outcome == "error":
            self.failed += 1
            self.reason = self.reason or decision.reason.replace(f"{_ROW}.", "")
        return decision.outcome == "true"


def _compile(source: str, fields: Collection[str]) -> Condition:
    if not source.strip():
        raise Malformed("the filter is empty", fix='Write one, such as status == "failed"')
    try:
        names = sorted(_free_names(parse(source)), key=lambda node: -node.start)
    except Misconfigured as error:
        raise Malformed(f"the filter cannot be read: {error.message}") from None
    except RecursionError:
        raise Malformed("the filter is nested too deep", fix="Write it with fewer parentheses and loops") from None
    whole = source
    for node in names:
        if node.text not in fields:
            raise Malformed(f"there is no field {node.text} here", fix=suggest_fix(node.text, fields))
        whole = f"{whole[: node.start]}{_ROW}.{whole[node.start :]}"
    try:
        return compile_condition(whole)
    except Misconfigured as error:
        said = error.message.replace(f"{_ROW}.", "")
        raise Malformed(f"the filter cannot be used: {said}", fix=error.fix) from None


def _free_names(node: Node, bound: frozenset[str] = frozenset()) -> Iterator[Node]:
    """The names that stand for fields of the row: not those that a loop gives to its items."""
    if node.kind == "name":
        if node.text not in bound:
            yield node
        return
    variable = loop_variable(node)
    inner = bound if variable is None else bound | {variable}
    for at, part in enumerate(node.parts):
        if variable is None or at != 1:
            yield from _free_names(part, bound if at == 0 else inner)


def _equalities(condition: Condition) -> Iterator[tuple[str, str]]:
    for clause in and_clauses(condition):
        if clause.tree.kind == "binary" and clause.tree.text == "==":
            path, text = static_path(clause.tree.parts[0]), literal_text(clause.tree.parts[1])
            if path is not None and len(path) == 2 and text is not None:
                yield str(path[1]), text


async def filter_page(
    read: Reading,
    where: Where,
    given: Mapping[str, Any],
    pushed: Collection[str],
    see: Callable[[Plain], Plain | None],
    cursor: str,
    limit: int,
    *,
    follows: bool = False,
) -> Plain:
    """A page of the rows that the filter accepts: `read` gives pages of all of them, `see` what the caller may see.

    `pushed` are the parameters of `read` that mean the same as a field. The page may have fewer rows than `limit`, and
    go on all the same; `looked_at` says how many rows were looked at for it. A filter that fails on every row is an
    error, unless the caller `follows` what comes: that may be a single row of another kind.
    """
    params = dict(given)
    for name in pushed:
        if name in where.equal and not params.get(name):
            params[name] = where.equal[name]
    items: list[Plain] = []
    looked_at = read_rows = 0
    following: str | None = cursor or None
    while True:
        size = limit - len(items)
        page = await read(**params, cursor=following or "", limit=size)
        read_rows += len(page["items"])
        # a filter must not tell anything of rows that the caller may not see, not even by how it fails
        seen = [shown for row in page["items"] if (shown := see(row)) is not None]
        looked_at += len(seen)
        items += [row for row in seen if where.accepts(row)]
        following = page["next"]
        full = limit - len(items) < min(SMALLEST_READ, limit)
        if following is None or full or read_rows >= MOST_LOOKED_AT:
            break
    if not items and where.failed and where.failed == looked_at and not follows:
        raise Malformed(f"the filter fails on each of {looked_at} rows: {where.reason}")
    return {"items": items, "next": following, "looked_at": looked_at, "failed": where.failed}
