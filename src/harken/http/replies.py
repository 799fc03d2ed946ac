"""A response: decode its body, read its headers, and raise the error that its status means."""

from __future__ import annotations

import codecs
import json
import re
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from harken.errors import CursorExpired, NeedsAttention, Refused, RetryLater
from harken.http.guard import server_name
from harken.outgoing_rate_limit import is_rate_limited, requested_wait

__all__ = ["Reply", "Validators", "mended", "raise_for"]

_LONE = re.compile("[\ud800-\udfff]")
_LARGEST = 4_000_000
SETTLED_SECONDS = 2.0
_LINK = re.compile(r'<([^<>]*)>((?:\s*;\s*[\w*-]+\s*(?:=\s*(?:"[^"]*"|[^\s",;]*))?)*)')
_REL = re.compile(r';\s*rel\s*=\s*(?:"([^"]*)"|([^\s",;]+))', re.IGNORECASE)
_CHARSET = re.compile(r'charset\s*=\s*["\']?([\w.:-]+)', re.IGNORECASE)
_DECLARED = re.compile(rb'(?:charset|encoding)\s*=\s*["\']?([\w.:-]+)', re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LONGEST_PATH = 200
# may be a token: hidden, even if it is only an id
_OPAQUE = re.compile(r"(?=[^/]*\d)(?=[^/]*[A-Za-z])[^/]{20,}|[^/]{40,}")


class Validators(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Headers that make the next request conditional. Store them with the cursor of the same read."""

    etag: str | None = None
    last_modified: str | None = None


class Reply:
    """A complete response, whatever its status. `at` is the wall time when it came."""

    __slots__ = ("at", "body", "headers", "method", "sent", "status", "url")

    def __init__(
        self,
        method: str,
        url: URL,
        status: int,
        headers: CIMultiDictProxy[str],
        body: bytes,
        at: float,
        sent: Validators | None = None,
    ) -> None:
        self.method = method
        self.url = url
        self.status = status
        self.headers = headers
        self.body = body
        self.at = at
        self.sent = sent

    def __repr__(self) -> str:
        return f"<Reply {self.status} to {self.method} {shown_path(self.url)} from {server_name(self.url)}>"

    @property
    def not_modified(self) -> bool:
        return self.status == 304

    @property
    def validators(self) -> Validators:
        """What to send next time. A 304 without validators keeps those that were sent."""
        etag, modified = self.headers.get("ETag"), self._settled_date()
        if self.status == 304 and self.sent is not None:
            return Validators(etag=etag or self.sent.etag, last_modified=modified or self.sent.last_modified)
        return Validators(etag=etag, last_modified=modified)

    def _settled_date(self) -> str | None:
        """Return Last-Modified, unless it is so recent that another change could have the same second."""
        modified = self.headers.get("Last-Modified")
        if modified is None:
            return None
        changed, answered = _http_date(modified), _http_date(self.headers.get("Date", "")) or self.at
        return modified if changed is None or answered - changed >= SETTLED_SECONDS else None

    def json(self) -> Any:
        """Decode the body. Raise RetryLater if it is not JSON, such as the error page of a gateway."""
        return self.decoded(self.body.removeprefix(codecs.BOM_UTF8))

    def decoded(self, part: bytes) -> Any:
        """Decode a part of the body, as `json` does."""
        try:
            try:
                return msgspec.json.decode(part)
            except msgspec.DecodeError:
                return mended(part)
        except (ValueError, RecursionError):
            raise self.not_json() from None

    def not_json(self) -> RetryLater:
        """The error of a body that is not JSON."""
        kind = self.headers.get("Content-Type", "no content type").partition(";")[0][:60]
        what = f"({kind}, {len(self.body):,} bytes)"
        return RetryLater(f"{server_name(self.url)} answered with something that is not JSON {what}")

    def text(self) -> str:
        """Decode by byte order mark, header, the body's own declaration or UTF-8, in this order; never fails."""
        for mark, encoding in _BOMS:
            if self.body.startswith(mark):
                return self.body[len(mark) :].decode(encoding, "replace")
        for charset in (*_named_charsets(self.headers.get("Content-Type", ""), self.body), "utf-8"):
            try:
                return self.body.decode(charset)
            except (LookupError, UnicodeError):
                continue
        return self.body.decode("cp1252", "replace")

    def link(self, rel: str) -> str | None:
        """Return the URL of the Link header for `rel`. Raise Refused for another origin: no token may go there."""
        for target, parameters in _LINK.findall(", ".join(self.headers.getall("Link", ()))):
            found = _REL.search(parameters)
            if found and rel.lower() in (found[1] or found[2]).lower().split():
                return self._on_this_origin(target)
        return None

    def _on_this_origin(self, target: str) -> str:
        try:
            url = self.url.join(URL(target))
            same = url.origin() == self.url.origin()
        except ValueError:
            raise RetryLater(f"{server_name(self.url)} sent a Link header that is not a URL") from None
        if not same:
            raise Refused(
                f"{server_name(self.url)} continues its list on another origin, {url.scheme}://{server_name(url)}"
            )
        return str(url)


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None


def _named_charsets(content_type: str, body: bytes) -> list[str]:
    header, declared = _CHARSET.search(content_type), _DECLARED.search(body[:1024])
    return [*([header[1]] if header else ()), *([declared[1].decode("ascii", "replace")] if declared else ())]


def shown_path(url: URL) -> str:
    """Return the path for a message: no query, nothing that looks like a token, at most 200 characters."""
    path = "/".join("…" if _OPAQUE.fullmatch(part) else part for part in url.raw_path.split("/"))
    return path if len(path) <= _LONGEST_PATH else path[: _LONGEST_PATH - 1] + "…"


def raise_for(reply: Reply, what: str = "", *, fix: str = "", gone_means_expired: bool = False) -> None:
    """Return if the response is a success or a 304; otherwise raise the error that its status means.

    `what` replaces "GET /path" in the message, `fix` the advice when a person has to act.
    """
    status = reply.status
    if status < 300 or status == 304:
        return
    message = f"{server_name(reply.url)} answered {status} to {what or f'{reply.method} {shown_path(reply.url)}'}"
    after = requested_wait(status, reply.headers, reply.at)
    if is_rate_limited(status, reply.headers):
        raise RetryLater(message, after=after, reason="rate_limited")
    if status >= 500 or status == 425:
        raise RetryLater(message, after=after)
    if status == 408:
        raise RetryLater(message, after=after, reason="timeout")
    if status == 410 and gone_means_expired:
        raise CursorExpired(message, fix=fix)
    raise NeedsAttention(message, fix=fix or _advice(status))


def _advice(status: int) -> str:
    if status in (401, 403):
        return "Check the credential and its scopes"
    if status in (404, 410):
        return "Check the address and that the credential may see what is there"
    if status == 407:
        return "Check the credentials of http.proxy"
    return "Check the address and the parameters" if status >= 400 else "Use the address it redirects to"


def mended(body: bytes) -> Any:
    """Decode an object or array that is not quite JSON: NaN and infinities become null, lone surrogates U+FFFD.

    Raises ValueError or RecursionError for anything else, and for more than 4 MB.
    """
    if len(body) > _LARGEST:
        raise ValueError("too large for a second attempt")
    value = json.loads(body)
    if not isinstance(value, dict | list):
        raise ValueError("a plain value that is not JSON")
    whole = _LONE.sub("\ufffd", json.dumps(value, ensure_ascii=False))
    return json.loads(whole, parse_constant=lambda name: None)
