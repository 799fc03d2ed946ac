"""What people look up is there: every metric and every error code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from harken import errors
from harken.app import run_metrics, telemetry

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
SOURCES = inspect.getsource(telemetry) + inspect.getsource(run_metrics)
METRICS = re.findall(r'metrics\.(?:counter|gauges?|histogram|series)\(\s*"(\w+)"', SOURCES)
CODES = sorted({found.code for _, found in inspect.getmembers(errors, inspect.isclass) if hasattr(found, "code")})


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_documented(name: str) -> None:
    assert f"| `{name}` |" in (REFERENCE / "metrics.md").read_text("utf-8")


@pytest.mark.parametrize("code", CODES)
def test_every_error_code_is_documented(code: str) -> None:
    assert f"| `{code}` |" in (REFERENCE / "errors.md").read_text("utf-8")


def test_there_are_metrics_and_codes_to_look_up() -> None:
    assert len(METRICS) >= 18
    assert len(CODES) >= 10
