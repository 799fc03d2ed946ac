"""What a person or program may do: the CLI, the HTTP API, MCP and the UI call these and nothing deeper."""

from harken.operate.engine import Engine, Preview, Shown
from harken.operate.operator import Operator

__all__ = ["Engine", "Operator", "Preview", "Shown"]
