"""A client of the HTTP API in plain Python: typed, synchronous, and with the standard library alone.

from harken.client import Client

harken = Client("http://127.0.0.1:9091")
for run in harken.runs(status="failed"):
    print(run["id"], run["error"])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from socket import gaierror
from ssl import SSLError
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode, urlsplit

from harken import errors
from harken.api.routes import ROUTES, Route
from harken.errors import HarkenError, RetryLater

if TYPE_CHECKING:
    from harken.api import response_types

__all__ = ["Client", "Unreachable"]

PATIENCE_SECONDS = 150.0
LARGEST_PAGE = 500
# a class that takes over the code of another has details that no answer carries
_ERRORS: Mapping[str, type[HarkenError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, HarkenError) and "code" in vars(kind)
}


class Unreachable(HarkenError):
    """Nobody listens at the controller's address."""

    code = "unreachable"


class Client:
    """Calls operations by name, or by a method with types. Errors are raised as they were there.

    Of a list without a `limit` every page is read. `token` is sent as a bearer token.
    """

    def __init__(self, url: str, *, token: str = "", patience: float = PATIENCE_SECONDS) -> None:
        self.url = url
        self._token = token
        self._patience = patience

    def call(self, operation: str, params: Mapping[str, Any] | None = None, *, key: str = "", match: str = "") -> Any:
        """Do the operation there. `key` is its Idempotency-Key, `match` the ETag of what it changes."""
        route, given = ROUTES[operation], dict(params or {})
        match = match or str(given.get("match", ""))
        if not route.pages or "limit" in given:
            return self._call(route, given, key, match)
        whole = self._call(route, {**given, "limit": LARGEST_PAGE}, key, match)
        page = whole
        while page["next"] is not None:
            page = self._call(route, {**given, "limit": LARGEST_PAGE, "cursor": page["next"]}, key, match)
            whole["items"] += page["items"]
        return {**whole, "next": None}

    def pages(self, operation: str, **params: Any) -> Iterator[Any]:
        """The items of a list, page by page as they are read."""
        given = {name: value for name, value in params.items() if value not in (None, "")}
        cursor: dict[str, str] = {}
        while True:
            page = self.call(operation, {"limit": LARGEST_PAGE, **given, **cursor})
            yield from page["items"]
            if page["next"] is None:
                return
            cursor = {"cursor": page["next"]}

    def me(self) -> response_types.Me:
        return cast("response_types.Me", self.call("me"))

    def activity(self, since: str = "30m") -> response_types.Activity:
        return cast("response_types.Activity", self.call("activity", {"since": since}))

    def status(self) -> response_types.Status:
        return cast("response_types.Status", self.call("status"))

    def triggers(self, *, type: str = "") -> Iterator[response_types.Trigger]:
        return self.pages("triggers.list", type=type)

    def trigger(self, name: str) -> response_types.TriggerDetail:
        return cast("response_types.TriggerDetail", self.call("triggers.show", {"name": name}))

    def pause(self, name: str, reason: str = "") -> response_types.Trigger:
        return cast("response_types.Trigger", self.call("triggers.pause", {"name": name, "reason": reason}))

    def resume(self, name: str) -> response_types.Trigger:
        return cast("response_types.Trigger", self.call("triggers.resume", {"name": name}))

    def seek(self, name: str, to: str, *, token: str = "") -> response_types.Seek:
        """What moving the trigger to a time would do; with the token of that answer, do exactly that."""
        return cast("response_types.Seek", self.call("triggers.seek", {"name": name, "to": to, "token": token}))

    def explain(self, name: str, key: str = "") -> response_types.Explanation:
        return cast("response_types.Explanation", self.call("triggers.explain", {"name": name, "key": key}))

    def feeds(self) -> Iterator[response_types.Feed]:
        return self.pages("feeds.list")

    def events(
        self, *, feed: str = "", trigger: str = "", key: str = "", since: str = "", data: bool = False
    ) -> Iterator[response_types.Event]:
        include = ["data"] if data else None
        return self.pages("events.list", feed=feed, trigger=trigger, key=key, since=since, include=include)

    def event(self, id: int) -> response_types.Event:
        return cast("response_types.Event", self.call("events.show", {"id": id}))

    def bank(self, trigger: str, *, limit: int = 10) -> response_types.EventBank:
        """The last events of the trigger that fired, were filtered or failed, and its starred ones."""
        return cast("response_types.EventBank", self.call("triggers.bank", {"name": trigger, "limit": limit}))

    def star(self, id: int, *, trigger: str = "", note: str = "") -> response_types.Star:
        """Keep the event for good."""
        return cast("response_types.Star", self.call("events.star", {"id": id, "trigger": trigger, "note": note}))

    def unstar(self, id: int) -> response_types.Star:
        return cast("response_types.Star", self.call("events.unstar", {"id": id}))

    def replay(self, id: int, *, trigger: str = "", key: str = "") -> response_types.Replayed:
        given = {"id": id, **({"trigger": trigger} if trigger else {})}
        return cast("response_types.Replayed", self.call("events.replay", given, key=key))

    def runs(
        self, *, trigger: str = "", status: str = "", workflow: str = "", since: str = ""
    ) -> Iterator[response_types.Run]:
        return self.pages("runs.list", trigger=trigger, status=status, workflow=workflow, since=since)

    def run(self, id: str) -> response_types.RunDetail:
        return cast("response_types.RunDetail", self.call("runs.show", {"id": id}))

    def retry(self, id: str, *, latest: bool = False, key: str = "") -> response_types.Run:
        return cast("response_types.Run", self.call("runs.retry", {"id": id, "latest": latest}, key=key))

    def rerun(
        self,
        id: str,
        *,
        input: Mapping[str, Any] | None = None,
        latest: bool = False,
        from_step: str = "",
        step_input: Mapping[str, Any] | None = None,
        key: str = "",
    ) -> response_types.Rerun:
        """Start a new run in the place of this one, from its first step or from the one that is named."""
        given: dict[str, Any] = {"id": id, "latest": latest, "from_step": from_step}
        given |= {name: dict(value) for name, value in (("input", input), ("step_input", step_input)) if value}
        return cast("response_types.Rerun", self.call("runs.rerun", given, key=key))

    def cancel(self, id: str) -> response_types.Run:
        return cast("response_types.Run", self.call("runs.cancel", {"id": id}))

    def dead(self) -> Iterator[response_types.DeadLetter]:
        return self.pages("dead.list")

    def workflows(self) -> Iterator[response_types.Workflow]:
        return self.pages("workflows.list")

    def start(
        self, workflow: str, input: Mapping[str, Any] | None = None, *, key: str = ""
    ) -> response_types.StartedRun:
        given = {"name": workflow, "input": dict(input or {})}
        return cast("response_types.StartedRun", self.call("workflows.run", given, key=key))

    def tail(self, after: int | None = None) -> Iterator[response_types.Event]:
        """Events as they are committed, after this id or from now on, until the connection ends."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        for event in self._stream("/api/events/tail", headers):
            yield cast("response_types.Event", event)

    def tail_runs(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Runs as they move, each with its `position`, after this one or from now on, until the connection ends."""
        yield from self._stream("/api/runs/tail", {} if after is None else {"Last-Event-ID": str(after)})

    def services(self) -> Iterator[response_types.Service]:
        return self.pages("services.list")

    def service(self, kind: str) -> response_types.ServiceDetail:
        return cast("response_types.ServiceDetail", self.call("services.show", {"kind": kind}))

    def workflow(self, name: str) -> response_types.WorkflowDetail:
        return cast("response_types.WorkflowDetail", self.call("workflows.show", {"name": name}))

    def workflow_source(self, name: str) -> response_types.WorkflowSource:
        """The file of the workflow as it is written."""
        return cast("response_types.WorkflowSource", self.call("workflows.source", {"name": name}))

    def write_workflow(
        self, name: str, revision: str, text: str, *, dry_run: bool = False
    ) -> response_types.WrittenWorkflow:
        """Replace the file of the version that was read. Raises Outdated if somebody changed it since."""
        given = {"name": name, "text": text, "dry_run": dry_run}
        return cast("response_types.WrittenWorkflow", self.call("workflows.write", given, match=f'"{revision}"'))

    def create_trigger(self, row: Mapping[str, Any], *, key: str = "") -> response_types.TriggerRow:
        """Make a trigger of these fields: name, provider, config, condition, options, workflow, enabled."""
        return cast("response_types.TriggerRow", self.call("triggers.create", row, key=key))

    def draft_trigger(self, row: Mapping[str, Any], *, read: bool = False, hours: int = 0) -> response_types.Draft:
        """What a trigger of these fields, or of `yaml`, would be and do; nothing is stored. With `read`, its service is
        read if no event of it is stored."""
        return cast("response_types.Draft", self.call("triggers.draft", {**row, "read": read, "hours": hours}))

    def edit_trigger(self, name: str, revision: str, changes: Mapping[str, Any]) -> response_types.TriggerRow:
        """Change these fields of the version that was read. Raises Outdated if somebody changed it since."""
        answer = self.call("triggers.edit", {"name": name, **changes}, match=f'"{revision}"')
        return cast("response_types.TriggerRow", answer)

    def delete_trigger(self, name: str, revision: str) -> response_types.Deleted:
        return cast("response_types.Deleted", self.call("triggers.delete", {"name": name}, match=f'"{revision}"'))

    def _stream(self, path: str, headers: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        response = self._request("GET", path, headers=headers)
        if response.status >= 400:
            raise _error(response.status, response.read())
        for line in response:
            if line.startswith(b"data:"):
                yield json.loads(line[5:])

    def _call(self, route: Route, params: Mapping[str, Any], key: str, match: str) -> Any:
        path, beside = route.address(params)
        headers = {name: value for name, value in (("Idempotency-Key", key), ("If-Match", match)) if value}
        if route.in_query:
            query = urlencode({name: _query(value) for name, value in beside.items()})
            response = self._request(route.method, f"{path}?{query}" if query else path, headers=headers)
        else:
            response = self._request(route.method, path, json.dumps(beside).encode(), headers)
        body = response.read()
        if response.status >= 400:
            raise _error(response.status, body)
        return json.loads(body)

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HTTPResponse:
        parts = urlsplit(self.url)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "127.0.0.1", parts.port, timeout=self._patience)
        sent = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, f"{parts.path.rstrip('/')}{path}", body, sent)
            return connection.getresponse()
        except (ConnectionRefusedError, ConnectionResetError, gaierror, SSLError) as error:
            raise Unreachable(f"nobody answers at {self.url}", fix="Start a controller with: harken start") from error
        except TimeoutError as error:
            message = f"the controller at {self.url} did not answer within {self._patience:.0f} s"
            raise RetryLater(message, reason="timeout", fix="See its log, or: harken controller stop") from error


def _query(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(status: int, body: bytes) -> HarkenError:
    try:
        problem = json.loads(body)
        kind = _ERRORS.get(problem.get("code"), HarkenError)
        said = problem["error"] if "error" in problem else problem["detail"]
        error = kind(str(said), fix=str(problem.get("fix", "")))
        if isinstance(error, RetryLater) and "wait_seconds" in problem:
            error.after = float(problem["wait_seconds"])
        return error
    except (ValueError, KeyError, AttributeError):
        return HarkenError(f"the controller answered {status}", fix="Is something else listening on its port?")
