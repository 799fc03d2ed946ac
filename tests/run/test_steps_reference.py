"""Every kind of step is documented, and every example in the reference is valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harken.config.findings import Report
from harken.config.yaml.nodes import to_plain
from harken.config.yaml.parser import parse
from harken.run.compiled_workflows import check_workflow
from harken.run.steps import KINDS

PAGE = (Path(__file__).parents[2] / "docs/reference/steps.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("kind", sorted(name for name in KINDS if name))
def test_each_kind_has_a_section_with_an_example_and_all_its_parameters(kind: str) -> None:
    section = SECTIONS[kind]
    assert "```yaml" in section
    names = [field.alias or name for name, field in KINDS[kind].params.model_fields.items()]
    assert [name for name in names if f"`{name}`" not in section] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_is_valid(example: str) -> None:
    node = parse(example.encode(), "steps.md", Report())
    assert node is not None
    assert check_workflow(to_plain(node)) == []
