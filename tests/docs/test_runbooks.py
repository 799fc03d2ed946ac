"""Who is called finds what to do: a runbook for each alert, and commands that exist."""

from __future__ import annotations

import re

import yaml

from tests.docs.wheel import ROOT

RULES = yaml.safe_load((ROOT / "examples" / "monitoring" / "alerts.yaml").read_text("utf-8"))
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
PAGE = (ROOT / "docs" / "operations" / "runbooks.md").read_text("utf-8")
RUNBOOKS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert list(RUNBOOKS) == ALERTS


def test_every_runbook_says_what_it_means_what_to_type_and_when_it_is_over() -> None:
    for alert, text in RUNBOOKS.items():
        assert "**Means**:" in text and "**Over when**" in text and "`harken " in text, alert
