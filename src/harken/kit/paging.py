"""How listings continue. Pure: where a read stands is a value, and each page decides where the next one is.

Listings lie: a next link leads back, a page parameter is ignored, `more` is always true. Each of these ends in an
error with a reason, because the alternative is a read that never ends or one that silently stops after a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator
from yarl import URL

from harken.errors import NeedsAttention, Refused
from harken.http import Reply
from harken.kit.digest import digest_of
from harken.language.paths import lookup

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
_RESTARTS = 3
_SAME_PAGES = 3


class ByPage(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    param: str = Field("page", description="query parameter that takes the page number")
    start: int = Field(1, ge=0, description="number of the first page")
    size_param: str = Field("", description="query parameter that takes the size of a page")
    size: int = Field(0, ge=0, description="items to ask for per page; 0 leaves it to the server")


class ByOffset(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    param: str = Field("offset", description="query parameter that takes the number of items to skip")
    size_param: str = Field("limit", description="query parameter that takes the size of a page")
    size: int = Field(100, ge=2, description="items to ask for per page")


class ByCursor(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    param: str = Field("cursor", description="query parameter that takes the cursor of the next page")
    path: str = Field("next_cursor", min_length=1, description="dotted path of that cursor in the answer")


class Paging(BaseModel):
    """Exactly one of next, page, offset, cursor."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    next: str = Field("", description="`link` for the Link header, else the dotted path of the next URL in the answer")
    page: ByPage | None = Field(None, description="pages are numbered")
    offset: ByOffset | None = Field(None, description="pages start at an offset")
    cursor: ByCursor | None = Field(None, description="each page names the cursor of the next")
    more: str = Field("", description="dotted path of a flag that says whether another page follows (page, offset)")
    max_pages: int = Field(1000, ge=1, description="a longer listing is taken for one that never ends")

    @model_validator(mode="after")
    def _one_way(self) -> Paging:
        if sum(map(bool, (self.next, self.page, self.offset, self.cursor))) != 1:
            raise ValueError("name exactly one of next, page, offset, cursor")
        return self

    @property
    def numbered(self) -> bool:
        return bool(self.page or self.offset)

    @property
    def told_in_body(self) -> bool:
        """Whether a page that is byte for byte the same also continues the same way."""
        return bool(self.more or self.cursor or (self.next and self.next != "link"))


class PagingCursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a read stands, as a cursor. `of` names the query: a place in another query's listing means nothing.

    etag, last_modified and digest belong to the last complete read, and are kept only if it was a single page.
    `since` is fixed when a read begins, because its first page moves the engine's; `asked` is what that was then.
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
    """Where a listing begins."""
    if paging and paging.page:
        return paging.page.start
    return 0 if paging and paging.offset else None


def page_url(paging: Paging | None, url: str, at: Position) -> URL:
    """The URL of the page at this position."""
    target = URL(url)
    if paging is None or at is None:
        return target
    if paging.next:
        return URL(str(at))
    if paging.cursor:
        return target.update_query({paging.cursor.param: str(at)})
    sized = paging.page or paging.offset
    assert sized is not None
    size = {sized.size_param: str(sized.size)} if sized.size_param and sized.size else {}
    return target.update_query({sized.param: str(at), **size})


def next_position(
    paging: Paging | None, reply: Reply, document: Any, place: PagingCursor, ids: Sequence[str]
) -> Position:
    """Where the next page is; None at the end.

    Pages and offsets end with a page that shows nothing new: a short page proves nothing where servers cap its size.
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
    if not paging.more and (not ids or set(ids) == {place.last_id}):
        return None
    at = place.at if isinstance(place.at, int) else 0
    # offsets overlap by an item: if it is not there again, something before it went, and others slipped past
    return at + (1 if paging.page else max(len(ids) - 1, 1 if ids else 0))


def advance(place: PagingCursor, paging: Paging, to: Position, ids: Sequence[str], whose: str) -> PagingCursor:
    """The place at the next page, or an error when the listing goes in circles."""
    shown = digest_of("\0".join(ids).encode()) if ids else ""
    same = place.same + 1 if shown and shown == place.shown else 0
    # inserts can push a whole page down once, or even twice; a parameter that is ignored repeats for ever
    if same >= _SAME_PAGES:
        raise NeedsAttention(
            f"{whose} shows the same page again and again", fix="Check `paging`: it seems to be ignored"
        )
    spot = digest_of(str(to).encode())
    if to == place.at or spot == place.mark:
        raise NeedsAttention(f"{whose} continues with a page that was read already", fix="Check `paging`")
    pages = place.pages + 1
    return msgspec.structs.replace(
        place,
        etag=None,
        last_modified=None,
        digest="",
        at=to,
        pages=pages,
        last_id=ids[-1] if paging.offset and len(ids) > 1 else "",
        shown=shown,
        same=same,
        # remembering the place at every power of two finds any circle, in constant space
        mark=spot if pages & (pages - 1) == 0 else place.mark,
    )


def has_slipped(place: PagingCursor, ids: Sequence[str]) -> bool:
    """Whether items may have slipped over the page border: the item that both pages should show is gone."""
    return bool(place.last_id) and place.last_id not in ids


def restart(place: PagingCursor, paging: Paging) -> PagingCursor | None:
    """The beginning of the listing again; None when that was tried often enough and the read stays partial."""
    if place.restarts >= _RESTARTS:
        return None
    again = place.restarts + 1
    return PagingCursor(of=place.of, at=first_position(paging), since=place.since, asked=place.asked, restarts=again)


def _next_url(reply: Reply, value: Any) -> str | None:
    if not isinstance(value, str) or not value:
        return None
    try:
        url = reply.url.join(URL(value))
        same = url.origin() == reply.url.origin()
    except ValueError:
        raise NeedsAttention(f"{reply.url.host} names a next page that is not a URL", fix="Check paging.next") from None
    if not same:
        raise Refused(f"{reply.url.host} continues its list on another origin, where no token may go")
    return str(url)
