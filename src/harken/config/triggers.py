"""Read `trigger:` of a workflow file: the feed it listens to (by kind), the checks, and the Trigger itself."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import msgspec
from pydantic import BaseModel

from harken.config.accounts import plugin_of
from harken.config.feeds import internal_feed, read_inline_feed
from harken.config.findings import Path, Report
from harken.config.model_validation import as_table, check
from harken.config.resolver import FeedSpec, Resolver
from harken.config.schedules import ParsedSchedule, read_schedule
from harken.config.secret_values_to_mask import secrets_in, storable_query
from harken.config.streams import read_stream
from harken.config.trigger_gathering import Gathering, check_compiles, read_gather
from harken.config.trigger_schema import (
    KINDS,
    CommonBlock,
    DispatchBlock,
    EmptyBlock,
    EventBlock,
    FileBlock,
    PollBlock,
    TriggerBlock,
    WebhookBlock,
)
from harken.config.webhook_schema_inline_or_file import read_payload_schema
from harken.config.yaml.nodes import Items, Node, Scalar, Table, is_empty, locate, strings, to_storable
from harken.durations import format_duration
from harken.feed import Budget, Feed, Gather, Join, Spacing, Trigger
from harken.kit.standard_webhooks import MEMORY_SECONDS
from harken.schedule import Every, Quiet
from harken.source import Plugin
from harken.suggest import suggest_fix

__all__ = ["read_trigger"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
# longer than common providers repeat a delivery
_PUSH_MEMORY = MEMORY_SECONDS
# what the least patient of the common senders wait for
_RESPOND_SECONDS = 10.0
_DISPATCH_KEYS = frozenset(DispatchBlock.model_fields)
# what is written there is sent to a service, and nowhere else
_SENT = (("poll", "query"), ("stream", "query"))


def read_trigger(
    workflow: str, rev: str, node: Node, resolver: Resolver, report: Report, source: str
) -> tuple[Trigger, FeedSpec] | None:
    """Return the trigger and its feed; None when anything is wrong with them."""
    path: Path = ("trigger",)
    table = as_table(node, report, path)
    if table is None:
        return None
    block = check(TriggerBlock, table, report, path)
    kind = _read_kind(table, report, path)
    listener = _read_listener(kind, workflow, table, resolver, report, path) if kind else None
    _check_expressions(table, resolver, report, path)
    _check_secrets(table, report, path)
    _check_startup(listener.dispatch_table if listener else table, report, listener.path if listener else path)
    gathering = read_gather(block, table, resolver, report, path) if block else Gathering()
    if block is None or listener is None or report.failed:
        return None
    condition = _join_conditions(listener.condition, block.condition)
    if listener.condition:
        check_compiles(resolver.check_condition, Scalar(value=condition, place=table.place), report, (*path, "event"))
    _check_freshness(block, listener, table, report, path)
    _check_window(gathering.gather, listener, table, report, path)
    trigger = _build_trigger(workflow, rev, block, listener, source)
    changes = {"gather": gathering.gather, "throttle": gathering.throttle, "dedupe": gathering.dedupe}
    backfill = trigger.backfill or gathering.looks_back
    return msgspec.structs.replace(trigger, condition=condition, backfill=backfill, **changes), listener.spec


def _read_kind(table: Table, report: Report, path: Path) -> str | None:
    given = [name for name in KINDS if name in table.items]
    node = table.items.get("type")
    if node is not None:
        named = node.value if isinstance(node, Scalar) and isinstance(node.value, str) else ""
        if named not in KINDS:
            report.error(node.place, (*path, "type"), "there is no such trigger", suggest_fix(named, KINDS))
            return None
        given = [named, *(name for name in given if name != named)]
    if len(given) != 1:
        message = f"has {' and '.join(given)}" if given else "says nothing about what to listen to"
        fix = "Keep one, and put the other into a workflow of its own" if given else f"Add one of {', '.join(KINDS)}"
        report.error(table.place, path, message, fix, "invalid" if given else "missing")
        return None
    return given[0]


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """The feed of a trigger, and how its events become runs: read from `dispatch_table`, which is at `path`."""

    spec: FeedSpec
    dispatch: DispatchBlock
    dispatch_table: Table
    path: Path
    condition: str = ""
    types: tuple[str, ...] = ()


def _read_listener(
    kind: str, workflow: str, table: Table, resolver: Resolver, report: Report, path: Path
) -> Listener | None:
    """Return what the trigger listens to; None when the block of its kind is wrong."""
    node = table.items.get(kind, Scalar(value=None, place=table.place))
    inner: Path = (*path, kind)
    if kind == "poll":
        return _read_poll(workflow, node, table, resolver, report, path)
    dispatch = check(DispatchBlock, table.without(*(set(table.items) - _DISPATCH_KEYS)), report, path)
    types: tuple[str, ...] = ()
    condition = ""
    if kind == "event":
        spec: FeedSpec | None = FeedSpec(feed=internal_feed())
        types, condition = _read_event(node, report, inner)
    elif kind == "webhook":
        spec = _read_webhook(workflow, node, resolver, report, inner)
    elif kind == "stream":
        spec = _read_stream(workflow, node, resolver, report, inner)
    elif kind == "file":
        spec = _read_file(workflow, node, resolver, report, inner)
    elif kind == "schedule":
        spec = _read_schedule_trigger(workflow, node, resolver, report, inner)
    elif kind == "api":
        spec = _read_api(workflow, node, report, inner)
    else:
        spec = _read_named_feed(node, resolver, report, inner)
    if spec is None or dispatch is None:
        return None
    return Listener(spec=spec, dispatch=dispatch, dispatch_table=table, path=path, condition=condition, types=types)


def _read_poll(
    workflow: str, node: Node, outer: Table, resolver: Resolver, report: Report, path: Path
) -> Listener | None:
    table = as_table(node, report, (*path, "poll"))
    if table is None:
        return None
    for key in sorted(_DISPATCH_KEYS & set(outer.items) & set(table.items)):
        report.error(outer.keys[key], (*path, key), "stands in poll: as well", "Keep one of them", "duplicate")
    beside = outer.without(*(set(outer.items) - _DISPATCH_KEYS))
    dispatch = check(PollBlock, table, report, (*path, "poll"))
    outer_dispatch = check(DispatchBlock, beside, report, path)
    spec = read_inline_feed(table, resolver, report, (*path, "poll"))
    if dispatch is None or outer_dispatch is None or spec is None:
        return None
    given = {
        **outer_dispatch.model_dump(exclude_unset=True),
        **dispatch.model_dump(include=set(_DISPATCH_KEYS), exclude_unset=True),
    }
    whole = Table(items={**beside.items, **table.items}, keys={**outer.keys, **table.keys}, place=table.place)
    labelled = replace(spec, feed=msgspec.structs.replace(spec.feed, label=workflow))
    return Listener(
        spec=labelled, dispatch=DispatchBlock.model_construct(**given), dispatch_table=whole, path=(*path, "poll")
    )


def _read_stream(workflow: str, node: Node, resolver: Resolver, report: Report, path: Path) -> FeedSpec | None:
    table = as_table(node, report, path)
    spec = read_stream(table, resolver, report, path) if table else None
    return replace(spec, feed=msgspec.structs.replace(spec.feed, label=workflow)) if spec else None


def _read_file(workflow: str, node: Node, resolver: Resolver, report: Report, path: Path) -> FeedSpec | None:
    """A file trigger polls the service `files`; the query stands in the block itself, or is a path alone."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        node = Table(items={"path": node}, keys={"path": node.place}, place=node.place)
    table = as_table(node, report, path)
    if table is None:
        return None
    query = table.without(*FileBlock.model_fields)
    rest = table.without(*query.items)
    items: dict[str, Node] = {**rest.items, "integration": Scalar(value="files", place=table.place), "query": query}
    keys = {**rest.keys, "integration": table.place, "query": table.place}
    poll = Table(items=items, keys=keys, place=table.place)
    spec = read_inline_feed(poll, resolver, report, path, query_path=path)
    return replace(spec, feed=msgspec.structs.replace(spec.feed, label=workflow)) if spec else None


