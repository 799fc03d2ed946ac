"""Who may do what: one row for each operation. An operation without a row is refused, and fails the build.

`docs/reference/permissions.md` is made of this table by `tests/docs/permissions_page.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from harken.errors import Forbidden
from harken.operate.principal import Principal, Role

__all__ = ["METRICS", "PERMISSIONS", "RUNS_TAIL", "SHOWN_ONCE", "TAIL", "Permission", "Thing", "require_role"]

Thing = Literal["self", "everything", "list", "new", "trigger", "run", "event", "feed", "workflow", "job"]
"""What an operation is about. Those limited to an owner may see their own and what is shared with them, and change
their own; a list shows them these only, what is new becomes theirs, and operations on everything are not for them.
What is about the caller itself is for everybody, also for a token that is limited to some operations."""

TAIL = "events.tail"
RUNS_TAIL = "runs.tail"
METRICS = "metrics"
"""What can be read over HTTP without being an operation."""

SHOWN_ONCE = frozenset({"tokens.create", "tokens.rotate"})
"""Operations whose answer has a new secret: it must not be stored anywhere, not even to answer a repeated request."""


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """The least role that may, and what the operation is about. `param` names the thing."""

    role: Role
    thing: Thing
    param: str = ""

    @property
    def changes(self) -> bool:
        """Whether it is more than a look, so that a thing which is only shared is not enough."""
        return self.role != "viewer"


def _sees(thing: Thing, param: str = "") -> Permission:
    return Permission(role="viewer", thing=thing, param=param)


def _does(thing: Thing, param: str = "") -> Permission:
    return Permission(role="operator", thing=thing, param=param)


_EVERYTHING = _sees("everything")
_ADMIN = Permission(role="admin", thing="everything")

PERMISSIONS: Mapping[str, Permission] = {
    "me": _sees("self"),
    "status": _EVERYTHING,
    "activity": _EVERYTHING,
    "doctor": _EVERYTHING,
    "diff": _EVERYTHING,
    "reload": _does("everything"),
    "config.check": _EVERYTHING,
    "config.schema": _EVERYTHING,
    "store.check": _does("everything"),
    "store.retention": _EVERYTHING,
    "store.backup": _ADMIN,
    "triggers.list": _sees("list", "name"),
    "triggers.activity": _sees("list", "name"),
    "triggers.show": _sees("trigger", "name"),
    "triggers.export": _sees("trigger", "name"),
    "triggers.create": _does("new", "name"),
    "triggers.draft": _does("new", "name"),
    "triggers.replace": _does("trigger", "name"),
    "triggers.edit": _does("trigger", "name"),
    "triggers.delete": _does("trigger", "name"),
    "triggers.explain": _sees("trigger", "name"),
    "triggers.bank": _sees("trigger", "name"),
    "triggers.test": _does("trigger", "name"),
    "triggers.backtest": _does("trigger", "name"),
    "triggers.run": _does("trigger", "name"),
    "triggers.pause": _does("trigger", "name"),
    "triggers.resume": _does("trigger", "name"),
    "triggers.reset": _does("trigger", "name"),
    "triggers.seek": _does("trigger", "name"),
    "triggers.release": _does("trigger", "name"),
    "triggers.drop": _does("trigger", "name"),
    "pollers.list": _sees("job"),
    "pollers.show": _sees("job", "id"),
    "pollers.run": _does("job", "id"),
    "pollers.pause": _does("job", "id"),
    "pollers.resume": _does("job", "id"),
    "pollers.reset": _does("job", "id"),
    "pollers.reload": _does("everything"),
    "tools.list": _sees("job"),
    "tools.schemas": _sees("job"),
    "tools.call": _does("job"),
    "budget.list": _EVERYTHING,
    "feeds.list": _sees("list", "triggers"),
    "feeds.show": _sees("feed", "name"),
    "events.list": _sees("list", "verdicts"),
    "events.show": _sees("event", "id"),
    "events.case": _sees("event", "id"),
    "events.star": _does("event", "id"),
    "events.unstar": _does("event", "id"),
    "events.replay": _does("event", "id"),
    "events.replay_range": _does("everything"),
    "events.forget": _ADMIN,
    TAIL: _sees("list", "verdicts"),
    "bulk.plan": _does("job"),
    "bulk.show": _does("everything"),
    "bulk.execute": _does("everything"),
    "bulk.undo": _does("everything"),
    "runs.list": _sees("list", "trigger"),
    RUNS_TAIL: _sees("list", "trigger"),
    "runs.show": _sees("run", "id"),
    "runs.retry": _does("run", "id"),
    "runs.rerun": _does("run", "id"),
    "runs.cancel": _does("run", "id"),
    "runs.approve": _does("run", "id"),
    "dead.list": _sees("list", "trigger"),
    "dead.retry": _does("run", "id"),
    "dead.retry_all": _does("trigger", "trigger"),
    "dead.drop": _does("run", "id"),
    "tickets.list": _EVERYTHING,
    "tickets.show": _EVERYTHING,
    "tickets.claim": _does("everything"),
    "tickets.retry": _does("everything"),
    "tickets.cancel": _does("everything"),
    "tickets.release": _does("everything"),
    "tickets.adopt": _does("everything"),
    "trackers.list": _EVERYTHING,
    "trackers.test": _does("everything"),
    "trackers.fix": _does("everything"),
    "webhooks.list": _EVERYTHING,
    "webhooks.curl": _does("everything"),
    "workflows.list": _sees("list", "name"),
    "workflows.show": _sees("workflow", "name"),
    "workflows.check": _EVERYTHING,
    "workflows.run": _does("workflow", "name"),
    "workflows.source": _ADMIN,
    "workflows.write": _ADMIN,
    "integrations.list": _EVERYTHING,
    "integrations.show": _EVERYTHING,
    "services.list": _EVERYTHING,
    "services.show": _EVERYTHING,
    "event_types.list": _EVERYTHING,
    "integrations.test": _does("everything"),
    "integrations.whoami": _does("everything"),
    "integrations.renew": _does("everything"),
    "models.list": _EVERYTHING,
    "models.test": _does("everything"),
    "tokens.list": _ADMIN,
    "tokens.create": _ADMIN,
    "tokens.revoke": _ADMIN,
    "tokens.rotate": _ADMIN,
    "audit.list": _ADMIN,
    METRICS: _EVERYTHING,
}


def require_role(principal: Principal, operation: str) -> Permission:
    """The permission for the operation; raises Forbidden when the principal's token is not for it.

    Which things it may be used on is looked up by `harken.operate.owner_access`.
    """
    permission = PERMISSIONS.get(operation)
    if permission is None:
        raise Forbidden(f"nobody may call {operation}", fix="Add a row to PERMISSIONS in harken/operate/permissions.py")
    if permission.thing != "self" and not principal.in_scope(operation):
        raise Forbidden(f"this token is not for {operation}", fix=f"It is for: {', '.join(principal.operations)}")
    if not principal.has_role(permission.role):
        raise Forbidden(f"{operation} needs the role {permission.role}; this token has {principal.role}")
    if permission.thing == "everything" and principal.limited:
        whose = f"the things of {principal.owner}" if principal.owner else "some triggers"
        raise Forbidden(f"{operation} is about everything; this token is for {whose} only")
    return permission
