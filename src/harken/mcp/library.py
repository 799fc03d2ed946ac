"""Loads the library when somebody needs it, and says what to install when it is not there."""

from __future__ import annotations

from typing import Any

from harken.errors import Misconfigured

__all__ = ["protocol"]


def protocol() -> Any:
    """The module `harken.mcp.server`."""
    try:
        from harken.mcp import server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        message = "agents' tools need a package that is not installed"
        raise Misconfigured(message, fix="Run: pip install 'harken[mcp]', then start the controller again") from None
    return server
