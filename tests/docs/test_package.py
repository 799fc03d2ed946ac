"""What the package says about itself: metadata, links that lead somewhere, and files that belong into it."""

from __future__ import annotations

import re
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import harken
from tests.docs.wheel import ROOT, build_wheel

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
pytestmark = pytest.mark.worker_group("package")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(wheel.read(name))


def test_the_version_is_that_of_the_code(metadata: Message) -> None:
    assert metadata["Version"] == harken.__version__


def test_every_link_of_the_readme_is_absolute(metadata: Message) -> None:
    text = str(metadata.get_payload())
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 5
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    assert f"/blob/v{harken.__version__}/docs/index.md" in text
    assert f"/raw/v{harken.__version__}/docs/screenshots/overview.png" in text


def test_it_says_where_it_lives_and_what_it_runs_on(metadata: Message) -> None:
    named = {str(line).partition(",")[0] for line in metadata.get_all("Project-URL", [])}
    assert named == {"Repository", "Documentation", "Changelog", "Issues"}
    classifiers = set(metadata.get_all("Classifier", []))
    assert {"Typing :: Typed", "Programming Language :: Python :: 3.13"} <= classifiers
    assert metadata["License-Expression"] == "Apache-2.0"


def test_types_recipes_and_migrations_are_in_the_wheel_and_tests_are_not(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    recipes = {path.parent.name for path in (ROOT / "src" / "harken" / "recipes").glob("*/README.md")}
    assert {"harken/py.typed", "harken/backends/sqlite/migrations/0001_start.sql"} <= names
    assert {f"harken/recipes/{name}/workflows/{name}.yaml" for name in recipes} <= names
    assert not [name for name in names if not name.startswith(("harken/", "harken-"))]


def test_every_extra_is_on_the_install_page() -> None:
    page = (ROOT / "docs" / "how-to" / "install.md").read_text("utf-8").partition("## Extras")[2].partition("\n## ")[0]
    table = "".join(line.split("|")[1] + line.split("|")[2] for line in page.splitlines() if line.startswith("| `"))
    assert [extra for extra in PROJECT["optional-dependencies"] if f"`{extra}`" not in table] == []


def test_the_release_script_can_be_run() -> None:
    script = Path(ROOT / ".ci" / "release")
    assert script.stat().st_mode & 0o111
