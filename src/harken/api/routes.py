"""The table of operations as the API offers them: server, client, OpenAPI and TypeScript are made from it.

It is light, because every command imports it. What the answers look like is in `shapes`, what the parameters take in
`openapi`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

__all__ = ["ROUTES", "Method", "Param", "Route"]

Param = Literal[
    "text", "number", "count", "flag", "object", "any", "texts", "since", "duration", "cel", "filter", "cursor",
    "limit", "match", "fields",
]  # fmt: skip
"""`texts` are separated by commas in a query; `since` is a time, or a duration before now; `cel` is a condition of a
trigger and `filter` one of a list; `match` is If-Match. `fields` are those of the items that somebody wants: of these
the operation knows nothing, as it needs the others to decide who may see an item."""
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

_PLACE = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True, kw_only=True)
class Route:
    """`params` are those of the operation: in the path where it names them, else in the query or the body.

    `pages`: the answer is a page of a list, with `cursor` and `limit` among the parameters. `versioned`: the answer
    has a `revision`, which is its ETag; to change it, If-Match has to name it. `creates`: the status is 201.
    """

    operation: str
    method: Method
    path: str
    params: Mapping[str, Param] = field(default_factory=dict)
    pages: bool = False
    versioned: bool = False
    creates: bool = False

    @property
    def placed(self) -> frozenset[str]:
        """The names of the parameters in the path."""
        return frozenset(_PLACE.findall(self.path))

    @property
    def template(self) -> str:
        """The path as people and OpenAPI write it."""
        return _PLACE.sub(lambda found: f"{{{found[1]}}}", self.path)

    @property
    def in_query(self) -> bool:
        """Whether what does not stand in the path is in the query; else it is in the body."""
        return self.method in ("GET", "DELETE")

    @property
    def needs_match(self) -> bool:
        return self.method in ("PUT", "PATCH", "DELETE")

    @property
    def takes_key(self) -> bool:
        """Whether an Idempotency-Key makes a repetition harmless."""
        return self.method == "POST"

    def address(self, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path for these parameters, and those that are left for the query or the body."""
        given = {name: value for name, value in params.items() if self.params.get(name) != "match"}
        path = _PLACE.sub(lambda found: quote(str(params[found[1]]), safe=""), self.path)
        return path, {name: value for name, value in given.items() if name not in self.placed}


def _get(operation: str, path: str, **params: Param) -> Route:
    return Route(operation=operation, method="GET", path=path, params=params)


def _create(operation: str, path: str, **params: Param) -> Route:
    return Route(operation=operation, method="POST", path=path, params=params, versioned=True, creates=True)


def _versioned(operation: str, method: Method, path: str, **params: Param) -> Route:
    matched: dict[str, Param] = {"match": "match"} if method != "GET" else {}
    return Route(operation=operation, method=method, path=path, params={**params, **matched}, versioned=True)


def _list(operation: str, path: str, **params: Param) -> Route:
    paged: dict[str, Param] = {**params, "cursor": "cursor", "limit": "limit"}
    return Route(operation=operation, method="GET", path=path, params=paged, pages=True)


def _post(operation: str, path: str, **params: Param) -> Route:
    return Route(operation=operation, method="POST", path=path, params=params)


_TRIGGER = "/api/triggers/{name:path}"
_ROW: Mapping[str, Param] = {
    "provider": "text", "config": "any", "condition": "cel", "options": "object", "workflow": "any", "enabled": "flag",
}  # fmt: skip
_WORKFLOW_SOURCE = "/api/workflows/{name:path}/source"
_POLLER = "/admin/pollers/{id}"

