from __future__ import annotations

import re
import tomllib
from pathlib import Path

from harken.docs_urls import address_of

ROOT = Path(__file__).parents[1]


def test_a_page_is_where_the_package_says_that_the_project_lives() -> None:
    home = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]
    assert address_of("docs/how-to/tickets.md") == f"{home}/blob/main/docs/how-to/tickets.md"


def test_every_page_that_messages_point_to_is_there() -> None:
    sources = (path.read_text("utf-8") for path in (ROOT / "src/harken").rglob("*.py"))
    named = {path for text in sources for path in re.findall(r"""["']((?:docs|examples)/[\w./-]+)["']""", text)}
    assert len(named) >= 5
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_no_message_names_a_page_by_a_path_that_only_a_clone_has() -> None:
    # a string with the path alone is an argument of address_of
    message = re.compile(r'"(?:[^"\n]*[ (:])(?:docs/(?:how-to|reference|operations)|examples)/[^"\n]*"')
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "src/harken").rglob("*.py")
        if "testing" not in path.parts
        for line in path.read_text("utf-8").splitlines()
        if message.search(line) and '"""' not in line
    ]
    assert found == []
