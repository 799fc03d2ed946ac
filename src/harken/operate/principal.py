"""Who calls an operation: a role, and for some tokens the owner, operations or triggers that they are limited to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from harken.errors import NotFound, Unauthorized

__all__ = ["OPERATOR", "ROLES", "SCOPE_KEY", "Principal", "Role", "Way", "caller_of"]

Role = Literal["viewer", "operator", "admin"]
Way = Literal["local", "token", "login"]
"""How the caller proved who it is: by reaching loopback, by a token, or by logging in at an identity provider."""
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
"""From the least to the most that a role may do; each may do what those before it may."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """`owner` is empty for who is not limited to one owner's things. Without `operations` and `triggers` all count.

    An operation may be written as `triggers.*`.
    """

    name: str
    role: Role
    owner: str = ""
    operations: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    way: Way = "token"

    @property
    def who(self) -> str:
        """Whom the audit log names: the owner, or else the token."""
        return self.owner or self.name

    @property
    def limited(self) -> bool:
        """Whether there are things that it may not see."""
        return bool(self.owner or self.triggers)

    def has_role(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)

    def require_agent(self, agent: str) -> None:
        """Raise NotFound for the agent of somebody else: an owner is the agent of the same name."""
        if self.owner not in ("", agent):
            raise NotFound(f"there is no agent {agent}")

    def in_scope(self, operation: str) -> bool:
        """Whether its token is for this operation."""
        kind = operation.partition(".")[0]
        return not self.operations or operation in self.operations or f"{kind}.*" in self.operations


OPERATOR = Principal(name="operator", role="admin", way="local")
"""Whoever can open the store or reach loopback: the one person whose machine this is."""

SCOPE_KEY = "harken.principal"


def caller_of(scope: Mapping[str, Any]) -> Principal:
    """The caller as the HTTP door has noted it in the scope of a request; raises Unauthorized for a stranger."""
    found = scope.get(SCOPE_KEY)
    if not isinstance(found, Principal):
        raise Unauthorized("a token is needed", fix="Send it as Authorization: Bearer …")
    return found
