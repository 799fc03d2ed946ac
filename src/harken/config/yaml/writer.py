"""YAML that people like to read, and that our own reader takes for the same values."""

from __future__ import annotations

from typing import Any

import yaml

from harken.config.yaml.parser import Unusable, resolve

__all__ = ["to_yaml"]


def to_yaml(value: Any) -> str:
    """The value in block style and in its own order; texts of several lines stand as such."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000)
    return text


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # lists are set in under their key
        super().increase_indent(flow, False)


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None if _stays_text(value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _stays_text(value: str) -> bool:
    """Whether it is a text without quotes, too: PyYAML's rules are not quite ours."""
    try:
        return resolve(value, None, plain=True) == value
    except Unusable:
        return False


_Dumper.add_representer(str, _text_node)
