"""Pages of issues that are read again and again: GitHub answers 304 while a page is the same, which costs no quota.

https://docs.github.com/en/rest/using-the-rest-api/best-practices-for-using-the-rest-api#use-conditional-requests-if-appropriate
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec

from harken.http import Validators
from harken.ticket import Ticket

__all__ = ["KeptPage", "KeptPages", "Params", "changed_since"]

Params: TypeAlias = Sequence[tuple[str, str | int]]

MOST_PAGES = 64
MOST_BYTES = 1_000_000
"""Of one repository. Longer pages are read whole each time."""
SAME_START = timedelta(minutes=10)
"""Changes are listed from the same time on for so long, and longer while there are none."""


class KeptPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page as it was read. `following` asks for the page after it; `size` is that of the answer, in bytes."""

    validators: Validators
    tickets: Sequence[Ticket]
    following: Params | None
    size: int


class KeptPages:
    """The pages of one repository that were read last, by what was asked for."""

    def __init__(self) -> None:
        self._pages: dict[Params, KeptPage] = {}
        self._start: datetime | None = None
        self._first: Params = ()

    def get(self, params: Params) -> KeptPage | None:
        return self._pages.get(tuple(params))

    def put(self, params: Params, page: KeptPage) -> None:
        """Keep the page if it can be asked for again, and forget those that were put before if there are too many."""
        key = tuple(params)
        self._pages.pop(key, None)
        if page.validators.etag is None or page.size > MOST_BYTES:
            return
        self._pages[key] = page
        while len(self._pages) > MOST_PAGES or sum(one.size for one in self._pages.values()) > MOST_BYTES:
            del self._pages[next(iter(self._pages))]

    def start_of_changes(self, since: datetime) -> datetime:
        """From when on to list changes so that none since this time is missing, and the answer may be known already.

        Each read wants changes since a later time, and would ask for another list than the one before."""
        start, page = self._start, self.get(self._first)
        if start is None or page is None or start > since:
            return since
        if since - start <= SAME_START:
            return start
        # a list that has something to tell, or goes on behind its first page, would grow with every change
        quiet = page.following is None and not changed_since(page.tickets, since)
        return start if quiet else since

    def keep_start(self, start: datetime, params: Params) -> None:
        """Note with which time and parameters changes were listed."""
        self._start, self._first = start, tuple(params)


def changed_since(tickets: Sequence[Ticket], since: datetime) -> list[Ticket]:
    return [ticket for ticket in tickets if ticket.updated_at is None or ticket.updated_at >= since]
