"""Talks to the running controller over loopback with the standard library alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from harken.api.routes import ROUTES
from harken.errors import (
    CursorExpired,
    Deferred,
    HarkenError,
    LeaseLost,
    Malformed,
    Misconfigured,
    NeedsAttention,
    NotFound,
    Offline,
    Refused,
    RetryLater,
    StoreBusy,
    StoreUnavailable,
)

__all__ = ["ControllerClient", "Unreachable", "find"]

PATIENCE_SECONDS = 150.0
RECONNECT_SECONDS = 1.0
_ERRORS: Mapping[str, type[HarkenError]] = {
    kind.code: kind
    for kind in (
        CursorExpired, Deferred, LeaseLost, Malformed, Misconfigured, NeedsAttention, NotFound, Offline, Refused,
        RetryLater, StoreBusy, StoreUnavailable,
    )
}  # fmt: skip


class Unreachable(HarkenError):
    """Nobody listens at the controller's address."""

    code = "unreachable"


@dataclass(frozen=True, kw_only=True)
class ControllerClient:
    pid: int
    url: str

    def call(self, operation: str, params: Mapping[str, Any]) -> Any:
        """Do the operation there. Its errors are raised as they were there."""
        route = ROUTES[operation]
        path, beside = route.address(params)
        if route.method == "GET":
            query = urlencode({name: _query(value) for name, value in beside.items()})
            response = self._request("GET", f"{path}?{query}" if query else path)
        else:
            response = self._request("POST", path, json.dumps(beside).encode())
        body = response.read()
        if response.status >= 400:
            raise _error(response.status, body)
        return json.loads(body)

    def tail(self, after: int | None = None) -> Iterator[dict[str, Any]]:
        """Events as they are committed, over every reconnect, until the controller is gone."""
        while is_alive(self.pid):
            headers = {} if after is None else {"Last-Event-ID": str(after)}
            try:
                response = self._request("GET", "/api/events/tail", headers=headers)
                if response.status >= 400:
                    raise _error(response.status, response.read())
                for event in _events(response):
                    after = event["id"]
                    yield event
            except (Unreachable, HTTPException, OSError):
                # a dropped connection; the id we hold makes the next one go on where this ended
                time.sleep(RECONNECT_SECONDS)

    def _request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> HTTPResponse:
        parts = urlsplit(self.url)
        connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=PATIENCE_SECONDS)
        sent = {"Content-Type": "application/json", "Accept": "application/json", **(headers or {})}
        try:
            connection.request(method, path, body, sent)
            return connection.getresponse()
        except (ConnectionRefusedError, ConnectionResetError) as error:
            raise Unreachable(f"nobody answers at {self.url}", fix="Start a controller with: harken start") from error
        except TimeoutError as error:
            message = f"the controller at {self.url} did not answer within {PATIENCE_SECONDS:.0f} s"
            raise RetryLater(message, reason="timeout", fix="See its log, or: harken controller stop") from error


def find(directory: Path) -> ControllerClient | None:
    """The controller that wrote its run file beside the store of this configuration and still lives."""
    from harken.operate.run_file import run_file_of

    path = run_file_of(directory)
    try:
        written = json.loads(path.read_text())
        controller = ControllerClient(pid=int(written["pid"]), url=str(written["url"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path} is damaged", fix="Delete it if no controller is running") from error
    return controller if is_alive(controller.pid) else None


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # it belongs to somebody else, so it lives
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether it has ended, and only its parent has not looked yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    # the name in front of the state is in parentheses and may hold anything
    return fields.rpartition(")")[2].split()[:1] == ["Z"]


def _events(response: HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        if line.startswith(b"data:"):
            yield json.loads(line[5:])


def _query(value: Any) -> str:
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
