"""Conditions in CEL: compiled, limited in cost, and explained when they are false."""

from __future__ import annotations

from harken.language.cel.compile_errors import InvalidCondition
from harken.language.cel.condition import Bound, Condition, Decision, Needs, bind, compile_condition, needs_of

__all__ = ["Bound", "Condition", "Decision", "InvalidCondition", "Needs", "bind", "compile_condition", "needs_of"]
