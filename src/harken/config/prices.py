"""A limit in dollars counts nothing for a model whose price nobody wrote down: that is said when it is configured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harken.config.findings import Path, Report
from harken.config.settings import Models
from harken.config.yaml.nodes import Node, locate
from harken.feed import Trigger

__all__ = ["check_prices", "unpriced"]

_PLACE: Path = ("trigger", "budget", "usd_per_day")


def check_prices(trigger: Trigger | None, definition: Any, models: Models, node: Node, report: Report) -> None:
    """Warn of every model that the workflow asks and that has no price, where the trigger limits dollars."""
    if trigger is None or trigger.budget is None or trigger.budget.usd_per_day is None:
        return
    for model in sorted(set(unpriced(definition, models))):
        message, fix = f"{model} has no price, so it counts as 0", f"Add it under models.prices: {model}"
        report.warn(locate(node, _PLACE, key=True), _PLACE, message, fix, "no_price")


def unpriced(definition: Any, models: Models) -> Iterator[str]:
    """The models without a price among those that llm steps name; what a template names is not known yet."""
    for name in _asked(definition):
        model = getattr(models, name or "default", None) if ":" not in name else name
        model = str(model or models.default or name)
        if "{{" not in model and model != "echo" and not {name or "default", model} & set(models.prices):
            yield model


def _asked(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "llm" in (value.get("action"), value.get("type")):
            yield str(value.get("model") or "")
        for inner in value.values():
            yield from _asked(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _asked(inner)
