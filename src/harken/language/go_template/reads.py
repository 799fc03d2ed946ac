"""Which fields of its context a template reads, as far as that is written in it."""

from __future__ import annotations

from collections.abc import Iterator

from harken.language.go_template.parser import Block, Call, Node, Operand, Path, Pipe, Show

__all__ = ["may_read", "root_paths"]

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


def may_read(nodes: tuple[Node, ...], name: str, *, at_root: bool = True) -> bool:
    """Whether the template may read this field of the root. True as well where the root is used as a whole."""
    for node in nodes:
        if isinstance(node, Show) and _may_read(node.pipe, name, at_root):
            return True
        if isinstance(node, Block):
            inner = at_root and node.word not in _REBINDS
            if (
                _may_read(node.pipe, name, at_root)
                or may_read(node.body, name, at_root=inner)
                or may_read(node.otherwise, name, at_root=at_root)
            ):
                return True
    return False


def _may_read(operand: Operand, name: str, at_root: bool) -> bool:
    if isinstance(operand, Pipe):
        return _may_read(operand.value, name, at_root)
    if isinstance(operand, Call):
        return any(_may_read(argument, name, at_root) for argument in operand.arguments)
    if not isinstance(operand, Path):
        return False
    if isinstance(operand.start, Pipe):
        return _may_read(operand.start, name, at_root)
    if not operand.names:
        return operand.start == "$" or (operand.start == "." and at_root)
    # of a variable too: where the root was given to it, that counts already
    return operand.names[0] == name


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
