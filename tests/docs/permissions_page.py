"""Writes docs/reference/permissions.md from the table of permissions: python -m tests.docs.permissions_page"""

from __future__ import annotations

from pathlib import Path

from harken.operate.permissions import PERMISSIONS, Permission
from harken.operate.principal import ROLES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "permissions.md"

HEAD = """# Permissions

Made from `operate/permissions.py` by `python -m tests.docs.permissions_page`: do not edit this page. How tokens
are made and limited is in [tokens and owners](../how-to/tokens.md).

- **all**: on everything.
- **own**: a token that is limited to an owner (or to some triggers) may do it to what is its owner's; the rest is
  `404`, as if it were not there.
- **own, shared**: and see what is shared with its role.
- **no**: `403`.

| operation | viewer | viewer of an owner | operator | operator of an owner | admin |
|---|---|---|---|---|---|
"""


def cell(permission: Permission, role: str, *, limited: bool) -> str:
    if ROLES.index(role) < ROLES.index(permission.role):
        return "no"
    if not limited:
        return "all"
    if permission.thing == "self":
        return "all"
    if permission.thing == "everything":
        return "no"
    return "own" if permission.thing == "job" or _is_change(permission) else "own, shared"


def _is_change(permission: Permission) -> bool:
    return permission.changes and permission.thing != "workflow"


def page() -> str:
    rows = []
    for operation, permission in PERMISSIONS.items():
        cells = [
            cell(permission, "viewer", limited=False),
            cell(permission, "viewer", limited=True),
            cell(permission, "operator", limited=False),
            cell(permission, "operator", limited=True),
            cell(permission, "admin", limited=False),
        ]
        rows.append(f"| `{operation}` | {' | '.join(cells)} |\n")
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
