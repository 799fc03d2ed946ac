"""The site in a browser: nothing is fetched for search before a person is there, and then it works."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.docs.static_files import StaticFiles, build_site
from tests.downloads import debian
from tests.ui.steady_network import steady

pytestmark = [pytest.mark.process, pytest.mark.worker_group("site"), pytest.mark.timeout(900)]

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place: Path = build_site(tmp_path_factory.mktemp("site"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(StaticFiles, directory=place))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    # no limit that a busy machine could miss
    expect.set_options(timeout=60_000)
    program = debian.program("chromium")
    command = steady(program, tmp_path)
    with sync_playwright() as playwright:
        environ: dict[str, str | float | bool] = {**debian.environment(program)}
        browser = playwright.chromium.launch(executable_path=command, args=FLAGS, env=environ, headless=True)
        yield browser.new_page()
        browser.close()


def test_a_page_that_is_only_read_fetches_no_script_and_no_search_index(page: Page, address: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(address)))
    page.goto(address, wait_until="networkidle")
    assert "demo.svg" in asked
    assert [url for url in asked if "javascripts" in url or "search" in url] == []


def test_search_works_from_the_first_click_on_it(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("HarkenStoreSlow")
    found = page.locator(".md-search-result__link").first
    expect(found).to_have_attribute("href", re.compile("operations/runbooks.html"))


def test_words_in_the_address_are_searched_for_at_once(page: Page, address: str) -> None:
    page.goto(f"{address}?q=HarkenStoreSlow")
    expect(page.locator(".md-search-result__link").first).to_be_visible()


def test_the_moving_picture_shows_one_frame_after_the_other(page: Page, address: str) -> None:
    page.goto(f"{address}demo.svg")
    seen = (
        "[...document.querySelectorAll('.frame')].flatMap((f, n) => getComputedStyle(f).display == 'none' ? [] : [n])"
    )
    page.evaluate("document.documentElement.pauseAnimations()")
    shown = []
    for second in (0.5, 1.5, 15.0, 16.3, 17.0):
        page.evaluate(f"document.documentElement.setCurrentTime({second})")
        shown.append(page.evaluate(seen))
    assert shown == [[0], [1], [9], [0], [0]]


def test_who_asks_for_less_motion_sees_the_end_of_the_moving_picture(page: Page, address: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.goto(f"{address}demo.svg")
    expect(page.get_by_text("Nothing was lost, doubled or made up.")).to_be_visible()
