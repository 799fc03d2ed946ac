"""Feeds: the named ones under `feeds:`, and those that a poll trigger describes in place."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from pydantic import BaseModel, Field, SecretStr
from pydantic_core import to_jsonable_python

from harken.config.accounts import plugin_of
from harken.config.findings import Path, Report
from harken.config.interpolate import is_secret_name
from harken.config.loaded import Account, digest
from harken.config.resolver import Made, Resolver
from harken.config.schedules import read_schedule, shortest_gap
from harken.config.settings import Duration
from harken.config.validate import Strict, as_table, check
from harken.config.yaml.nodes import Node, Table, locate
from harken.durations import format_duration
from harken.event import Identity
from harken.feed import INTERNAL, Feed, First
from harken.schedule import Every, Schedule
from harken.source import Plugin

__all__ = [
    "DEFAULT_INTERVAL",
    "NamedFeed",
    "Reading",
    "dump",
    "host_of",
    "internal_feed",
    "is_loopback",
    "keepable",
    "read_feed",
    "read_query",
    "read_reading",
    "share",
    "written_secrets",
]


_MASK = "**********"

# `?key=PROJ` names something, and is no credential
_SHORTEST_NAMED = 12

_SENSITIVE = frozenset(
    {"secret", "token", "password", "api_key", "app_key", "client_secret", "access_token", "authorization"}
    | {"proxy-authorization", "x-api-key", "cookie"}
)


def read_query(
    model: type[BaseModel] | None, node: Node, report: Report, path: Path, *, kind: str
) -> tuple[BaseModel | None, bool]:
    """Return the validated query, and whether it could be read. Asking for everything is allowed, with a warning."""
    table = as_table(node, report, path)
    if table is None:
        return None, False
    if model is None:
        for key in table.items:
            report.error(table.keys[key], (*path, key), f"{kind} has no query", "Remove it", "unknown_key")
        return None, not table.items
    if not table.items and not any(field.is_required() for field in model.model_fields.values()):
        message = f"an empty query asks {kind} for everything it shows"
        report.warn(table.place, path, message, "Name what you want, if that is too much", "empty_query")
    found = check(model, table, report, path)
    return found, found is not None


def dump(model: BaseModel | None) -> dict[str, Any]:
    """The query as plain JSON values with its defaults, secrets included: for comparing, never for keeping."""
    return to_jsonable_python(_open(model.model_dump())) if model is not None else {}


def _open(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Mapping):
        return {key: _open(inner) for key, inner in value.items()}
    return [_open(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def keepable(model: BaseModel | None, hide: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
    """The query as plain JSON values with its defaults, and without the secrets that were written into it.

    `hide` puts references in the place of those that came from one.
    """
    return _masked(hide(model.model_dump(mode="json"))) if model is not None else {}


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _mask(str(key), inner) for key, inner in value.items()}
    if isinstance(value, str):
        return _masked_address(value)
    return [_masked(inner) for inner in value] if isinstance(value, list) else value


def _mask(key: str, value: Any) -> Any:
    return _MASK if isinstance(value, str) and value and key.lower() in _SENSITIVE else _masked(value)


def _masked_address(text: str) -> str:
    for secret in _in_address(text):
        text = text.replace(secret, _MASK)
    return text


def _in_address(text: str) -> set[str]:
    """The password of an address, and what its parameters say that are called like secrets; references are none."""
    try:
        parts = urlsplit(text) if "://" in text else None
        password = parts.password or "" if parts else ""
    except ValueError:
        return set()
    pairs = [pair.partition("=") for pair in parts.query.split("&")] if parts else []
    found = {value for name, _, value in pairs if is_secret_name(unquote(name)) and len(value) >= _SHORTEST_NAMED}
    return {value for value in {password, *found} if value and not value.startswith("${")}


def written_secrets(value: Any, key: str = "") -> set[str]:
    """The secrets in a dumped query by the names of their settings, to be kept out of logs."""
    if isinstance(value, Mapping):
        return set().union(*(written_secrets(inner, str(name)) for name, inner in value.items()))
    if isinstance(value, list):
        return set().union(*(written_secrets(inner, key) for inner in value))
    if not isinstance(value, str):
        return set()
    # `Bearer x`: what follows the scheme is the secret
    named = {value.rpartition(" ")[2]} - {""} if _is_sensitive(key, value) else set()
    return named | {unquote(secret) for secret in _in_address(value)}


def _is_sensitive(key: str, value: str) -> bool:
    # `replication_key: updated_at` names something, too
    like_one = len(value) >= _SHORTEST_NAMED and any(char.isdigit() for char in value)
    return key.lower() in _SENSITIVE or (like_one and is_secret_name(key))


def host_of(query: Mapping[str, Any], base_url: str = "") -> str:
    """The host that a query reads from, as far as it says so."""
    for name, value in query.items():
        if name.endswith("url") and isinstance(value, str) and value:
            base_url = value
            break
    try:
        return urlsplit(base_url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


DEFAULT_INTERVAL = 30.0

LOOPBACK_FLOOR = 1.0

# they space the runs of one trigger, and say nothing about what is read
_NOT_READ = frozenset({"max_per_tick", "dispatch_delay_ms"})


class Reading(Strict):
    """What is read, and how often."""

    integration: str = Field(min_length=1)
    query: Any = None
    interval: Duration | None = None
    schedule: Any = None
    identity: Identity | None = None
    lookback: Duration | None = None
    first: First | None = None
    account: str | None = None


class NamedFeed(Reading):
    """A feed under `feeds:`."""

    page_timeout: Duration = 10.0
    tick_timeout: Duration = 120.0
    jitter: float = Field(default=0.1, ge=0, le=0.5)


def read_feed(name: str, node: Node, around: Resolver, report: Report, path: Path) -> Made | None:
    """Return the feed that stands under `feeds:`; None when anything in it is wrong."""
    table = as_table(node, report, path)
    block = check(NamedFeed, table, report, path) if table else None
    made = read_reading(table, around, report, path) if table else None
    if block is None or made is None or report.failed:
        return None
    feed = msgspec.structs.replace(
        made.feed,
        name=name,
        page_timeout=block.page_timeout,
        tick_timeout=block.tick_timeout,
        jitter=block.jitter,
    )
    return Made(feed=feed, query=made.query)


def read_reading(table: Table, around: Resolver, report: Report, path: Path) -> Made | None:
    """Return the feed that this describes, named by what it reads. Every wrong thing in it gets its finding."""
    block = check(Reading, table.without(*(set(table.items) - set(Reading.model_fields))), report, path)
    integration = table.items.get("integration")
    name = getattr(integration, "value", None)
    if integration is None or not isinstance(name, str) or not name:
        return None
    service = plugin_of(name, around.plugins)
    if service is not None and "account" in table.items:
        found = _other_account(service, table.items["account"], around, report, (*path, "account"))
    else:
        found = around.account(name, integration.place, report, (*path, "integration"))
    if found is None:
        return None
    account, plugin = found
    if plugin.source is None:
        fix = "Use another integration, or a webhook trigger"
        report.error(integration.place, (*path, "integration"), f"{plugin.kind} cannot be polled", fix)
        return None
    node = table.items.get("query", Table(items={}, keys={}, place=table.place))
    query, readable = read_query(plugin.query, node, report, (*path, "query"), kind=plugin.kind)
    if block is None or not readable:
        return None
    plain = dump(query)
    around.secrets |= written_secrets(plain)
    schedule = _schedule(block, table, plugin, is_loopback(host_of(plain, account.base_url)), report, path)
    if schedule is None:
        return None
    feed = _feed(block, account, plugin, around.hide(plain), schedule)
    return Made(feed=msgspec.structs.replace(feed, query=keepable(query, around.hide)), query=query)


def _other_account(
    plugin: Plugin, node: Node, around: Resolver, report: Report, path: Path
) -> tuple[Account, Plugin] | None:
    """The account that `account:` names: for services that sign in at another one, of which there may be several."""
    name = getattr(node, "value", None)
    if not plugin.uses:
        report.error(node.place, path, f"{plugin.kind} has accounts of its own", "Name it under integration:")
        return None
    found = around.account(str(name), node.place, report, path)
    if found is None:
        return None
    if found[0].kind != plugin.uses:
        report.error(node.place, path, f"{name} is not an account of {plugin.uses}", "Name another")
        return None
    return found[0], plugin


def _schedule(
    block: Reading, table: Table, plugin: Plugin, loopback: bool, report: Report, path: Path
) -> Schedule | None:
    floor = LOOPBACK_FLOOR if loopback else plugin.floor_seconds
    key, schedule = "interval", None
    if block.schedule is not None:
        key = "schedule"
        if block.interval is not None:
            report.error(table.keys["interval"], (*path, "interval"), "stands beside schedule", "Keep one of them")
            return None
        planned = read_schedule(table.items["schedule"], report, (*path, "schedule"))
        schedule = planned.schedule if planned else None
    else:
        schedule = Every(seconds=max(DEFAULT_INTERVAL, floor) if block.interval is None else block.interval)
    if schedule is not None and shortest_gap(schedule) < floor:
        at, fix = locate(table, (key,)), f"Read it every {format_duration(floor)} at most"
        report.error(at, (*path, key), f"{plugin.kind} may not be read that often", fix, "too_often")
        return None
    return schedule


def _feed(block: Reading, account: Account, plugin: Plugin, query: dict[str, Any], schedule: Schedule) -> Feed:
    identity = block.identity or plugin.identity
    lookback = plugin.lookback_seconds if block.lookback is None else block.lookback
    first = block.first or plugin.first
    # an interval may be shared, since the shortest serves all; any other schedule is a reading of its own
    when = None if isinstance(schedule, Every) else schedule
    asked = {key: value for key, value in query.items() if key not in _NOT_READ}
    mark = digest([account.name, asked, identity, lookback, first, *([when] if when else [])], 8)
    return Feed(
        name=f"{plugin.kind}-{mark}",
        kind=plugin.kind,
        integration=account.name,
        schedule=schedule,
        identity=identity,
        lookback=lookback,
        first=first,
        backoff=account.backoff,
    )


def share(known: Made | None, made: Made) -> Made:
    """Return the feed that serves both listeners: equal but for the interval, of which the shortest holds."""
    if known is None:
        return made
    both = (known.feed.schedule, made.feed.schedule)
    seconds = [schedule.seconds for schedule in both if isinstance(schedule, Every)]
    if len(seconds) < len(both) or known.feed.name != made.feed.name:
        return known
    return Made(feed=msgspec.structs.replace(known.feed, schedule=Every(seconds=min(seconds))), query=known.query)


def internal_feed(name: str = INTERNAL) -> Feed:
    """A feed that nothing is read for: what Harken does itself, or what is sent to a trigger's API."""
    return Feed(
        name=name, kind=INTERNAL, integration=INTERNAL, way="internal", identity="change", lookback=0.0, first="deliver"
    )
