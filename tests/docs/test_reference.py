"""What people look up is there: every metric and every error code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from harken import errors
from harken.app import metrics_and_health, run_metrics
from harken.language.go_template.functions import FUNCTIONS
from harken.language.go_template.template import compile_template

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SOURCES = inspect.getsource(metrics_and_health) + inspect.getsource(run_metrics)
METRICS = re.findall(r'metrics\.(?:counter|gauges?|histogram|series)\(\s*"(\w+)"', SOURCES)
CODES = sorted({found.code for _, found in inspect.getmembers(errors, inspect.isclass) if hasattr(found, "code")})


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_documented(name: str) -> None:
    assert f"| `{name}` |" in (REFERENCE / "metrics.md").read_text("utf-8")


@pytest.mark.parametrize("code", CODES)
def test_every_error_code_is_documented(code: str) -> None:
    assert f"| `{code}` |" in (REFERENCE / "errors.md").read_text("utf-8")


def examples_of_functions() -> list[str]:
    """What stands between backquotes in the table of functions, without the heading and what follows the table."""
    text = (REFERENCE / "steps.md").read_text("utf-8").partition("### Functions of templates")[2]
    rows = [line for line in text.partition("\n\nA missing field")[0].splitlines() if line.startswith("| `")]
    return [found for row in rows for found in re.findall(r"`([^`]+)`", row.split("|")[1])]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_templates_is_documented(name: str) -> None:
    assert name in {example.split()[0] for example in examples_of_functions()}


@pytest.mark.parametrize("example", [one for one in examples_of_functions() if " " in one])
def test_the_arguments_of_functions_stand_in_their_documented_order(example: str) -> None:
    names = {"title": "re: disk?", "labels": ["urgent"], "text": "old", "list": ["a"], "object": {"key": 1}, "name": 3}
    assert compile_template("{{" + example + "}}").render({**names, "a": "", "b": 2}).warnings == []


def test_there_are_metrics_and_codes_to_look_up() -> None:
    assert len(METRICS) >= 18
    assert len(CODES) >= 10