def _read_webhook(workflow: str, node: Node, resolver: Resolver, report: Report, path: Path) -> FeedSpec | None:
    table = as_table(node, report, path)
    if table is None:
        return None
    own = set(WebhookBlock.model_fields)
    block = check(WebhookBlock, table.without(*(set(table.items) - own)), report, path)
    if block is None:
        return None
    plugin = _read_provider(block.provider, table, resolver, report, path)
    if plugin is None:
        return None
    settings = _with_schema(table.without(*own), resolver, report, path)
    query = check(plugin.webhook_query, settings, report, path) if plugin.webhook_query else None
    name = block.id or workflow
    if not _ID.fullmatch(name):
        fix = "Add id: with letters, digits, dots and dashes"
        report.error(table.place, path, "the workflow's name cannot be part of an address", fix, "missing")
    account = _read_webhook_account(block, plugin, table, resolver, report, path)
    respond_seconds = _read_respond(block, table, report, path)
    if account is None or report.failed:
        return None
    resolver.secrets |= secrets_in(query)
    feed = _webhook_feed(f"{block.provider}/{name}", plugin, account, query, resolver)
    # a schema is another file, which may change alone
    given = to_storable(settings) if "schema" not in settings.items else None
    return FeedSpec(feed=msgspec.structs.replace(feed, respond_seconds=respond_seconds), query=query, given=given)


