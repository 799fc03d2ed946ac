"""The page of permissions is that of the table."""

from __future__ import annotations

from tests.docs.permissions_page import PAGE, page


def test_the_page_of_permissions_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.docs.permissions_page"
