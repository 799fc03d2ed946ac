"""Trigger nodes of n8n as trigger blocks, and what their fields are called in the event."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from harken.config.importers import Variable, slug, variable_name
from harken.config.importers.n8n.export import Node, objects_of
from harken.config.importers.n8n.expressions import Untranslatable
from harken.docs_urls import address_of

__all__ = ["Started", "is_trigger", "start_of"]

Fields = tuple[str | int, ...]

_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}
_RSS: Mapping[str, str] = {
    "title": "title",
    "link": "link",
    "content": "summary",
    "contentSnippet": "summary",
    "isoDate": "published",
    "pubDate": "published",
    "creator": "author",
    "author": "author",
    "guid": "id",
    "id": "id",
}
_MAIL: Mapping[str, str] = {"subject": "subject", "from": "from", "to": "to", "textPlain": "body", "date": "date"}
_FAILED_RUN: Mapping[Fields, Fields] = {
    ("execution", "id"): ("run",),
    ("execution", "error", "message"): ("error",),
    ("workflow", "name"): ("workflow",),
}
_BY_HAND = ("manualTrigger", "start", "executeWorkflowTrigger", "n8nTrigger")
_SENDERS = {"githubTrigger": "github", "gitlabTrigger": "gitlab", "stripeTrigger": "stripe", "jiraTrigger": "jira"}


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The trigger blocks (None: started by a person), how fields of the item are called, what is said about it."""

    blocks: tuple[Mapping[str, Any] | None, ...]
    fields: Callable[[Fields], Fields] = lambda fields: fields
    variables: Mapping[str, Variable] = {}
    remarks: tuple[tuple[str, str], ...] = ()


def is_trigger(node: Node) -> bool:
    known = ("webhook", "cron", "interval", "emailReadImap", "start")
    return node.kind in known or node.kind.lower().endswith("trigger")


def start_of(node: Node, zone: str) -> Started:
    """How the workflow starts; raises Untranslatable for what no trigger here can do."""
    if node.kind in _BY_HAND:
        return Started(blocks=(None,))
    if node.kind in _SENDERS:
        return _known_sender(node, _SENDERS[node.kind])
    make = _KINDS.get(node.kind)
    if make is None:
        raise Untranslatable(
            f"there is no trigger for {node.kind}", "Write a trigger: a poll, a webhook or a stream of that service"
        )
    return make(node, zone)