# names may contain slashes, so of two matching paths the longer one comes first
_TABLE = (
    _get("me", "/api/me"),
    _get("status", "/api/status"),
    _get("activity", "/api/activity", since="since"),
    _list("triggers.activity", "/api/activity/triggers", names="texts"),
    _get("doctor", "/api/doctor"),
    _get("diff", "/api/diff"),
    _post("reload", "/api/reload"),
    _get("config.check", "/api/config/check"),
    _get("config.schema", "/api/config/schema", file="text"),
    _post("store.check", "/api/store/check"),
    _get("store.retention", "/api/store/retention"),
    _post("store.backup", "/api/store/backup", target="text"),
    _list("triggers.list", "/api/triggers", type="text", where="filter", fields="fields"),
    _get("triggers.explain", f"{_TRIGGER}/explain", name="text", key="text", agent="text"),
    _get("triggers.bank", f"{_TRIGGER}/bank", name="text", limit="count"),
    _post(
        "triggers.backtest", f"{_TRIGGER}/backtest",
        name="text", condition="cel", last="duration", since="since", until="since",
    ),
    _post("triggers.test", f"{_TRIGGER}/test", name="text", lookback="number"),
    _post("triggers.run", f"{_TRIGGER}/run", name="text"),
    _post("triggers.pause", f"{_TRIGGER}/pause", name="text", reason="text"),
    _post("triggers.resume", f"{_TRIGGER}/resume", name="text"),
    _post("triggers.reset", f"{_TRIGGER}/reset", name="text", cursor="flag", yes="flag"),
    _post("triggers.seek", f"{_TRIGGER}/seek", name="text", to="since", token="text"),
    _post("triggers.release", f"{_TRIGGER}/release", name="text"),
    _post("triggers.drop", f"{_TRIGGER}/drop", name="text"),
    _get("triggers.export", f"{_TRIGGER}/export", name="text"),
    _create("triggers.create", "/api/triggers", name="text", **_ROW),
    _post(
        "triggers.draft", "/api/drafts",
        name="text", provider="text", config="any", condition="text", options="object", workflow="any", steps="text",
        yaml="text", replaces="text", events_of="text", limit="count", hours="count", read="flag",
    ),
    _versioned("triggers.show", "GET", _TRIGGER, name="text"),
    _versioned("triggers.replace", "PUT", _TRIGGER, name="text", **_ROW),
    _versioned("triggers.edit", "PATCH", _TRIGGER, name="text", **_ROW),
    _versioned("triggers.delete", "DELETE", _TRIGGER, name="text"),
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
    _list("budget.list", "/api/budget"),
    _list("feeds.list", "/api/feeds"),
    _get("feeds.show", "/api/feeds/{name:path}", name="text"),
    _list(
        "events.list", "/api/events",
        feed="text", trigger="text", key="text", since="since", include="texts", where="filter",
        after="count", before="count", fields="fields",
    ),
    _post(
        "events.replay_range", "/api/events/replay",
        trigger="text", since="since", until="since", dry="flag", replay_id="text",
    ),
    _get("events.show", "/api/events/{id:int}", id="count"),
    _get("events.case", "/api/events/{id:int}/case", id="count", trigger="text"),
    _post("events.forget", "/api/events/forget", subject="text", yes="flag"),
    _post("events.star", "/api/events/{id:int}/star", id="count", trigger="text", note="text"),
    _post("events.unstar", "/api/events/{id:int}/unstar", id="count", trigger="text"),
    _post("events.replay", "/api/events/{id:int}/replay", id="count", trigger="text"),
    _list(
        "runs.list", "/api/runs",
        trigger="text", status="text", workflow="text", since="since", where="filter", fields="fields",
    ),
    _post(
        "bulk.plan", "/api/bulk/plan",
        action="text", where="filter", ids="texts", trigger="text", since="since", agent="text",
    ),
    _get("bulk.show", "/api/bulk/{id}", id="text"),
    _post("bulk.execute", "/api/bulk/{id}/execute", id="text"),
    _post("bulk.undo", "/api/bulk/{id}/undo", id="text"),
    _get("runs.show", "/api/runs/{id}", id="text", cut="count"),
    _post(
        "runs.rerun", "/api/runs/{id}/rerun",
        id="text", input="object", latest="flag", from_step="text", step_input="object",
    ),
    _post("runs.retry", "/api/runs/{id}/retry", id="text", latest="flag"),
    _post("runs.cancel", "/api/runs/{id}/cancel", id="text"),
    _post("runs.approve", "/api/runs/{id}/approve", id="text", approved="flag", comment="text"),
    _list("dead.list", "/api/dead", where="filter", fields="fields"),
    _post("dead.retry_all", "/api/dead/retry", trigger="text", latest="flag", same="flag"),
    _post("dead.retry", "/api/dead/{id}/retry", id="text", latest="flag", same="flag"),
    _post("dead.drop", "/api/dead/{id}/drop", id="text"),
    _get(
        "tickets.list", "/api/tickets",
        tracker="text", project="text", state="text", limit="limit",
    ),
    _get("tickets.show", "/api/tickets/show", ticket="text", tracker="text"),
    _post("tickets.claim", "/api/tickets/claim", ticket="text", tracker="text", pipeline="text"),
    _post("tickets.retry", "/api/tickets/retry", ticket="text", tracker="text"),
    _post("tickets.cancel", "/api/tickets/cancel", ticket="text", tracker="text"),
    _post("tickets.release", "/api/tickets/release", ticket="text", tracker="text"),
    _list("trackers.list", "/api/trackers"),
    _post("trackers.test", "/api/trackers/{name}/test", name="text"),
    _post("trackers.fix", "/api/trackers/{name}/fix", name="text"),
    _post("tickets.adopt", "/api/trackers/{name}/adopt", name="text"),
    _list("webhooks.list", "/api/webhooks"),
    _post("webhooks.curl", "/api/webhooks/curl", id="text", event="count"),
    _list("workflows.list", "/api/workflows"),
    _get("workflows.check", "/api/workflows/check", name="text"),
    _versioned("workflows.source", "GET", _WORKFLOW_SOURCE, name="text"),
    _versioned("workflows.write", "PUT", _WORKFLOW_SOURCE, name="text", text="text", dry_run="flag"),
    _post("workflows.run", "/api/workflows/{name:path}/run", name="text", input="object"),
    _get("workflows.show", "/api/workflows/{name:path}", name="text"),
    _list("integrations.list", "/api/integrations"),
    _get("integrations.show", "/api/integrations/{name}", name="text"),
    _list("services.list", "/api/services"),
    _get("services.show", "/api/services/{kind}", kind="text"),
    _list("event_types.list", "/api/event-types"),
    _post("integrations.test", "/api/integrations/{name}/test", name="text"),
    _post("integrations.whoami", "/api/integrations/{name}/whoami", name="text"),
    _post("integrations.renew", "/api/integrations/{name}/renew", name="text"),
    _get("models.list", "/api/models"),
    _post("models.test", "/api/models/test", name="text"),
    _list("tokens.list", "/api/tokens"),
    Route(
        operation="tokens.create", method="POST", path="/api/tokens", creates=True,
        params={
            "name": "text", "role": "text", "owner": "text", "operations": "texts", "triggers": "texts",
            "expires": "text",
        },
    ),
    _post("tokens.revoke", "/api/tokens/{id}/revoke", id="text"),
    _post("tokens.rotate", "/api/tokens/{id}/rotate", id="text", keep="duration", expires="text"),
    _list("audit.list", "/api/audit", who="text", did="text", what="text", since="since"),
)  # fmt: skip

ROUTES: Mapping[str, Route] = {route.operation: route for route in _TABLE}