def _with_schema(table: Table, resolver: Resolver, report: Report, path: Path) -> Table:
    """The settings with the schema of the payload in place of the path of its file; without a wrong one."""
    node = table.items.get("schema")
    if node is None or is_empty(node):
        return table
    found = read_payload_schema(node, resolver.directory, resolver.allowed, report, (*path, "schema"))
    items = {**table.items, "schema": found} if found is not None else table.without("schema").items
    return Table(items=items, keys=table.keys, place=table.place)


def _read_respond(block: WebhookBlock, table: Table, report: Report, path: Path) -> float:
    """For how many seconds a sender waits for its run; 0 if it is answered at once."""
    if block.respond == "when_done":
        return block.respond_within or _RESPOND_SECONDS
    if block.respond_within is not None:
        place = table.keys["respond_within"]
        report.error(place, (*path, "respond_within"), "needs respond: when_done", "Add it, or remove this line")
    return 0.0


def _read_provider(name: str, table: Table, resolver: Resolver, report: Report, path: Path) -> Plugin | None:
    plugin = plugin_of("webhook" if name == "generic" else name, resolver.plugins)
    if plugin is None or plugin.webhook is None:
        known = ["generic", *(kind for kind, found in resolver.plugins.items() if found.webhook and kind != "webhook")]
        place = table.items["provider"].place if "provider" in table.items else table.place
        message = f"{name!r} is not a provider of webhooks"
        report.error(place, (*path, "provider"), message, suggest_fix(name, known), "unknown_name")
        return None
    return plugin


def _read_webhook_account(
    block: WebhookBlock, plugin: Plugin, table: Table, resolver: Resolver, report: Report, path: Path
) -> str | None:
    place = table.items["integration"].place if block.integration else table.place
    if block.integration is None:
        # a webhook is verified with its own secret, so receiving needs no account
        if plugin.account is None:
            resolver.account(plugin.kind, place, report, path)
        return plugin.kind
    found = resolver.account(block.integration, place, report, (*path, "integration"))
    if found is not None and found[1].kind != plugin.kind:
        message = f"{block.integration} is an integration of {found[1].kind}"
        report.error(place, (*path, "integration"), message, f"Name one of kind {plugin.kind}")
        return None
    return found[0].name if found else None


def _webhook_feed(address: str, plugin: Plugin, account: str, query: BaseModel | None, resolver: Resolver) -> Feed:
    return Feed(
        name=f"webhook/{address}",
        kind=plugin.kind,
        integration=account,
        way="push",
        query=storable_query(query, resolver.hide),
        # each message is an occurrence, also where polls tell only new subjects
        identity="change" if plugin.identity == "once" else plugin.identity,
        lookback=0.0,
        first="deliver",
        memory_seconds=_PUSH_MEMORY,
        path=address,
    )


