"""Where a redirect leads and what may go along: decided hop by hop, so that a token never follows to another origin."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from yarl import URL

from harken.errors import Refused, RetryLater
from harken.http.guard import place

__all__ = ["REDIRECTS", "Hop", "next_hop", "same_party"]

REDIRECTS = frozenset({301, 302, 303, 307, 308})
# everything else that a caller sets may be a secret, under whatever name
_TRAVELS = frozenset({"accept", "accept-language", "user-agent", "if-none-match", "if-modified-since"})
_ABOUT_THE_BODY = frozenset({"content-type", "content-length", "content-encoding", "transfer-encoding"})


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One request on the way."""

    method: str
    url: URL
    headers: Mapping[str, str]
    data: object = None


def next_hop(hop: Hop, status: int, location: str) -> Hop:
    """Return the request that a redirect asks for, or raise Refused where following it would be unsafe."""
    url = _joined(hop.url, location)
    if hop.url.scheme == "https" and url.scheme == "http":
        raise Refused(f"{place(hop.url)} redirects from https to http on {place(url)}, which is not followed")
    method, headers, data = hop.method, hop.headers, hop.data
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, data = "GET", None
        headers = {name: value for name, value in headers.items() if name.lower() not in _ABOUT_THE_BODY}
    if not same_party(hop.url, url):
        if data is not None:
            raise Refused(f"{place(hop.url)} redirects a {method} with its body to another host, {place(url)}")
        headers = {name: value for name, value in headers.items() if name.lower() in _TRAVELS}
    return Hop(method=method, url=url, headers=headers, data=data)


def _joined(base: URL, location: str) -> URL:
    try:
        url = base.join(URL(location))
        # a user name planted by the other side would be sent as Basic auth
        return url.with_user(None) if url.raw_user is not None and url.host else url
    except ValueError:
        raise RetryLater(f"{place(base)} redirects to something that is not a URL") from None


def same_party(before: URL, after: URL) -> bool:
    """Tell whether both lead to the same server; going from http to https on the usual ports counts as staying."""
    if before.raw_host != after.raw_host:
        return False
    upgraded = (before.scheme, before.port, after.scheme, after.port) == ("http", 80, "https", 443)
    return upgraded or (before.scheme, before.port) == (after.scheme, after.port)
