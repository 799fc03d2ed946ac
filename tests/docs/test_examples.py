from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from harken.config.loaded import Loaded
from harken.config.loader import load
from harken.run.compiled_workflows import check_workflow
from harken.services import registry

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.DOTALL | re.MULTILINE)
ENVIRON = {
    "DEMO_URL": "http://127.0.0.1:1",
    "DEMO_SECRET": "not a secret",
    "DEPLOY_SECRET": "not a secret",
    "SHOP_URL": "http://127.0.0.1:1",
    "PACKING_URL": "http://127.0.0.1:1",
    "SHOP_TOKEN": "not a token",
    "SLACK_BOT_TOKEN": "xoxb-not-a-token",
    "PAGERDUTY_TOKEN": "not-a-token",
    "DATADOG_API_KEY": "not-a-key",
    "DATADOG_APP_KEY": "not-a-key",
    "JIRA_BASE_URL": "https://company.atlassian.net",
    "JIRA_EMAIL": "me@example.com",
    "JIRA_API_TOKEN": "not-a-token",
    "GITHUB_TOKEN": "not-a-token",
    "GITLAB_TOKEN": "not-a-token",
    "AZURE_DEVOPS_ORGANIZATION": "acme",
    "AZURE_DEVOPS_TOKEN": "not-a-token",
    "GOOGLE_CLIENT_ID": "1234.apps.googleusercontent.com",
    "GOOGLE_CLIENT_SECRET": "not-a-secret",
    "GOOGLE_REFRESH_TOKEN": "1//not-a-token",
    "TELEGRAM_BOT_TOKEN": "123456:not-a-token",
    "HARKEN_SQL_URL": "postgresql://reader:not-a-password@db.internal/shop",
}
ELSEWHERE = {"welcome", "fresh"}  # their services are installed by their reader


def pages() -> list[Path]:
    return [ROOT / "README.md", *(ROOT / "docs" / "how-to").glob("*.md"), *(ROOT / "docs" / "tutorial").glob("*.md")]


def workflows() -> dict[str, str]:
    """The whole workflows that the documentation shows, by name."""
    blocks = [block for page in pages() for block in BLOCK.findall(page.read_text("utf-8"))]
    found = {match[1]: block for block in blocks if (match := re.match(r"name: (\S+)\n", block)) and "steps:" in block}
    return {name: block for name, block in found.items() if name not in ELSEWHERE}


def loaded(directory: Path) -> Loaded:
    return loaded_with(directory, ENVIRON)


def loaded_with(directory: Path, environ: Mapping[str, str]) -> Loaded:
    return load(directory, plugins=registry(), check_workflow=check_workflow, environ=environ)


def complaints(configuration: Loaded) -> list[str]:
    return [str(finding) for finding in configuration.findings]


@pytest.mark.parametrize("name", ["demo", "files", "laptop", "streams"])
def test_every_example_loads_without_a_complaint(name: str):
    configuration = loaded(ROOT / "examples" / name)

    assert complaints(configuration) == []
    assert configuration.triggers


@pytest.mark.parametrize("name", sorted(workflows()))
def test_every_workflow_in_the_documentation_loads_without_a_complaint(name: str, tmp_path: Path):
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows" / "shown.yaml").write_text(workflows()[name], "utf-8")

    configuration = loaded(tmp_path)

    assert complaints(configuration) == []
    assert set(configuration.workflows) == {name}


def test_the_readme_shows_a_workflow_of_at_most_ten_lines():
    assert len(workflows()["hello"].splitlines()) <= 10


def test_the_demo_is_an_ordinary_directory(tmp_path: Path):
    shutil.copytree(ROOT / "examples" / "demo", tmp_path / "demo")

    assert (tmp_path / "demo" / "harken.yaml").is_file()
