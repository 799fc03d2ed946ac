"""Conditions in CEL: compiled, limited in cost, and explained when they are false."""

from __future__ import annotations

from harken.language.cel.compile_errors import InvalidCondition
from harken.language.cel.condition import (
    Bound,
    Condition,
    Decision,
    Key,
    Needs,
    bind,
    compile_condition,
    compile_key,
    needs_of,
)

__all__ = [
    "Bound",
    "Condition",
    "Decision",
    "InvalidCondition",
    "Key",
    "Needs",
    "bind",
    "compile_condition",
    "compile_key",
    "needs_of",
]
