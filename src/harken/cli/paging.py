"""Lists that are longer than a page: how much is asked for, and that what is left out is never left out in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from harken.cli.invocation import Session
from harken.cli.output import Column, print_json, table

__all__ = ["filtered", "paged", "print_pages"]

LARGEST_PAGE = 500
"""What one answer of the controller has at most."""


def paged(function: Any) -> Any:
    """The options of a list with pages; pass their values on to `print_pages`."""
    for option in (
        click.option("--page", "as_page", is_flag=True, help="With --json: one object with `items` and `next`."),
        click.option("--all", "everything", is_flag=True, help="Everything, page after page, as it is read."),
        click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many at most."),
        click.option("--before", metavar="CURSOR", help="The next page, as the last one said."),
    ):
        function = option(function)
    return function


def filtered(function: Any) -> Any:
    """The option of a list that can be filtered."""
    said = "Only rows for which this is true, in CEL over their fields."
    return click.option("--where", metavar="FILTER", help=said)(function)


def print_pages(
    session: Session,
    operation: str,
    columns: Sequence[Column],
    empty: str,
    *,
    before: str | None,
    limit: int,
    everything: bool,
    as_page: bool,
    **given: Any,
) -> None:
    """Print what the options of `paged` ask for: a table, an array, or with --page an object.

    `empty` is said of a list that has nothing; of a part of one, that nothing fits.
    """
    asked_for = [name for name, value in given.items() if value and name != "include"]
    empty = "Nothing fits the filter." if asked_for else empty
    if as_page and (everything or not session.as_json):
        raise click.UsageError("--page goes with --json, and not with --all")
    if everything:
        _print_all(session, _pages(session, operation, before, None, given), columns, empty)
        return
    items: list[dict[str, Any]] = []
    following = before
    for page in _pages(session, operation, before, limit, given):
        items += page["items"]
        following = page["next"]
    if as_page:
        print_json({"items": items, "next": following})
        return
    if session.as_json:
        print_json(items)
    elif items:
        table(items, columns)
    else:
        print(empty)
    if following is not None:
        # beside JSON it must not stand where a program reads
        click.echo(f"There is more: --before {following}, or --all", err=session.as_json)


def _pages(
    session: Session, operation: str, before: str | None, limit: int | None, given: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    left = limit
    while left is None or left > 0:
        size = LARGEST_PAGE if left is None else min(left, LARGEST_PAGE)
        page: dict[str, Any] = session.call(operation, cursor=before, limit=size, **given)
        yield page
        before = page["next"]
        if before is None:
            return
        left = None if left is None else left - len(page["items"])


def _print_all(session: Session, pages: Iterator[dict[str, Any]], columns: Sequence[Column], empty: str) -> None:
    """Print each page as it comes; with --json as one array."""
    count = 0
    for page in pages:
        if session.as_json:
            for item in page["items"]:
                print("[" if count == 0 else ",", json.dumps(item, ensure_ascii=False), sep="\n")
                count += 1
        elif page["items"]:
            table(page["items"], columns)
            count += len(page["items"])
    if session.as_json:
        print("[]" if count == 0 else "]")
    elif count == 0:
        print(empty)
