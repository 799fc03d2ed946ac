"""What each kind of trigger listens to: poll, webhook, schedule, event, api, or a feed by its name."""

from __future__ import annotations

import json
import re

import msgspec
from pydantic import BaseModel

from harken.config.accounts import plugin_of
from harken.config.feeds import internal_feed, read_reading
from harken.config.findings import Path, Report, nearest
from harken.config.queries import keepable
from harken.config.resolver import Made, Surroundings
from harken.config.schedules import Planned, read_schedule
from harken.config.secrets import secrets_in
from harken.config.trigger_schema import EventBlock, Listening, Mapped, PollBlock, WebhookBlock
from harken.config.validate import as_table, check
from harken.config.yaml.nodes import Items, Node, Scalar, Table, is_empty
from harken.feed import Feed
from harken.source import Plugin

__all__ = ["Heard", "hear"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
# longer than the longest time for which common providers repeat a delivery
_PUSH_MEMORY = 72 * 3_600.0
_MAPPED = frozenset(Mapped.model_fields)


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """The feed, and what its events are asked for; `mapped` is where that is written."""

    made: Made
    asked: Mapped
    mapped: Table
    path: Path
    condition: str = ""
    types: tuple[str, ...] = ()


def hear(kind: str, workflow: str, table: Table, around: Surroundings, report: Report, path: Path) -> Heard | None:
    """Return what the trigger listens to; None when the block of its kind is wrong."""
    node = table.items.get(kind, Scalar(value=None, place=table.place))
    inner: Path = (*path, kind)
    if kind == "poll":
        return _poll(node, table, around, report, path)
    asked = check(Mapped, table.without(*(set(table.items) - _MAPPED)), report, path)
    types: tuple[str, ...] = ()
    condition = ""
    if kind == "event":
        made: Made | None = Made(feed=internal_feed())
        types, condition = _event(node, report, inner)
    elif kind == "webhook":
        made = _webhook(workflow, node, around, report, inner)
    elif kind == "schedule":
        made = _schedule(workflow, node, around, report, inner)
    elif kind == "api":
        made = _api(workflow, node, report, inner)
    else:
        made = _named(node, around, report, inner)
    if made is None or asked is None:
        return None
    return Heard(made=made, asked=asked, mapped=table, path=path, condition=condition, types=types)


def _poll(node: Node, outer: Table, around: Surroundings, report: Report, path: Path) -> Heard | None:
    table = as_table(node, report, (*path, "poll"))
    if table is None:
        return None
    for key in sorted(_MAPPED & set(outer.items) & set(table.items)):
        report.error(outer.keys[key], (*path, key), "stands in poll: as well", "Keep one of them", "duplicate")
    beside = outer.without(*(set(outer.items) - _MAPPED))
    asked = check(PollBlock, table, report, (*path, "poll"))
    outside = check(Mapped, beside, report, path)
    made = read_reading(table, around, report, (*path, "poll"))
    if asked is None or outside is None or made is None:
        return None
    given = {**outside.model_dump(exclude_unset=True), **asked.model_dump(include=set(_MAPPED), exclude_unset=True)}
    whole = Table(items={**beside.items, **table.items}, keys={**outer.keys, **table.keys}, place=table.place)
    return Heard(made=made, asked=Mapped.model_construct(**given), mapped=whole, path=(*path, "poll"))


def _webhook(workflow: str, node: Node, around: Surroundings, report: Report, path: Path) -> Made | None:
    table = as_table(node, report, path)
    if table is None:
        return None
    own = set(WebhookBlock.model_fields)
    block = check(WebhookBlock, table.without(*(set(table.items) - own)), report, path)
    if block is None:
        return None
    plugin = _provider(block.provider, table, around, report, path)
    if plugin is None:
        return None
    query = check(plugin.webhook_query, table.without(*own), report, path) if plugin.webhook_query else None
    name = block.id or workflow
    if not _ID.fullmatch(name):
        fix = "Add id: with letters, digits, dots and dashes"
        report.error(table.place, path, "the workflow's name cannot be part of an address", fix, "missing")
    account = _webhook_account(block, plugin, table, around, report, path)
    if account is None or report.failed:
        return None
    around.secrets |= secrets_in(query)
    return Made(feed=_pushed(f"{block.provider}/{name}", plugin, account, query, around), query=query)


def _pushed(address: str, plugin: Plugin, account: str, query: BaseModel | None, around: Surroundings) -> Feed:
    return Feed(
        name=f"webhook/{address}",
        kind=plugin.kind,
        integration=account,
        way="push",
        query=keepable(query, around.hide),
        identity=plugin.identity,
        lookback=0.0,
        first="deliver",
        memory_seconds=_PUSH_MEMORY,
        path=address,
    )


def _provider(name: str, table: Table, around: Surroundings, report: Report, path: Path) -> Plugin | None:
    plugin = plugin_of("webhook" if name == "generic" else name, around.plugins)
    if plugin is None or plugin.webhook is None:
        known = ["generic", *(kind for kind, found in around.plugins.items() if found.webhook and kind != "webhook")]
        place = table.items["provider"].place if "provider" in table.items else table.place
        message = f"{name!r} is not a provider of webhooks"
        report.error(place, (*path, "provider"), message, nearest(name, known), "unknown_name")
        return None
    return plugin


def _webhook_account(
    block: WebhookBlock, plugin: Plugin, table: Table, around: Surroundings, report: Report, path: Path
) -> str | None:
    place = table.items["integration"].place if block.integration else table.place
    if block.integration is None:
        # a webhook is verified with its own secret, so an account is not needed to receive it
        if plugin.account is None:
            around.account(plugin.kind, place, report, path)
        return plugin.kind
    found = around.account(block.integration, place, report, (*path, "integration"))
    if found is not None and found[1].kind != plugin.kind:
        message = f"{block.integration} is an integration of {found[1].kind}"
        report.error(place, (*path, "integration"), message, f"Name one of kind {plugin.kind}")
        return None
    return found[0].name if found else None


def _schedule(workflow: str, node: Node, around: Surroundings, report: Report, path: Path) -> Made | None:
    planned = read_schedule(node, report, path)
    plugin = plugin_of("cron", around.plugins)
    if planned is None:
        return None
    if plugin is None:
        report.error(node.place, path, "the cron service is not installed", "Install Harken again", "unknown_name")
        return None
    query = _cron_query(plugin, planned, node, report, path)
    around.account(plugin.kind, node.place, report, path)
    feed = Feed(
        name=f"schedule/{workflow}",
        kind=plugin.kind,
        integration=plugin.kind,
        query=keepable(query) or planned.query,
        schedule=planned.schedule,
        lookback=0.0,
        first="deliver",
        jitter=0.0,
    )
    return Made(feed=feed, query=query)


def _cron_query(plugin: Plugin, planned: Planned, node: Node, report: Report, path: Path) -> BaseModel | None:
    if plugin.query is None:
        return None
    items: dict[str, Node] = {key: Scalar(value=value, place=node.place) for key, value in planned.query.items()}
    return check(
        plugin.query, Table(items=items, keys=dict.fromkeys(items, node.place), place=node.place), report, path
    )


def _event(node: Node, report: Report, path: Path) -> tuple[tuple[str, ...], str]:
    if isinstance(node, Items) or (isinstance(node, Scalar) and isinstance(node.value, str)):
        node = Table(items={"types": node}, keys={"types": node.place}, place=node.place)
    block = check(EventBlock, node, report, path)
    if block is None:
        return (), ""
    if not block.type and block.workflow is None:
        message = "would listen to everything Harken does, itself included"
        report.error(node.place, path, message, "Name event types, or a workflow", "missing")
    # json's quoting is also CEL's
    return tuple(block.type), f"event.workflow == {json.dumps(block.workflow)}" if block.workflow else ""


def _api(workflow: str, node: Node, report: Report, path: Path) -> Made | None:
    if isinstance(node, Scalar) and node.value is True:
        node = Scalar(value=None, place=node.place)
    block = check(Listening, node, report, path)
    return Made(feed=internal_feed(f"api/{workflow}")) if block is not None else None


def _named(node: Node, around: Surroundings, report: Report, path: Path) -> Made | None:
    name = node.value if isinstance(node, Scalar) else None
    if is_empty(node) or not isinstance(name, str):
        report.error(node.place, path, "must be the name of a feed under feeds:", "Write feed: NAME", "wrong_type")
        return None
    if name in around.feeds:
        return around.feeds[name]
    if f"feed:{name}" in around.refused:
        report.error(node.place, path, f"the feed {name} was refused", "Correct it first", "depends")
    else:
        report.error(node.place, path, f"there is no feed {name!r}", nearest(name, around.feeds), "unknown_name")
    return None
