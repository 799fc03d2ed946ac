"""What a person or program may do: one place behind every door."""

from harken.operate.engine import Engine, Preview, Shown
from harken.operate.operator import Operator

__all__ = ["Engine", "Operator", "Preview", "Shown"]
