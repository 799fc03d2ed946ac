"""The pictures in docs/screenshots: one of each page, small enough to be cloned."""

from __future__ import annotations

import re
from importlib.resources import files

from tests.ui.screenshots import ALSO, DOCS, PAGES

MOST_BYTES = 3_000_000


def test_every_page_of_the_navigation_has_a_picture() -> None:
    index = (files("harken.ui") / "static/pages/index.js").read_text()
    shown = re.findall(r'path: "(/[a-z]*)", nav:', index)
    photographed = {address.removeprefix("TICKETS").partition("?")[0] for address, _ in PAGES.values()}

    assert len(shown) >= 10
    assert set(shown) <= photographed


def test_all_pictures_are_there_and_small() -> None:
    wanted = {*PAGES, *(f"{name}-dark" for name in ALSO), *(f"{name}-phone-light" for name in ALSO)}
    found = {path.stem: path.stat().st_size for path in DOCS.glob("*.png")}

    assert set(found) == wanted
    assert sum(found.values()) < MOST_BYTES
