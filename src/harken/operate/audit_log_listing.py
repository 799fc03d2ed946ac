"""The audit log: who did what, newest first."""

from __future__ import annotations

from harken.operate.context import Context
from harken.operate.events import moment_of
from harken.operate.output_rows import Plain, plain
from harken.operate.paging import bounded, id_after, to_cursor

__all__ = ["list_audit"]


async def list_audit(
    context: Context,
    *,
    who: str = "",
    did: str = "",
    what: str = "",
    since: str = "",
    cursor: str = "",
    limit: int = 50,
) -> Plain:
    """Changes, newest first. `who` is `operator`, an agent, a token or an owner; `did` is an operation."""
    found = await context.store.audits(
        who=who,
        did=did,
        what=what,
        since=moment_of(since, context.clock.now()),
        before=id_after(cursor),
        limit=bounded(limit),
    )
    return {"items": [plain(item) for item in found.items], "next": to_cursor(found.next)}
