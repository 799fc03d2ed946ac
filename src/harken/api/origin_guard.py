"""Keep web pages out: a page in a local browser can reach loopback, and must not operate Harken."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from ipaddress import ip_address

from starlette.types import ASGIApp, Receive, Scope, Send

from harken.api import errors
from harken.api.errors import problem

__all__ = ["DATA", "Guard", "hosts_of"]

OURS = frozenset({b"same-origin", b"none"})
_BROWSERS = frozenset({b"origin", b"referer", b"cookie", b"content-type", b"x-forwarded-for", b"forwarded"})
DATA = ("/api", "/admin", "/health", "/mcp", "/metrics", "/webhooks")
"""Everything below these paths is no page."""
_ONCE = frozenset({b"origin", b"sec-fetch-site", b"content-type"})


def hosts_of(host: str, port: int, extra: Iterable[str] = ()) -> frozenset[str]:
    """The accepted Host headers: loopback names, the bound address, and configured names."""
    bound = {host} if host not in ("0.0.0.0", "::", "") else set()
    named = {f"[{name}]" if ":" in name else name for name in {"127.0.0.1", "localhost", "::1"} | bound}
    return frozenset({f"{name}:{port}".lower() for name in named} | {name.lower() for name in extra})


class Guard:
    """Refuses other hosts (DNS rebinding), other origins, and changes that a plain form could send."""

    def __init__(self, app: ASGIApp, hosts: Collection[str], *, opens_pages: bool = False) -> None:
        self._app = app
        self._opens_pages = opens_pages
        self._hosts = frozenset(host.lower().encode() for host in hosts)
        schemes = (b"http://", b"https://")
        self._origins = frozenset(scheme + host for host in self._hosts for scheme in schemes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is None:
            await self._app(scope, receive, send)
        else:
            answer = errors.error if errors.is_admin(scope["path"]) else problem
            await answer(*refused)(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name == b"host" and name in headers:
                return 421, "the request names two hosts", ""
            if name in _ONCE and name in headers:
                return 403, f"the request has two headers {name.decode()}", "Send one, or none"
            headers[name] = value
        if headers.get(b"host", b"").lower() not in self._hosts:
            return 421, "this server does not answer for that host", "Use the address that `harken status` shows"
        if self._opens_pages and _follows_link(scope, headers):
            return None
        return self._foreign(headers) or _simple(scope, headers)

    def _foreign(self, headers: dict[bytes, bytes]) -> tuple[int, str, str] | None:
        origin = headers.get(b"origin")
        elsewhere = origin is not None and origin.lower() not in self._origins
        if elsewhere or headers.get(b"sec-fetch-site", b"none") not in OURS:
            return 403, "requests from other web pages are refused", "Call the API from a program, not from a page"
        return None


def _follows_link(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether somebody opens one of our pages from elsewhere, as from a chat: it is a file without any data, and what
    it then asks for it asks as our page. What answers with data is not opened that way."""
    path = scope["path"]
    return (
        scope["method"] == "GET"
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest") == b"document"
        and not any(path == prefix or path.startswith(f"{prefix}/") for prefix in DATA)
    )


def _simple(scope: Scope, headers: dict[bytes, bytes]) -> tuple[int, str, str] | None:
    # a form can only POST, and no script of another page can send another method without asking first
    method = scope["method"]
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if method != "POST" or kind == b"application/json" or _is_plain_command(scope, headers):
        return None
    return 415, f"a {method} needs Content-Type: application/json", "Send a JSON object, {} if there is nothing to say"


def _is_plain_command(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether this is `curl -X POST` under /admin from this machine: no body, and nothing that a browser would add.

    A form always sends a Content-Type, and a script's request without a body an Origin.
    """
    if scope["method"] != "POST" or not errors.is_admin(scope["path"]) or not _is_loopback(scope.get("client")):
        return False
    empty = headers.get(b"content-length", b"0").strip() == b"0" and b"transfer-encoding" not in headers
    return empty and not any(name in _BROWSERS or name.startswith(b"sec-") for name in headers)


def _is_loopback(client: tuple[str, int] | None) -> bool:
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False
