"""Who the caller is, and what it may do: what a page needs before it shows a button."""

from __future__ import annotations

from harken.errors import Forbidden
from harken.operate.context import Context
from harken.operate.output_rows import Plain
from harken.operate.permissions import PERMISSIONS, require_role
from harken.operate.principal import Principal

__all__ = ["me"]


async def me(context: Context) -> Plain:
    """Tell who calls, with which role, and which operations are allowed."""
    caller = context.principal
    return {
        "name": caller.name,
        "who": caller.who,
        "role": caller.role,
        "owner": caller.owner,
        "triggers": list(caller.triggers),
        "limited": caller.limited,
        "way": caller.way,
        "operations": [operation for operation in PERMISSIONS if _may(caller, operation)],
    }


def _may(caller: Principal, operation: str) -> bool:
    try:
        require_role(caller, operation)
    except Forbidden:
        return False
    return True
