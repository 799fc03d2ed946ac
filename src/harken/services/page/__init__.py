"""A page that changes: its text, what a CSS selector finds on it, or a value in its JSON. The event has the difference.

There is one subject, the page; its state is a digest of the text, so that going back to an old text is a change too.
The cursor keeps the last text, because the difference needs both.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec
from pydantic import Field, SecretStr, field_validator, model_validator
from yarl import URL

from harken.errors import Garbled, HarkenError, RetryLater
from harken.event import Event
from harken.http import Reply, raise_for
from harken.kit import QueryModel, dump_cursor, load_cursor
from harken.kit.conditional import WebAddress, expect_answer, host_of, validators_of
from harken.kit.digest import digest_of, digest_of_json
from harken.kit.values_from_payload import rfc3339
from harken.services.page.diff import Change, change_of, shorten
from harken.services.page.text import PageText, Part, check_selector, extract_text, remove_matches
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["KEPT", "LARGEST", "Page", "Query", "plugin"]

P = ParamSpec("P")
T = TypeVar("T")

LARGEST = 8_000_000
KEPT = 65_536
"""Characters of the last text that the cursor keeps; a change beyond them is noticed, but the difference is unknown."""
_INLINE = 20_000
_LONGEST_PATTERN, _MOST_PATTERNS = 500, 20
FIELDS = frozenset({"url", "title", "old", "new", "diff", "added", "removed", "changed_at"})
_SECRET_NAME = re.compile(r"auth|key|passw|secret|sig|token", re.IGNORECASE)


class Query(QueryModel):
    """Which page, which part of it, and what does not count."""

    url: WebAddress = Field(description="address of the page (http or https)")
    selector: str = Field("", description="CSS selector of the part that counts; empty: all text of the page")
    json_path: str = Field("", description="instead of a selector: dotted path of a value in a JSON answer")
    attribute: str = Field("", description="an attribute of what the selector finds counts, instead of its text")
    ignore: tuple[str, ...] = Field((), description="regular expressions of what does not count, such as times")
    missing: Literal["fail", "empty"] = Field(
        "fail", description="when the part is not there: fail visibly, or take it for an empty text"
    )
    headers: dict[str, SecretStr] = Field(default_factory=dict, description="headers to send; never shown again")
    allow_private_networks: bool = Field(False, description="allow addresses in private networks")

    @field_validator("selector")
    @classmethod
    def _valid_selector(cls, value: str) -> str:
        check_selector(value)
        return value

    @field_validator("ignore")
    @classmethod
    def _valid_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > _MOST_PATTERNS or any(not 0 < len(pattern) <= _LONGEST_PATTERN for pattern in value):
            raise ValueError(f"at most {_MOST_PATTERNS} expressions of 1 to {_LONGEST_PATTERN} characters")
        for pattern in value:
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Query:
        if self.selector and self.json_path:
            raise ValueError("name a selector or a json_path, not both")
        if self.attribute and not self.selector:
            raise ValueError("an attribute needs a selector")
        return self

    def fingerprint(self) -> str:
        """Changes when the query selects another text. Headers do not count: they hold tokens, which rotate."""
        return digest_of_json(self.model_dump(mode="json", exclude={"headers", "allow_private_networks"}))


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The page at the last read: the beginning of its text, and digests of the text (`mark`) and of the body."""

    of: str
    etag: str | None = None
    last_modified: str | None = None
    body: str = ""
    mark: str = ""
    text: str = ""


