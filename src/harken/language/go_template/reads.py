"""Which fields of its context a template reads, as far as that is written in it."""

from __future__ import annotations

from collections.abc import Iterator

from harken.language.go_template.parser import Block, Call, Node, Operand, Path, Pipe, Show

__all__ = ["root_paths"]

_REBINDS = ("range", "with")


def root_paths(nodes: tuple[Node, ...], *, at_root: bool = True) -> Iterator[tuple[str, ...]]:
    """Yield the path of each field below the root. Inside of range and with, only `$` is the root."""
    for node in nodes:
        if isinstance(node, Show):
            yield from _operand(node.pipe, at_root)
        elif isinstance(node, Block):
            yield from _operand(node.pipe, at_root)
            yield from root_paths(node.body, at_root=at_root and node.word not in _REBINDS)
            yield from root_paths(node.otherwise, at_root=at_root)


def _operand(operand: Operand, at_root: bool) -> Iterator[tuple[str, ...]]:
    if isinstance(operand, Pipe):
        yield from _operand(operand.value, at_root)
    elif isinstance(operand, Call):
        for argument in operand.arguments:
            yield from _operand(argument, at_root)
    elif isinstance(operand, Path):
        if isinstance(operand.start, Pipe):
            yield from _operand(operand.start, at_root)
        elif operand.names and (operand.start == "$" or (operand.start == "." and at_root)):
            yield operand.names
