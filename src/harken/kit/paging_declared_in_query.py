"""Listings of any API, paged by link, page number, offset or cursor, as the query describes it. All functions are pure.

Listings are not to be trusted: a next link leads back, a page parameter is ignored, `more` is always true. Each of
these ends in an error with a reason, because otherwise the read would never end, or silently stop after a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from pydantic import Field, model_validator
from yarl import URL

from harken.errors import Garbled, NeedsAttention, Refused
from harken.http import Reply
from harken.kit.digest import digest_of
from harken.kit.models import QueryModel
from harken.language.dotted_paths import lookup

__all__ = [
    "ByCursor",
    "ByOffset",
    "ByPage",
    "Paging",
    "PagingCursor",
    "Position",
    "advance",
    "first_position",
    "has_slipped",
    "next_position",
    "page_url",
    "restart",
]

Position: TypeAlias = str | int | None
_MAX_RESTARTS = 3
_MAX_SAME_PAGES = 3


class ByPage(QueryModel):
    param: str = Field("page", description="query parameter that takes the page number")
    start: int = Field(1, ge=0, description="number of the first page")
    size_param: str = Field("", description="query parameter that takes the size of a page")
    size: int = Field(0, ge=0, description="items to ask for per page; 0 leaves it to the server")


class ByOffset(QueryModel):
    param: str = Field("offset", description="query parameter that takes the number of items to skip")
    size_param: str = Field("limit", description="query parameter that takes the size of a page")
    size: int = Field(100, ge=2, description="items to ask for per page")


class ByCursor(QueryModel):
    param: str = Field("cursor", description="query parameter that takes the cursor of the next page")
    path: str = Field("next_cursor", min_length=1, description="dotted path of that cursor in the answer")


class Paging(QueryModel):
    """Exactly one of next, page, offset, cursor."""

    next: str = Field("", description="`link` for the Link header, else the dotted path of the next URL in the answer")
    page: ByPage | None = Field(None, description="pages are numbered")
    offset: ByOffset | None = Field(None, description="pages start at an offset")
    cursor: ByCursor | None = Field(None, description="each page names the cursor of the next")
    more: str = Field("", description="dotted path of a flag that says whether another page follows (page, offset)")
    max_pages: int = Field(1000, ge=1, description="a longer listing is taken for one that never ends")

    @model_validator(mode="after")
    def _check_one_way(self) -> Paging:
        if sum(map(bool, (self.next, self.page, self.offset, self.cursor))) != 1:
            raise ValueError("name exactly one of next, page, offset, cursor")
        return self

    @property
    def is_numbered(self) -> bool:
        return bool(self.page or self.offset)

    @property
    def is_in_body(self) -> bool:
        """Whether the body of a page tells how it continues, so that the same body continues in the same way."""
        return bool(self.more or self.cursor or (self.next and self.next != "link"))


class PagingCursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`of` is the fingerprint of the query: a position in another listing means nothing.

    `etag`, `last_modified` and `digest` belong to the last complete read, and are kept only if it was a single page.
    `since` is fixed when a read begins, because its first page moves the engine's; `asked` is the engine's then.
    """

    of: str
    etag: str | None = None
    last_modified: str | None = None
    digest: str = ""
    at: Position = None
    pages: int = 0
    since: datetime | None = None
    asked: datetime | None = None
    last_id: str = ""
    shown: str = ""
    same: int = 0
    mark: str = ""
    restarts: int = 0
    partial: bool = False


def first_position(paging: Paging | None) -> Position:
    """Return the position of the first page."""
    if paging and paging.page:
        return paging.page.start
    return 0 if paging and paging.offset else None


def page_url(paging: Paging | None, url: str, at: Position) -> str | URL:
    """Return the URL of the page at this position."""
    if paging is None or at is None:
        # as it is: the client remembers what it parsed
        return url
    if paging.next:
        return str(at)
    target = URL(url)
    if paging.cursor:
        return target.update_query({paging.cursor.param: str(at)})
    sized = paging.page or paging.offset
    assert sized is not None
    size = {sized.size_param: str(sized.size)} if sized.size_param and sized.size else {}
    return target.update_query({sized.param: str(at), **size})


def next_position(
    paging: Paging | None, reply: Reply, document: Any, cursor: PagingCursor, ids: Sequence[str]
) -> Position:
    """Return the position of the next page; None at the end.

    Numbered pages and offsets end with a page that shows nothing new. A short page is no proof: servers cap the size.
    """
    if paging is None:
        return None
    if paging.next:
        return reply.link("next") if paging.next == "link" else _next_url(reply, lookup(document, paging.next))
    if paging.cursor:
        token = lookup(document, paging.cursor.path)
        return str(token) if isinstance(token, str | int) and not isinstance(token, bool) and token != "" else None
    if paging.more and not lookup(document, paging.more):
        return None
    if not paging.more and (not ids or all(id == cursor.last_id for id in ids)):
        return None
    at = cursor.at if isinstance(cursor.at, int) else 0
    # offsets overlap by an item: if it is missing on the next page, one before it was deleted and others were skipped
    return at + (1 if paging.page else max(len(ids) - 1, 1 if ids else 0))


def advance(cursor: PagingCursor, paging: Paging, to: Position, ids: Sequence[str], whose: str) -> PagingCursor:
    """Return the cursor at the next page. Raise NeedsAttention when the listing goes in circles."""
    shown = digest_of("\0".join(ids).encode()) if ids else ""
    same = cursor.same + 1 if shown and shown == cursor.shown else 0
    # new items can push a whole page down once or twice; an ignored parameter repeats the page for ever
    if same >= _MAX_SAME_PAGES:
        raise NeedsAttention(
            f"{whose} shows the same page again and again", fix="Check `paging`: it seems to be ignored"
        )
    position_digest = digest_of(str(to).encode())
    if to == cursor.at or position_digest == cursor.mark:
        raise NeedsAttention(f"{whose} continues with a page that was read already", fix="Check `paging`")
    pages = cursor.pages + 1
    return msgspec.structs.replace(
        cursor,
        etag=None,
        last_modified=None,
        digest="",
        at=to,
        pages=pages,
        last_id=ids[-1] if paging.offset and len(ids) > 1 else "",
        shown=shown,
        same=same,
        # remembering the position at every power of two finds any circle, in constant space (Brent)
        mark=position_digest if pages & (pages - 1) == 0 else cursor.mark,
    )


def has_slipped(cursor: PagingCursor, ids: Sequence[str]) -> bool:
    """Whether items may have moved over the border of a page: the item that both pages should show is missing."""
    return bool(cursor.last_id) and cursor.last_id not in ids


def restart(cursor: PagingCursor, paging: Paging) -> PagingCursor | None:
    """Return the beginning of the listing; None when it was restarted often enough and the read stays partial."""
    if cursor.restarts >= _MAX_RESTARTS:
        return None
    again = cursor.restarts + 1
    return PagingCursor(of=cursor.of, at=first_position(paging), since=cursor.since, asked=cursor.asked, restarts=again)


def _next_url(reply: Reply, value: Any) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        url = reply.url.join(URL(value))
        same = url.origin() == reply.url.origin()
    except ValueError:
        raise Garbled(f"{reply.url.host} names a next page that is not a URL", fix="Check paging.next") from None
    if not same:
        raise Refused(f"{reply.url.host} continues its list on another origin, where no token may go")
    return str(url)