def _read_schedule_trigger(
    workflow: str, node: Node, resolver: Resolver, report: Report, path: Path
) -> FeedSpec | None:
    parsed = read_schedule(node, report, path)
    plugin = plugin_of("cron", resolver.plugins)
    if parsed is None:
        return None
    if plugin is None:
        report.error(node.place, path, "the cron service is not installed", "Install Harken again", "unknown_name")
        return None
    query = _cron_query(plugin, parsed, node, report, path)
    resolver.account(plugin.kind, node.place, report, path)
    feed = Feed(
        name=f"schedule/{workflow}",
        kind=plugin.kind,
        integration=plugin.kind,
        query=storable_query(query) or parsed.query,
        schedule=parsed.schedule,
        lookback=0.0,
        first="deliver",
        jitter=0.0,
    )
    return FeedSpec(feed=feed, query=query, given=parsed.query)


def _cron_query(plugin: Plugin, parsed: ParsedSchedule, node: Node, report: Report, path: Path) -> BaseModel | None:
    if plugin.query is None:
        return None
    items: dict[str, Node] = {key: Scalar(value=value, place=node.place) for key, value in parsed.query.items()}
    return check(
        plugin.query, Table(items=items, keys=dict.fromkeys(items, node.place), place=node.place), report, path
    )


def _read_event(node: Node, report: Report, path: Path) -> tuple[tuple[str, ...], str]:
    if isinstance(node, Items) or (isinstance(node, Scalar) and isinstance(node.value, str)):
        node = Table(items={"types": node}, keys={"types": node.place}, place=node.place)
    block = check(EventBlock, node, report, path)
    if block is None:
        return (), ""
    if not block.type and block.workflow is None:
        message = "would listen to everything Harken does, itself included"
        report.error(node.place, path, message, "Name event types, or a workflow", "missing")
    # JSON and CEL quote strings alike
    return tuple(block.type), f"event.workflow == {json.dumps(block.workflow)}" if block.workflow else ""


def _read_api(workflow: str, node: Node, report: Report, path: Path) -> FeedSpec | None:
    if isinstance(node, Scalar) and node.value is True:
        node = Scalar(value=None, place=node.place)
    block = check(EmptyBlock, node, report, path)
    return FeedSpec(feed=internal_feed(f"api/{workflow}")) if block is not None else None


def _read_named_feed(node: Node, resolver: Resolver, report: Report, path: Path) -> FeedSpec | None:
    name = node.value if isinstance(node, Scalar) else None
    if is_empty(node) or not isinstance(name, str):
        report.error(node.place, path, "must be the name of a feed under feeds:", "Write feed: NAME", "wrong_type")
        return None
    if name in resolver.feeds:
        return resolver.feeds[name]
    if f"feed:{name}" in resolver.refused:
        report.error(node.place, path, f"the feed {name} was refused", "Correct it first", "depends")
    else:
        report.error(node.place, path, f"there is no feed {name!r}", suggest_fix(name, resolver.feeds), "unknown_name")
    return None


def _check_expressions(table: Table, resolver: Resolver, report: Report, path: Path) -> None:
    condition = table.items.get("condition")
    if isinstance(condition, Scalar) and isinstance(condition.value, str) and condition.value:
        check_compiles(resolver.check_condition, condition, report, (*path, "condition"))
    for inside in (("concurrency_key",), ("input_mapping",), ("poll", "input_mapping")):
        for rest, scalar in strings(_node_at(table, inside)):
            check_compiles(resolver.check_template, scalar, report, (*path, *inside, *rest))
            if inside == ("concurrency_key",):
                _check_key(scalar, report, path)


def _check_key(scalar: Scalar, report: Report, path: Path) -> None:
    """A key without a template is one lock for all events, which may be meant."""
    text = str(scalar.value)
    if "{{" not in text and "." in text:
        fix = f"Write {{{{.trigger.event.{text.removeprefix('event.')}}}}} for the value of a field"
        report.warn(scalar.place, (*path, "concurrency_key"), "is one key for all events", fix)


