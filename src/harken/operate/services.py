"""Operations on services: which there are, and what their settings look like as JSON Schema."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from harken.errors import NotFound
from harken.operate.context import Context
from harken.operate.output_rows import Plain
from harken.operate.paging import page_by
from harken.suggest import suggest_fix

if TYPE_CHECKING:
    from pydantic import BaseModel

    from harken.source import Plugin

__all__ = ["list_services", "show"]


async def list_services(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """Every service that is installed, and what it can do."""
    return page_by(await asyncio.to_thread(_rows), cursor, limit, key="kind")


async def show(context: Context, *, kind: str) -> Plain:
    """One service with the JSON Schema of its account, of each way to listen to it, and of its actions."""
    return await asyncio.to_thread(_show, kind)


def _rows() -> list[Plain]:
    from harken.services import registry

    # each service is imported for this
    return [_row(plugin) for plugin in registry().values()]


def _show(kind: str) -> Plain:
    from harken.services import registry

    plugins = registry()
    if kind not in plugins:
        raise NotFound(f"there is no service {kind}", fix=suggest_fix(kind, plugins))
    plugin = plugins[kind]
    return _row(plugin) | {
        "account": _schema(plugin.account),
        "poll": _schema(plugin.query) if plugin.source else None,
        "stream": _schema(plugin.stream_query) if plugin.stream else None,
        "webhook": _schema(plugin.webhook_query) if plugin.webhook else None,
        "destination": _schema(plugin.destination_query) if plugin.destination else None,
        "actions": {name: _schema(act.params) for name, act in sorted(plugin.actions.items())},
        "environment": sorted(plugin.environment),
    }


def _row(plugin: Plugin) -> Plain:
    ways = {
        "poll": plugin.source,
        "stream": plugin.stream,
        "webhook": plugin.webhook,
        "destination": plugin.destination,
        "tracker": plugin.tracker,
    }
    return {
        "kind": plugin.kind,
        "summary": plugin.summary,
        "docs": plugin.docs,
        "ways": [name for name, found in ways.items() if found is not None],
        "needs_account": plugin.account is not None,
        "uses": plugin.uses,
    }


def _schema(model: type[BaseModel] | None) -> Plain | None:
    return None if model is None else model.model_json_schema()
