"""Follow redirects: the next request, without headers that may hold a token when it goes to another server."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from yarl import URL

from harken.errors import Refused, RetryLater
from harken.http.guard import server_name

__all__ = ["REDIRECTS", "Hop", "next_hop", "same_server"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})
# any other header may hold a secret
_SAFE_HEADERS = frozenset(
    {"accept", "accept-language", "user-agent", "if-none-match", "if-modified-since", "last-event-id"}
)
_BODY_HEADERS = frozenset({"content-type", "content-length", "content-encoding", "transfer-encoding"})


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a chain of redirects."""

    method: str
    url: URL
    headers: Mapping[str, str]
    data: object = None


def next_hop(hop: Hop, status: int, location: str) -> Hop:
    """Return the request that a redirect asks for, or raise Refused where following it would be unsafe."""
    url = _join(hop.url, location)
    if hop.url.scheme == "https" and url.scheme == "http":
        raise Refused(
            f"{server_name(hop.url)} redirects from https to http on {server_name(url)}, which is not followed"
        )
    method, headers, data = hop.method, hop.headers, hop.data
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, data = "GET", None
        headers = {name: value for name, value in headers.items() if name.lower() not in _BODY_HEADERS}
    if not same_server(hop.url, url):
        if data is not None:
            raise Refused(
                f"{server_name(hop.url)} redirects a {method} with its body to another host, {server_name(url)}"
            )
        headers = {name: value for name, value in headers.items() if name.lower() in _SAFE_HEADERS}
    return Hop(method=method, url=url, headers=headers, data=data)


def _join(base: URL, location: str) -> URL:
    try:
        url = base.join(URL(location))
        # a user name in the Location header would be sent as Basic auth
        return url.with_user(None) if url.raw_user is not None and url.host else url
    except ValueError:
        raise RetryLater(f"{server_name(base)} redirects to something that is not a URL") from None


def same_server(before: URL, after: URL) -> bool:
    """Whether both URLs have the same scheme, host and port, or differ by an upgrade from http to https."""
    if before.raw_host != after.raw_host:
        return False
    upgraded = (before.scheme, before.port, after.scheme, after.port) == ("http", 80, "https", 443)
    return upgraded or (before.scheme, before.port) == (after.scheme, after.port)
