"""Go-style templates: `{{.trigger.event.title}}` in prompts and messages, and in mappings where types are kept.

A template is parsed once. It can only read the mapping it is given: fields are keys, never Python attributes, and a
printed value is not parsed as a template again. Work and size are limited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from harken.language.go_template import parser
from harken.language.go_template.evaluator import Rendering, compile_block, compile_single
from harken.language.go_template.functions import Absent
from harken.language.go_template.lexer import Text
from harken.language.go_template.reads import may_read, root_paths

__all__ = ["Rendered", "Template", "compile_template"]


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """The text, and a warning for each missing field."""

    text: str
    warnings: list[str]


class Template:
    """A compiled template, which can be rendered any number of times."""

    __slots__ = ("_nodes", "_run", "_slots", "_value", "source")

    def __init__(self, source: str) -> None:
        tree = parser.parse(source)
        self.source = source
        self._nodes = tree.nodes
        self._slots = tree.slots
        self._run = compile_block(source, tree.nodes)
        self._value = compile_single(source, tree.nodes)

    @property
    def reads(self) -> frozenset[tuple[str, ...]]:
        """The paths below the root that are written in the template."""
        return frozenset(root_paths(self._nodes))

    def may_read(self, name: str) -> bool:
        """Whether it may read this name of its context. True as well where the context is used as a whole."""
        return may_read(self._nodes, name)

    def render(self, context: Mapping[str, Any], fill: Callable[[str], str] | None = None) -> Rendered:
        """Return the text. A missing field is printed as `<no value>`, with a warning. Raise Refused at a limit.

        `fill` changes the literal parts of the template, and never sees a value.
        """
        rendering = Rendering(context, self._slots, strict=False)
        rendering.fill = fill
        self._run(rendering)
        return Rendered(text=rendering.text(), warnings=list(rendering.warnings))

    def value(self, context: Mapping[str, Any]) -> Any:
        """Return the value itself for a single expression, else a text. Raise Refused for a missing field."""
        rendering = Rendering(context, self._slots, strict=True)
        if self._value is None:
            self._run(rendering)
            return rendering.text()
        found = self._value(rendering)
        if isinstance(found, Absent):
            rendering.note(found)
        return found

    def pieces(self, context: Mapping[str, Any], escape: Callable[[str], str]) -> list[str]:
        """Return the text in pieces: what is literal, and each value in its own piece, changed by `escape`.

        A value that begins the text is not changed, nor is one that ends in `| unescaped`. Raise Refused for a missing
        field.
        """
        rendering = Rendering(context, self._slots, strict=True, escape=escape)
        self._run(rendering)
        return rendering.out

    def outline(self) -> str:
        """Return the literal text, with a NUL in place of every value and block."""
        shown = [node for node in self._nodes if not (isinstance(node, parser.Show) and node.pipe.slots)]
        return "".join(node.text if isinstance(node, Text) else "\0" for node in shown)


def compile_template(source: str) -> Template:
    """Return the template, or raise Misconfigured with the line and column of what is wrong."""
    return Template(source)
