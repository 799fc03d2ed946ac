"""Write YAML in block style, so that the parser of this package reads the same values back."""

from __future__ import annotations

import re
from typing import Any

import yaml

from harken.config.yaml.parser import InvalidScalar, resolve_scalar

__all__ = ["to_yaml"]


def to_yaml(value: Any) -> str:
    """Return the value as YAML: keys in their order, texts of several lines as literal blocks."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1_000)
    return text


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # indent lists under their key
        super().increase_indent(flow, False)


# YAML 1.1 takes some of them for the end of a line, wherever they stand
_ODD = re.compile("[\r\x85\u2028\u2029\ufeff]")


def _text_node(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    if _ODD.search(value):
        style: str | None = '"'
    else:
        style = "|" if "\n" in value else None if _stays_text(value) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _stays_text(value: str) -> bool:
    """Whether the parser reads it as text without quotes. PyYAML, which implements YAML 1.1, decides differently."""
    try:
        return resolve_scalar(value, None, plain=True) == value
    except InvalidScalar:
        return False


_Dumper.add_representer(str, _text_node)
