"""What a job of each kind says when it has no template: only fields that its events are documented to have."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from harken.language.message_placeholders import fill
from harken.source import Plugin

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "services"
KINDS = ["datadog", "github", "gitlab", "jira", "page", "pagerduty", "rss", "slack"]


def template(kind: str) -> str:
    plugin: Plugin = import_module(f"harken.services.{kind}").plugin
    assert plugin.delivery is not None
    return plugin.delivery(None, kind).template


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_message_has_only_fields_that_are_documented(kind: str):
    event = (DOCS / f"{kind}.md").read_text("utf-8").partition("\n## Event")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(\w+)`", event))
    used = {name.partition(".")[0] for name in fill(template(kind), {}).unknown}
    assert used
    assert used <= documented


def test_a_listing_of_unknown_shape_is_told_as_it_is():
    assert template("json") == "{json}"
