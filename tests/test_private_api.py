"""Which private names of libraries we use: a release may change them without a word, so each needs a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import harken

ROOT = Path(harken.__file__).parent

PUBLIC = frozenset({"_replace", "_exit", "_asdict", "_fields"})
"""Documented, in spite of their underscore."""

# by the folder of who uses it, and its name
KNOWN: dict[tuple[str, str], str] = {
    ("services/kafka", "_client"): "aiokafka has no other way to ask the brokers about a topic's identity",
    ("services/mqtt", "_send_pingreq"): "paho sends pings by itself, and offers none to send",
    ("services/mqtt", "_handle_pingresp"): "paho tells nobody that a ping was answered",
    ("services/nats", "_server_info"): "nats-py tells nobody whether the server speaks TLS",
    ("services/nats", "_process_headers"): "nats-py ends its reading at headers that are not text",
    ("services/nats", "_build_message"): "nats-py ends its reading at a subject that is not UTF-8",
    ("services/sql/drivers", "_connect"): "aiomysql connects to a name, and we to an address that was checked",
    ("services/sql/drivers", "_request_authentication"): "aiomysql sends the password also without TLS",
    ("simulation", "_stopping"): "not of a library: a killed replica of ours",
    ("testing/stream", "_set_running_loop"): "a forked process has the running loop of its parent",
}


def _own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _defined(tree: ast.Module) -> Iterator[str]:
    """Names that this module gives to attributes of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _own(node.value):
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _foreign(tree: ast.Module) -> Iterator[str]:
    """Private attributes of something that this module does not define, and private methods of a base."""
    own = frozenset(_defined(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        above = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"
        if above or (node.attr not in own | PUBLIC and not _own(node.value)):
            yield node.attr


def test_private_names_of_libraries_are_those_that_have_a_reason() -> None:
    found = {
        (path.parent.relative_to(ROOT).as_posix(), name)
        for path in ROOT.rglob("*.py")
        for name in _foreign(ast.parse(path.read_text("utf-8")))
    }
    assert found == set(KNOWN)