def _node_at(node: Node, path: tuple[str, ...]) -> Node:
    for part in path:
        found = node.items.get(part) if isinstance(node, Table) else None
        if found is None:
            return Scalar(value=None, place=node.place)
        node = found
    return node


def _check_secrets(table: Table, report: Report, path: Path) -> None:
    """Report secrets outside of what is sent to a service: conditions and inputs are stored with each decision."""
    for inside, scalar in strings(table):
        if scalar.shown is not None and inside[0] != "webhook" and inside[:2] not in _SENT:
            fix = "Use it in poll.query, in stream.query, in webhook or in a step"
            report.error(scalar.place, (*path, *inside), "a secret cannot stand here", fix)


def _check_startup(table: Table, report: Report, path: Path) -> None:
    startup = getattr(table.items.get("startup"), "value", None)
    if startup == "backfill" and "backfill" not in table.items:
        report.error(table.keys["startup"], (*path, "startup"), "needs backfill:", "Add backfill: 4h", "missing")
    if startup == "ignore_historical" and "backfill" in table.items:
        message = "does not go with startup: ignore_historical"
        report.error(table.keys["backfill"], (*path, "backfill"), message, "Remove one of them")


def _check_freshness(block: CommonBlock, listener: Listener, table: Table, report: Report, path: Path) -> None:
    schedule = listener.spec.feed.schedule
    if block.stale_after and isinstance(schedule, Every) and block.stale_after < 2 * schedule.seconds:
        fix = f"Write at least {format_duration(2 * schedule.seconds)}, or read it more often"
        message = "is shorter than two intervals, so it is stale between two reads"
        report.warn(table.keys["stale_after"], (*path, "stale_after"), message, fix, "too_short")


def _check_window(gather: Gather | None, listener: Listener, table: Table, report: Report, path: Path) -> None:
    patience = listener.spec.feed.respond_seconds
    if gather is None or not patience:
        return
    seconds, name = (gather.within, "within") if isinstance(gather, Join) else (gather.window, "window")
    if seconds >= patience:
        message = (
            f"is not shorter than the {format_duration(patience)} that a sender waits, so few are told how it ended"
        )
        fix = f"Make the {name} shorter, respond_within longer, or remove respond: when_done"
        inside = ("gather", type(gather).__name__.lower(), name)
        report.warn(locate(table, inside), (*path, *inside), message, fix)


def _build_trigger(workflow: str, rev: str, block: CommonBlock, listener: Listener, source: str) -> Trigger:
    dispatch = listener.dispatch
    return Trigger(
        name=workflow,
        feed=listener.spec.feed.name,
        workflow=workflow,
        workflow_rev=rev,
        mapping=dispatch.input_mapping,
        overlap=block.overlap,
        concurrency_key=block.concurrency_key,
        spacing=_spacing(listener),
        priority=block.priority,
        startup=dispatch.startup or "since_last",
        backfill=dispatch.backfill or 0.0,
        flood_limit=block.flood_limit,
        types=listener.types,
        max_attempts=block.max_attempts,
        stale_after=block.stale_after or 0.0,
        max_age=block.max_age or 0.0,
        quiet=_quiet_hours(block),
        budget=Budget(**block.budget.model_dump()) if block.budget else None,
        source=source,
    )


def _quiet_hours(block: CommonBlock) -> Quiet | None:
    return Quiet(**block.quiet_hours.model_dump()) if block.quiet_hours else None


def _spacing(listener: Listener) -> Spacing | None:
    query, dispatch = listener.spec.query, listener.dispatch
    written = query.model_fields_set if query is not None else frozenset()
    per_tick = dispatch.max_per_tick or (getattr(query, "max_per_tick", 0) if "max_per_tick" in written else 0)
    delay = dispatch.dispatch_delay_ms or (
        getattr(query, "dispatch_delay_ms", 0) if "dispatch_delay_ms" in written else 0
    )
    return Spacing(per_tick=per_tick or 0, delay=(delay or 0) / 1_000) if per_tick or delay else None


def _join_conditions(first: str, second: str) -> str:
    return f"({first}) && ({second})" if first and second.strip() else first or second.strip()
