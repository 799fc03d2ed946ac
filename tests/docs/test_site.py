"""The documentation as a site: built once, without a warning, and then looked at as files."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.wheel import ROOT
from tests.downloads import skip_or_fail

pytestmark = [pytest.mark.process, pytest.mark.worker_group("site")]

# what a browser fetches by itself; where a person clicks may be elsewhere
FETCHED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "video": "src", "object": "data"}
FETCHING_LINKS = {"stylesheet", "icon", "preload", "modulepreload", "manifest", "preconnect", "dns-prefetch"}


class Links(HTMLParser):
    """What a page fetches, where it links to, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        self.anchors |= {has[name] for name in ("id", "name") if name in has}
        self.classes |= set(has.get("class", "").split())
        if FETCHED.get(tag) in has:
            self.fetched.append(has[FETCHED[tag]])
        if tag == "link" and FETCHING_LINKS & set(has.get("rel", "").split()):
            self.fetched.append(has.get("href", ""))
        if tag == "a" and "href" in has:
            self.links.append(has["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("material") is None:
        skip_or_fail("mkdocs-material is not here, which builds the site. Run: make setup")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(place)]
    environ = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {path: Links(path.read_text("utf-8")) for path in site.rglob("*.html")}


def script(name: str) -> ModuleType:
    """A script that makes a part of the site."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / "site" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_broken(page: Path, link: str, pages: dict[Path, Links]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or link.startswith("//"):
        return False
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    anchors = pages[target].anchors if target in pages else {parts.fragment}
    return not target.exists() or unquote(parts.fragment) not in anchors


def test_every_page_of_the_documentation_is_on_the_site(site: Path) -> None:
    wanted = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(site) for path in site.rglob("*.html")}
    missing = {str(path) for path in wanted - made} - {"decisions/README.html"}
    assert missing == set()
    assert (site / "decisions" / "index.html").exists()


def test_no_link_of_the_site_is_dead(pages: dict[Path, Links]) -> None:
    # a server answers with the page of an error from any path, so that its links begin at the root
    looked_at = {page: links for page, links in pages.items() if page.name != "404.html"}
    dead = [
        f"{page.name}: {link}"
        for page, links in looked_at.items()
        for link in [*links.links, *links.fetched]
        if is_broken(page, link, pages)
    ]
    assert dead == []
    assert sum(len(links.links) for links in looked_at.values()) > 5000


def test_nothing_is_fetched_from_another_host(site: Path, pages: dict[Path, Links]) -> None:
    outside = [link for links in pages.values() for link in links.fetched if urlsplit(link).netloc]
    styles = [path.name for path in site.rglob("*.css") if "url(http" in path.read_text("utf-8").replace('"', "")]
    # the theme would fetch Mermaid for an element of this class
    drawn_in_the_browser = [page.name for page, links in pages.items() if "mermaid" in links.classes]
    assert (outside, styles, drawn_in_the_browser) == ([], [], [])


def test_search_finds_words_of_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"how-to/install.html", "operations/runbooks.html", "why/compared.html", "reference/openapi.html"} <= found


def test_the_start_page_has_the_name_of_the_program(site: Path) -> None:
    assert "<title>Harken</title>" in (site / "index.html").read_text("utf-8")


def test_the_references_are_made_from_the_code(site: Path) -> None:
    http = (site / "reference" / "openapi.html").read_text("utf-8")
    python = (site / "reference" / "python.html").read_text("utf-8")
    assert "GET /api/runs/{id}" in http
    assert "class PollSource" in python
    assert "Repeats are fine, gaps are not." in python


def test_every_diagram_has_its_picture_and_every_picture_its_diagram() -> None:
    diagrams = script("diagrams")
    assert set(diagrams.diagrams()) == set(diagrams.DRAWN.glob("*.svg"))


def test_the_moving_picture_shows_the_recorded_demo() -> None:
    cast = script("cast")
    drawn = cast.PICTURE.read_text("utf-8")
    assert cast.draw(cast.CAST.read_text("utf-8")) == drawn
    assert "triage fired" in drawn and "Nothing was lost, doubled or made up." in drawn


def test_a_dead_link_would_be_noticed(tmp_path: Path) -> None:
    page = (tmp_path / "page.html").resolve()
    page.write_text('<h1 id="here">x</h1>')
    found = {page: Links(page.read_text())}
    assert [link for link in ("#here", "#gone", "other.html", "https://x.example") if is_broken(page, link, found)] == [
        "#gone",
        "other.html",
    ]
