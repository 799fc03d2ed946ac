"""Operations on webhooks: their addresses, and a signed request to try one with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from harken.config.loaded import Loaded
from harken.errors import NotFound, Refused
from harken.feed import Feed
from harken.operate.context import Context
from harken.operate.output_rows import Plain, plain
from harken.operate.paging import page_by
from harken.services import registry
from harken.source import Sample
from harken.suggest import suggest_fix

__all__ = ["curl", "list_webhooks"]

PREFIX = "/webhooks/"
# what the shell fills in: a secret that is sent itself is not shown
SECRET = "$SECRET"
BASIC = f"Basic {SECRET}"


async def list_webhooks(context: Context, *, cursor: str = "", limit: int = 0) -> Plain:
    """Every address with who may send there, who listens, what came last, and how much was refused."""
    feeds = _feeds(context)
    return page_by([await _row(context, feed) for feed in feeds.values()], cursor, limit, key="address")


async def curl(context: Context, *, id: str, event: int = 0) -> Plain:
    """A command that sends a webhook which is accepted, signed now; `id` is `<provider>/<id>`, or the id alone.

    It sends a sample, or what this event of the webhook had."""
    feed = _find(context, id)
    sample = await _again(context, feed, event) if event else _sample(context, feed)
    return {"path": feed.path, "command": _command(_address(context, feed), sample)}


def _feeds(context: Context) -> Mapping[str, Feed]:
    return {feed.path: feed for feed in context.feeds().values() if feed.path}


def _find(context: Context, id: str) -> Feed:
    feeds = _feeds(context)
    named = [path for path, feed in feeds.items() if id in (path, path.partition("/")[2], feed.name)]
    if not named:
        raise NotFound(f"there is no webhook {id}", fix=suggest_fix(id, feeds))
    if len(named) > 1:
        raise Refused(f"{id} may be any of {', '.join(sorted(named))}", fix="Write one of them")
    return feeds[named[0]]


async def _row(context: Context, feed: Feed) -> Plain:
    provider, _, id = feed.path.partition("/")
    newest = (await context.store.events(feed=feed.name, limit=1)).items
    at = newest[0].last_repeat_at or newest[0].recorded_at if newest else None
    return {
        "provider": provider,
        "id": id,
        "address": _address(context, feed),
        "triggers": sorted(trigger.name for trigger in context.triggers().values() if feed.name in trigger.feeds),
        "scheme": str(feed.query.get("scheme") or ("hmac" if feed.kind == "webhook" else provider)),
        "last_received_at": plain(at),
        "refused": context.engine.refused_count(feed.path) if context.engine else 0,
    }


def _address(context: Context, feed: Feed) -> str:
    return f"{_base(context, context.loaded)}{PREFIX}{feed.path}"


def _base(context: Context, loaded: Loaded | None) -> str:
    """Where webhooks are received, as seen from this machine; a proxy may give them another address."""
    running = str(context.engine.status().get("url", "")) if context.engine else ""
    if loaded is None:
        return running
    server = loaded.settings.server
    if server.webhook_port is not None:
        host = server.webhook_host or server.host
        return f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{server.webhook_port}"
    return running or f"http://{server.host}:{server.port}"


def _sample(context: Context, feed: Feed) -> Sample:
    plugin = registry().get(feed.kind)
    query = context.loaded.queries.get(feed.name) if context.loaded else None
    if feed.way != "push" or plugin is None or plugin.webhook_sample is None or query is None:
        raise Refused(f"{feed.path} has no sample to send", fix="Let its sender send one; most have a button for that")
    return plugin.webhook_sample(query, context.clock.now())


async def _again(context: Context, feed: Feed, event: int) -> Sample:
    plugin = registry().get(feed.kind)
    query = context.loaded.queries.get(feed.name) if context.loaded else None
    recorded = await context.store.event(event)
    if recorded is None or recorded.feed != feed.name:
        raise NotFound(f"event {event} did not come by {feed.path}", fix=f"See: harken events list --feed {feed.name}")
    if plugin is None or plugin.webhook_again is None or query is None:
        message = f"only the sender of {feed.path} itself can send event {event} again"
        raise Refused(message, fix=f"Replay it: harken events replay {event}")
    return plugin.webhook_again(query, recorded.key, recorded.data, context.clock.now())


def _command(address: str, sample: Sample) -> str:
    """For a shell: everything is quoted, except for the variable with a secret."""
    parts = ["curl", "-X", "POST"]
    for name, value in sample.headers.items():
        if value == BASIC:
            parts += ["-u", f'"harken:{SECRET}"']
        elif SECRET in value:
            parts += ["-H", f'"{name}: {value}"']
        else:
            parts += ["-H", shlex.quote(f"{name}: {value}")]
    return " ".join([*parts, "--data-binary", shlex.quote(sample.body.decode()), shlex.quote(address)])