class Page:
    def __init__(self, query: Query, host: Host) -> None:
        self._query = query
        self._host = host
        self._of = query.fingerprint()
        self._public_address = _public_address(query.url)
        self._server = host_of(query.url)
        self._part = Part(selector=query.selector, json_path=query.json_path, attribute=query.attribute)
        self._headers = {name: value.get_secret_value() for name, value in query.headers.items()}

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        before = self._place(cursor)
        reply = await self._fetch(before)
        raise_for(reply)
        if reply.not_modified or (before and before.body == digest_of(reply.body)):
            return Batch(cursor=cursor, unchanged=True)
        page = await self._extract(reply, worked=before is not None)
        now = self._snapshot(reply, page)
        if before is None and cursor is not None:
            # the query was edited: that it finds another text does not mean that the page changed
            return Batch(cursor=dump_cursor(now), unchanged=True)
        if before and before.mark == now.mark:
            return Batch(cursor=dump_cursor(now), unchanged=True)
        change = await _in_thread_if_large(len(now.text), change_of, before.text if before else None, now.text)
        return Batch(events=[self._event(change, page, now)], cursor=dump_cursor(now))

    def _place(self, cursor: Cursor) -> Place | None:
        return load_cursor(cursor, Place, of=self._of)

    async def _fetch(self, before: Place | None) -> Reply:
        conditional = validators_of(before.etag, before.last_modified) if before else None
        reply = await self._host.request(
            "GET",
            self._query.url,
            headers={"Accept": "text/html, application/json;q=0.9, */*;q=0.5", **self._headers},
            conditional=conditional,
            max_bytes=LARGEST,
            allow_private=self._query.allow_private_networks or self._host.allow_private,
        )
        expect_answer(reply, conditional, self._server)
        return reply

    async def _extract(self, reply: Reply, *, worked: bool) -> PageText:
        page = await _in_thread_if_large(len(reply.body), extract_text, reply, self._part)
        if page.text is None and self._query.missing == "fail":
            raise self._missing_error(worked)
        text = page.text or ""
        return msgspec.structs.replace(page, text=await remove_matches(text, self._query.ignore))

    def _missing_error(self, worked: bool) -> HarkenError:
        query = self._query
        name = "selector" if query.selector else "json_path" if query.json_path else ""
        what = f"nothing on the page of {self._server} is at the {name}" if name else f"{self._server} shows no text"
        if worked:
            # maintenance, a login page, a new design: it may come back, and if not, the circuit breaker pauses the feed
            return RetryLater(f"{what}, where something was before", fix=f"If this persists, correct {name or 'url'}")
        built = "; what scripts build in a browser is not seen" if not query.json_path else ""
        return Garbled(what + built, fix=f"Correct {name or 'url'}, or set missing: empty if that is usual")

    def _snapshot(self, reply: Reply, page: PageText) -> Place:
        got, text = reply.validators, page.text or ""
        return Place(
            of=self._of,
            etag=got.etag,
            last_modified=got.last_modified,
            body=digest_of(reply.body),
            mark=digest_of(f"{self._of}\n{text}".encode("utf-8", "surrogatepass")),
            text=text[:KEPT],
        )

    def _event(self, change: Change, page: PageText, now: Place) -> Event:
        data: dict[str, Any] = {
            "url": self._public_address,
            "title": page.title,
            "old": None if change.old is None else shorten(change.old),
            "new": shorten(change.new),
            "diff": change.diff,
            "added": change.added,
            "removed": change.removed,
            "changed_at": rfc3339(self._host.clock.now()),
        }
        return Event(subject=self._public_address, type="page.changed", state=now.mark, data=data)


async def _in_thread_if_large(size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run in a thread if `size` is large, so that the event loop is not blocked."""
    return work(*args, **kwargs) if size <= _INLINE else await asyncio.to_thread(work, *args, **kwargs)


def _public_address(address: str) -> str:
    """The address without the password and without values of parameters whose names suggest a secret."""
    url = URL(address).with_user(None).with_fragment(None)
    hidden = [(name, "***" if _SECRET_NAME.search(name) else value) for name, value in url.query.items()]
    return str(url.with_query(hidden)) if any(value == "***" for _, value in hidden) else str(url)


plugin = Plugin(
    kind="page",
    summary="A web page, or a part of it, that changes",
    docs="reference/services/page.md",
    query=Query,
    source=lambda query, account, host: Page(query, host),
    identity="transition",
    delivery=lambda query, integration: Delivery(template="{url} changed\n{diff}", fields=FIELDS),
    extra=lambda query, account: "" if query.json_path else "page",
)
