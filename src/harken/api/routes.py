"""The table of API routes, shared by the server and the CLI's client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

__all__ = ["ROUTES", "Param", "Route"]

Param = Literal["text", "number", "count", "flag", "object"]

_PLACE = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True, kw_only=True)
class Route:
    """`params` are those of the operation: in the path where it names them, else in the query (GET) or the body."""

    operation: str
    method: Literal["GET", "POST"]
    path: str
    params: Mapping[str, Param] = field(default_factory=dict)

    @property
    def placed(self) -> frozenset[str]:
        """The names of the parameters in the path."""
        return frozenset(_PLACE.findall(self.path))

    def address(self, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path for these parameters, and those that are left for the query or the body."""
        path = _PLACE.sub(lambda found: quote(str(params[found[1]]), safe=""), self.path)
        return path, {name: value for name, value in params.items() if name not in self.placed}


def _get(operation: str, path: str, **params: Param) -> Route:
    return Route(operation=operation, method="GET", path=path, params=params)


def _post(operation: str, path: str, **params: Param) -> Route:
    return Route(operation=operation, method="POST", path=path, params=params)


_TRIGGER = "/api/triggers/{name:path}"
_POLLER = "/admin/pollers/{id}"

# names may contain slashes, so of two matching paths the longer one comes first
_TABLE = (
    _get("status", "/api/status"),
    _get("doctor", "/api/doctor"),
    _get("diff", "/api/diff"),
    _post("reload", "/api/reload"),
    _get("config.check", "/api/config/check"),
    _post("store.check", "/api/store/check"),
    _post("store.backup", "/api/store/backup", target="text"),
    _get("triggers.list", "/api/triggers", type="text"),
    _get("triggers.explain", f"{_TRIGGER}/explain", name="text", key="text"),
    _post("triggers.test", f"{_TRIGGER}/test", name="text", lookback="number"),
    _post("triggers.run", f"{_TRIGGER}/run", name="text"),
    _post("triggers.pause", f"{_TRIGGER}/pause", name="text", reason="text"),
    _post("triggers.resume", f"{_TRIGGER}/resume", name="text"),
    _post("triggers.reset", f"{_TRIGGER}/reset", name="text", cursor="flag", yes="flag"),
    _post("triggers.release", f"{_TRIGGER}/release", name="text"),
    _post("triggers.drop", f"{_TRIGGER}/drop", name="text"),
    _get("triggers.show", _TRIGGER, name="text"),
    _post("pollers.reload", "/admin/pollers/reload"),
    _get("pollers.list", "/admin/pollers", agent="text"),
    _get("pollers.show", _POLLER, id="text", agent="text"),
    _post("pollers.run", f"{_POLLER}/run", id="text", agent="text"),
    _post("pollers.pause", f"{_POLLER}/pause", id="text", agent="text"),
    _post("pollers.resume", f"{_POLLER}/resume", id="text", agent="text"),
    _post("pollers.reset", f"{_POLLER}/reset", id="text", agent="text"),
    _get("tools.list", "/api/tools", agent="text", ask="flag"),
    _get("tools.schemas", "/api/tools/schemas", agent="text"),
    _post("tools.call", "/api/tools/call", agent="text", name="text", arguments="object"),
    _get("budget.list", "/api/budget"),
    _get("feeds.list", "/api/feeds"),
    _get("feeds.show", "/api/feeds/{name:path}", name="text"),
    _get(
        "events.list", "/api/events",
        feed="text", trigger="text", key="text", since="text", before="count", limit="count",
    ),
    _get("events.show", "/api/events/{id:int}", id="count"),
    _post("events.replay", "/api/events/{id:int}/replay", id="count", trigger="text"),
    _get(
        "runs.list", "/api/runs",
        trigger="text", status="text", workflow="text", since="text", before="count", limit="count",
    ),
    _get("runs.show", "/api/runs/{id}", id="text"),
    _post("runs.retry", "/api/runs/{id}/retry", id="text", latest="flag"),
    _post("runs.cancel", "/api/runs/{id}/cancel", id="text"),
    _post("runs.approve", "/api/runs/{id}/approve", id="text", approved="flag", comment="text"),
    _get("dead.list", "/api/dead", before="count", limit="count"),
    _post("dead.retry_all", "/api/dead/retry", trigger="text", latest="flag", same="flag"),
    _post("dead.retry", "/api/dead/{id}/retry", id="text", latest="flag", same="flag"),
    _post("dead.drop", "/api/dead/{id}/drop", id="text"),
    _get(
        "tickets.list", "/api/tickets",
        tracker="text", project="text", state="text", limit="count",
    ),
    _get("tickets.show", "/api/tickets/show", ticket="text", tracker="text"),
    _post("tickets.claim", "/api/tickets/claim", ticket="text", tracker="text", pipeline="text"),
    _post("tickets.retry", "/api/tickets/retry", ticket="text", tracker="text"),
    _post("tickets.cancel", "/api/tickets/cancel", ticket="text", tracker="text"),
    _post("tickets.release", "/api/tickets/release", ticket="text", tracker="text"),
    _get("trackers.list", "/api/trackers"),
    _post("trackers.test", "/api/trackers/{name}/test", name="text"),
    _post("trackers.fix", "/api/trackers/{name}/fix", name="text"),
    _post("tickets.adopt", "/api/trackers/{name}/adopt", name="text"),
    _get("webhooks.list", "/api/webhooks"),
    _post("webhooks.curl", "/api/webhooks/curl", id="text"),
    _get("workflows.list", "/api/workflows"),
    _get("workflows.check", "/api/workflows/check", name="text"),
    _post("workflows.run", "/api/workflows/{name:path}/run", name="text", input="object"),
    _get("integrations.list", "/api/integrations"),
    _post("integrations.test", "/api/integrations/{name}/test", name="text"),
    _post("integrations.whoami", "/api/integrations/{name}/whoami", name="text"),
    _post("integrations.renew", "/api/integrations/{name}/renew", name="text"),
    _get("models.list", "/api/models"),
    _post("models.test", "/api/models/test", name="text"),
)  # fmt: skip

ROUTES: Mapping[str, Route] = {route.operation: route for route in _TABLE}
