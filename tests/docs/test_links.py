from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text("utf-8"))


def links(page: Path) -> list[str]:
    return [link for link in LINK.findall(prose(page)) if "://" not in link and not link.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    slugs = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in HEADING.findall(prose(page)))
    return {"", *(slug.replace(" ", "-") for slug in slugs)}


def is_broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or (target.suffix == ".md" and anchor not in anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path):
    assert [link for link in links(page) if is_broken(page, link)] == []


def test_every_page_can_be_reached_from_the_index():
    reached: set[Path] = set()
    waiting = {ROOT / "README.md", ROOT / "docs" / "index.md"}
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
        waiting |= {target for target in targets if target.suffix == ".md" and target.exists()} - reached

    assert [str(page.relative_to(ROOT)) for page in set((ROOT / "docs").rglob("*.md")) - reached] == []


def test_a_broken_link_would_be_noticed(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# Here\n[there](nowhere.md) [self](#here) [gone](#gone)", "utf-8")

    assert [link for link in links(page) if is_broken(page, link)] == ["nowhere.md", "#gone"]
