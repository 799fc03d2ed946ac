"""The door for agents: the Model Context Protocol on stdio and over HTTP. Its library is the extra `mcp`."""

from __future__ import annotations

from typing import Any

from harken.errors import Misconfigured
from harken.extras import how_to_install

__all__ = ["load_server"]


def load_server() -> Any:
    """Import `harken.mcp.server`, which takes a second; raises Misconfigured when its library is not installed."""
    try:
        from harken.mcp import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        message = "agents' tools need a package that is not installed"
        raise Misconfigured(message, fix=f"Run: {how_to_install('mcp')}, then start the controller again") from None
    return server