def _schedule(node: Node, zone: str) -> Started:
    times = _times(node.parameters.get("rule"), "interval")
    blocks = [_scheduled(entry, zone) for entry in times]
    remarks = tuple(remark for entry in times for remark in _counts_anew(entry))
    return Started(
        blocks=tuple({"schedule": block} for block in blocks),
        fields=_scheduled_fields,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _counts_anew(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a cron line cannot say: n8n counts days from one fire to the next, across the end of a month."""
    if (entry.get("field") or "days") == "days" and (every := _number(entry, "daysInterval", 1)) > 1:
        yield f"every {every} days is counted anew from the first of each month", f"Write every: {every}d"


def _scheduled(entry: Mapping[str, Any], zone: str) -> dict[str, Any]:
    field = entry.get("field") or "days"
    minute, hour = _number(entry, "triggerAtMinute", 0), _number(entry, "triggerAtHour", 0)
    if field == "cronExpression":
        return _cron(str(entry.get("expression") or "").removeprefix("="), zone)
    if field in ("seconds", "minutes"):
        usual = 30 if field == "seconds" else 5
        return {"every": f"{_number(entry, f'{field}Interval', usual)}{field[0]}"}
    if field == "hours":
        every = _number(entry, "hoursInterval", 1)
        if every == 24:
            return _cron(f"{minute} 0 * * *", zone)
        if every < 1 or 24 % every:
            # a cron line would begin anew each midnight
            return {"every": f"{every}h"}
        return _cron(f"{minute} * * * *", zone) if every == 1 else _cron(f"{minute} */{every} * * *", zone)
    every = _number(entry, f"{field}Interval", 1)
    if field == "days":
        return _cron(f"{minute} {hour} * * *" if every == 1 else f"{minute} {hour} */{every} * *", zone)
    if field == "weeks" and every == 1:
        days = entry.get("triggerAtDay") or [0]
        return _cron(f"{minute} {hour} * * {','.join(str(day) for day in _list(days))}", zone)
    if field == "months":
        months = "*" if every == 1 else f"*/{every}"
        return _cron(f"{minute} {hour} {_number(entry, 'triggerAtDayOfMonth', 1)} {months} *", zone)
    raise Untranslatable(f"every {every} {field} is no time that a schedule has", "Write a cron line")


def _old_cron(node: Node, zone: str) -> Started:
    blocks = [_time_of(entry, zone) for entry in _times(node.parameters.get("triggerTimes"), "item")]
    return Started(blocks=tuple({"schedule": block} for block in blocks), fields=_scheduled_fields)


def _times(written: Any, name: str) -> list[Mapping[str, Any]]:
    """The times of a node. One that was left as it was is not in an export, and stands here without a field."""
    entries = written.get(name) if isinstance(written, dict) else None
    found = objects_of(entries)
    if entries and not found:
        raise Untranslatable("its times cannot be read", "Write the schedule out")
    return found or [{}]


def _time_of(entry: Mapping[str, Any], zone: str) -> dict[str, Any]:
    mode = str(entry.get("mode") or "everyDay")
    minute, hour = _number(entry, "minute", 0), _number(entry, "hour", 14)
    lines = {
        "everyMinute": "* * * * *",
        "everyHour": f"{minute} * * * *",
        "everyDay": f"{minute} {hour} * * *",
        "everyWeek": f"{minute} {hour} * * {entry.get('weekday', '1')}",
        "everyMonth": f"{minute} {hour} {_number(entry, 'dayOfMonth', 1)} * *",
        "custom": str(entry.get("cronExpression") or ""),
    }
    if mode == "everyX":
        return {"every": f"{_number(entry, 'value', 2)}{str(entry.get('unit') or 'hours')[0]}"}
    if mode not in lines:
        raise Untranslatable(f"the mode {mode} is no time that a schedule has", "Write a cron line")
    return _cron(lines[mode], zone)


def _interval(node: Node, zone: str) -> Started:
    unit = str(node.parameters.get("unit") or "seconds")
    seconds = _number(node.parameters, "interval", 1) * _SECONDS.get(unit, 1)
    return Started(blocks=({"schedule": {"every": f"{seconds}s"}},), fields=_scheduled_fields)


def _webhook(node: Node, zone: str) -> Started:
    path = node.parameters.get("path")
    block: dict[str, Any] = {"id": slug(str(path or node.name)) or "webhook"}
    variables: dict[str, Variable] = {}
    remarks = []
    way = node.parameters.get("authentication") or "none"
    secret = variable_name("n8n", node.name, "secret")
    if way in ("headerAuth", "basicAuth"):
        block |= {"scheme": "api_key" if way == "headerAuth" else "basic", "secret": f"${{{secret}}}"}
        variables[secret] = Variable(meaning=f"what senders of {node.name} prove themselves with")
    elif way == "none":
        block |= {"scheme": "none", "allow_unsigned": True}
        remarks.append(("anybody can send to it, as in n8n", "Set scheme: hmac or api_key and a secret"))
    else:
        raise Untranslatable(f"the authentication {way} is not one that webhooks have", "Use hmac, api_key or basic")
    if node.parameters.get("responseMode") in ("lastNode", "responseNode"):
        block["respond"] = "when_done"
        remarks.append(("the sender gets the outputs of the workflow", "Write outputs: with what it waits for"))
    options = node.parameters.get("options")
    names = [name for name in ("ipWhitelist", "ignoreBots") if isinstance(options, dict) and options.get(name)]
    if names:
        remarks.append((f"this is not taken over: {', '.join(names)}", "Let a proxy before Harken refuse them"))
    methods = [str(method) for method in _list(node.parameters.get("httpMethod") or "GET")]
    if "POST" not in methods:
        remarks.append((f"it was asked with {methods[0]}: here it is sent with POST", "Change the sender"))
    return Started(blocks=({"webhook": block},), fields=_webhook_fields, variables=variables, remarks=tuple(remarks))


def _webhook_fields(fields: Fields) -> Fields:
    if not fields or fields[0] == "body":
        return fields[1:]
    if fields[0] in ("headers", "query", "params", "webhookUrl", "executionMode"):
        raise Untranslatable(f"the {fields[0]} of a request are not part of the event", "Send it in the body")
    return fields


def _known_sender(node: Node, provider: str) -> Started:
    secret = variable_name("n8n", node.name, "secret")
    block = {"provider": provider, "id": slug(node.name) or provider, "secret": f"${{{secret}}}"}
    if provider == "jira":
        raise Untranslatable("jira is polled here, not registered by us", "Write poll: {integration: jira, query: …}")
    remark = (f"n8n registered the webhook at {provider}: here you do", address_of("docs/how-to/receive-webhooks.md"))
    variables = {secret: Variable(meaning=f"the secret of the webhook at {provider}")}
    return Started(blocks=({"webhook": block},), fields=_webhook_fields, variables=variables, remarks=(remark,))


def _rss(node: Node, zone: str) -> Started:
    url = node.parameters.get("feedUrl")
    if not isinstance(url, str) or url.startswith("="):
        raise Untranslatable("its address is not written out", "Write feed_url:")
    query = {"feed_url": url}
    return Started(
        blocks=({"poll": {"integration": "rss", **_pace(node, zone), "query": query}},), fields=_renamed(_RSS)
    )


def _imap(node: Node, zone: str) -> Started:
    query = {"folder": node.parameters.get("mailbox") or "INBOX"}
    remark = ("the mailbox is that of the integration imap", "harken integrations imap configure")
    block = {"poll": {"integration": "imap", "interval": "1m", "query": query}}
    return Started(blocks=(block,), fields=_renamed(_MAIL), remarks=(remark,))


def _files(node: Node, zone: str) -> Started:
    path = node.parameters.get("path")
    if not isinstance(path, str) or not path or path.startswith("="):
        raise Untranslatable("its path is not written out", "Write path:")
    block: dict[str, Any] = {"path": path}
    if node.parameters.get("triggerOn") == "file":
        folder, _, name = path.rpartition("/")
        block = {"path": folder or ".", "include": name}
    return Started(blocks=({"file": block},))


def _errors(node: Node, zone: str) -> Started:
    return Started(blocks=({"event": {"type": ["run.failed", "run.dead"]}},), fields=_failed_run_fields)


def _failed_run_fields(fields: Fields) -> Fields:
    found = _FAILED_RUN.get(fields)
    if found is None:
        shown = ".".join(map(str, fields)) or "all"
        raise Untranslatable(
            f"a failed run has no {shown} here", "It has run, trigger, workflow, status, error, attempt"
        )
    return found


def _renamed(names: Mapping[str, str]) -> Callable[[Fields], Fields]:
    def rename(fields: Fields) -> Fields:
        if not fields:
            return fields
        found = names.get(str(fields[0]))
        if found is None:
            raise Untranslatable(
                f"the event has no field {fields[0]}", f"It has {', '.join(sorted(set(names.values())))}"
            )
        return (found, *fields[1:])

    return rename


def _scheduled_fields(fields: Fields) -> Fields:
    if not fields or fields[0] == "timestamp":
        return ("scheduled_at", *fields[1:]) if fields else fields
    raise Untranslatable(f"a schedule has no {fields[0]}", "Use {{.trigger.event.scheduled_at}}")


def _pace(node: Node, zone: str) -> dict[str, Any]:
    first = _times(node.parameters.get("pollTimes"), "item")[0]
    if not first:
        return {"interval": "1m"}
    found = _time_of(first, zone)
    return {"interval": found["every"]} if "every" in found else {"schedule": found}


def _cron(line: str, zone: str) -> dict[str, Any]:
    if not line or "{{" in line:
        raise Untranslatable("its cron line is not written out", "Write the cron line")
    return {"cron": line, "tz": zone} if zone else {"cron": line}


def _number(entry: Mapping[str, Any], name: str, usual: int) -> int:
    value = entry.get(name, usual)
    if isinstance(value, str) and value.lstrip("-").isdigit():
        value = int(value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise Untranslatable(f"{name} is not a number", "Write the schedule out")
    return int(value)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_KINDS: Mapping[str, Callable[[Node, str], Started]] = {
    "scheduleTrigger": _schedule,
    "cron": _old_cron,
    "interval": _interval,
    "webhook": _webhook,
    "rssFeedReadTrigger": _rss,
    "emailReadImap": _imap,
    "localFileTrigger": _files,
    "errorTrigger": _errors,
}
