"""What the keys of workflow files mean, in a line each: editors show it beside what they complete.

The models of services describe their own keys. Those of the language itself are described here, by model, so that the
models, which every start imports, stay short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["describe"]

_BY = "An expression in CEL; each of its values is counted separately."

KEYS: Mapping[str, Mapping[str, str]] = {
    "WorkflowFile": {
        "name": "The workflow's name, which its trigger has too.",
        "description": "A note for people.",
        "share_with": "viewer or operator: tokens of an owner with this role may see and start it.",
        "trigger": "What starts it. Without one, other workflows and people do.",
        "inputs": "What it takes, by name.",
        "steps": "What it does, one after the other.",
        "outputs": "What it gives back.",
    },
    "DispatchBlock": {
        "startup": "Where to go on after a stop: since_last, ignore_historical or backfill.",
        "backfill": "How far to look back, at most 24h; needed with startup: backfill.",
        "input_mapping": "Inputs by name, as templates; a single path keeps its type.",
        "max_per_tick": "Runs of one read that become due at once; the others follow.",
        "dispatch_delay_ms": "Milliseconds between those that follow.",
    },
    "CommonBlock": {
        "condition": "CEL over `event`: only events for which it is true start a run.",
        "gather": "Several events become one run: digest, debounce or join; fewer runs: throttle, dedupe.",
        "overlap": "While an earlier run of its key is not over: allow, skip, queue or cancel_previous.",
        "concurrency_key": "A template, or a fixed word: overlap is decided for each of its values.",
        "priority": "Runs with a larger number start first.",
        "flood_limit": "A first read that would start more runs holds them for a person; 0 is no limit.",
        "max_attempts": "How often a run is tried before it is a dead letter.",
        "stale_after": "The longest time without a success before the trigger is stale.",
        "max_age": "Events that are older when they are found share one run.",
        "quiet_hours": "When no run starts.",
        "budget": "Limits on what its runs use in an hour or a day.",
    },
    "TriggerBlock": {
        "type": "The kind of trigger; it may be left out, as the block that is there names it.",
        "poll": "Reads a service at an interval.",
        "webhook": "Waits for what somebody sends over HTTP.",
        "stream": "Follows a broker or another stream.",
        "file": "Watches files of a directory or bucket.",
        "schedule": "Fires at times: a cron line, or {every: 1h}.",
        "event": "Listens to Harken's own events: what runs and feeds do.",
        "api": "`api: true`: what is sent to it through the API.",
        "feed": "Listens to a feed that is configured under `feeds:`, and is read once for all.",
    },
    "FeedBlock": {
        "integration": "A configured name, or the kind of a service.",
        "query": "What to ask; see the service.",
        "interval": "How often it is read, such as 1m; at least 10s.",
        "schedule": "In place of interval: a cron line, or {every: 1h}.",
        "identity": "What makes an occurrence new: once, change or transition.",
        "lookback": "How far behind the newest item each read begins, for late ones.",
        "first": "What the first read does: baseline, deliver (the newest) or all.",
        "account": "For a service that signs in at another: which account.",
    },
    "FileBlock": {
        "interval": "How often the place is looked at.",
        "schedule": "In place of interval: a cron line, or {every: 1h}.",
        "identity": "What makes a file new: once, change or transition.",
        "first": "What the first look does with files that are there: baseline, deliver (the newest) or all.",
    },
    "StreamBlock": {
        "integration": "A configured name, or the kind of a service.",
        "query": "What is followed; see the service.",
        "account": "For a service that signs in at another: which account.",
    },
    "WebhookBlock": {
        "id": "The last part of its address; the workflow's name without it.",
        "provider": "Whose webhooks these are; generic for any other sender.",
        "integration": "An account of that provider, where it needs one.",
        "respond": "Answer at_once, or when_done with what the run gives.",
        "respond_within": "How long the sender is kept waiting for the run, at most 5m.",
    },
    "EventBlock": {
        "type": "One or several types, such as run.failed or trigger.stale.",
        "types": "One or several types, such as run.failed or trigger.stale.",
        "workflow": "Only events about this workflow.",
    },
    "GatherBlock": {
        "digest": "One run for all events within a window.",
        "debounce": "One run for all events until none has come for a while.",
        "join": "One run for events of several kinds that belong together.",
        "throttle": "At most so many runs in a span.",
        "dedupe": "Of events with the same value only the first within a span starts a run.",
    },
    "DigestBlock": {
        "window": "How long events are gathered from the first one on.",
        "max": "So many events end the window early; 0 is no limit.",
        "by": _BY,
    },
    "DebounceBlock": {
        "window": "So long no further event must come.",
        "max_wait": "The longest wait from the first event on.",
        "max": "So many events end the wait early; 0 is no limit.",
        "by": _BY,
    },
    "JoinBlock": {
        "parts": "The kinds of events that belong together, by a name for each.",
        "within": "How long after the first the others may come.",
        "all": "The parts that must all be there.",
        "any": "So many different parts are enough.",
        "then": "The parts that must come in this order.",
        "none": "The parts that must not come; the run starts when the span is over without them.",
        "on_miss": "What happens when the span ends without the parts: drop, or run.",
    },
    "PartBlock": {
        "by": "An expression in CEL: the value that the parts which belong together share.",
        "when": "CEL over `event`: which events are this part.",
        "feed": "The feed of this part, if not the trigger's.",
    },
    "ThrottleBlock": {
        "most": "So many runs may start in the span.",
        "per": "The span.",
        "by": _BY,
        "rest": "What happens to the others: hold until there is room, or drop.",
    },
    "DedupeBlock": {
        "by": "An expression in CEL: events with the same value are the same.",
        "within": "How long the first one counts.",
    },
    "QuietHours": {
        "start": "When they begin, such as 22:00.",
        "end": "When they end, such as 07:00.",
        "tz": "The time zone, such as Europe/Berlin.",
    },
    "BudgetBlock": {
        "tokens_per_day": "Tokens of language models in a day, in UTC.",
        "usd_per_day": "Dollars for language models in a day, in UTC.",
        "runs_per_hour": "Runs in an hour.",
    },
    "StepBlock": {
        "id": "Its name, unique in its list; later steps use it as steps.ID.",
        "description": "A note for people.",
        "if": "A condition in CEL; the step is skipped when it is false.",
        "when": "A condition in CEL; the step is skipped when it is false.",
        "timeout": "A limit for each attempt, such as 30s.",
        "retry": "More attempts within this try of the run.",
        "on_error": "What a failure does: fail, ignore (go on), or fallback (go on with that value).",
        "fallback": "The response if it fails, with on_error: fallback.",
        "action": "What the step does.",
        "type": "The same as action.",
    },
    "RetryBlock": {
        "max_attempts": "How often it is tried in all.",
        "backoff": "The wait before the second attempt; it doubles each time.",
    },
    "AgentBlock": {
        "command": "The program and its words; the ticket is in .harken/ticket.md.",
        "resume": "The command of a later start; {session} is the id of the earlier session.",
        "repository": "The address that git clones from; that of the project without it.",
        "base": "The branch to begin with.",
        "branch": "The branch to work on.",
        "push": "Commit what is left, and push the branch when the agent succeeded.",
        "env": "Variables for the agent.",
        "inherit": "Names of variables that it gets from Harken's own environment.",
        "stall": "So long it may write nothing.",
        "result": "The file in which it hands in its result.",
    },
    "ApproveBlock": {
        "prompt": "What a person is asked.",
        "on_timeout": "What counts if nobody answers within timeout: approve or reject.",
    },
    "EmitBlock": {
        "event": "The type of the event, to which other triggers listen.",
        "type": "The type of the event, to which other triggers listen.",
        "data": "What the event holds.",
        "subject": "What the event is about.",
        "key": "Events with the same key are one.",
    },
    "FilterBlock": {"condition": "CEL; the run ends here, as filtered, when it is false."},
    "ForeachBlock": {
        "items": "The list, as a template or an expression; each is `item` in the steps.",
        "steps": "What is done for each of them.",
        "parallel": "How many at one time.",
        "max_items": "A longer list fails the step.",
    },
    "ParallelBlock": {"branches": "Lists of steps that are done at the same time, by name or in order."},
    "HttpBlock": {
        "url": "The address; values in it are percent-encoded.",
        "method": "GET without a body, POST with one, unless it is said here.",
        "headers": "Headers of the request.",
        "query": "Parameters of the address.",
        "json": "A body that is sent as JSON.",
        "json_body": "A body that is sent as JSON.",
        "body": "A body that is sent as it is.",
        "expect": "The statuses that count as success, such as 200 or 2xx.",
        "allow_private_networks": "Allow addresses in private networks.",
    },
    "NotifyBlock": {
        "channel": "An integration, or the kind of one, that delivers messages.",
        "to": "The address there.",
        "text": "The message.",
        "title": "Its title, where the channel has one.",
        "data": "More values, for channels with forms of their own.",
        "placeholders": "How values are written in the text: template ({{.x}}) or fields ({x}).",
    },
    "IfBlock": {
        "condition": "CEL; decides which of the two lists is done.",
        "then": "The steps if it is true.",
        "else": "The steps if it is false.",
        "otherwise": "The steps if it is false.",
    },
    "SwitchBlock": {
        "on": "The value that is compared with the cases.",
        "cases": "Steps by the value, or a list of {when, steps} of which the first that is true counts.",
        "default": "The steps if no case fits.",
    },
    "CaseBlock": {"when": "CEL; the first case for which it is true counts.", "steps": "What is done then."},
    "LlmBlock": {
        "prompt": "What the model is asked.",
        "system": "Who it should be, and what it must keep to.",
        "model": "fast, balanced, strategic or provider:model; the default without it.",
        "output": "JSON Schema of the answer; it is then a value, and not a text.",
        "max_tokens": "The longest answer.",
        "temperature": "From 0 (always alike) to 2.",
    },
    "PythonBlock": {
        "code": "Python with a function run(input); it is no template.",
        "input": "What run gets; types are kept.",
        "input_schema": "JSON Schema of the input.",
        "output": "JSON Schema of what it must return.",
        "memory": "MB that it may use.",
        "network": "Let it use the network, where that is allowed.",
    },
    "ShellBlock": {
        "command": "A script, or the program and its words as a list. A script cannot hold templates.",
        "env": "Variables; values of events belong here.",
        "cwd": "The directory in which it runs.",
        "stdin": "What it reads.",
    },
    "TransformBlock": {"set": "Names with their values, as templates.", "values": "Names with their values."},
    "WaitBlock": {
        "for": "How long, such as 10m.",
        "duration": "How long, such as 10m.",
        "until": "The moment, as a time or a template.",
    },
    "WorkflowBlock": {
        "workflow": "The name of the workflow that is started.",
        "name": "The name of the workflow that is started.",
        "inputs": "What it is given.",
        "wait": "Wait for its end and take its outputs; else go on at once.",
    },
    "CommentBlock": {"text": "What is written on the ticket."},
    "TransitionBlock": {"status": "The status that the ticket gets."},
    "PullRequestBlock": {
        "head": "The branch with the change.",
        "base": "The branch that it is meant for.",
        "title": "Its title; that of the ticket without it.",
        "text": "Its description.",
        "repo": "The repository, if not that of the project.",
    },
    "AskBlock": {
        "question": "What is asked on the ticket.",
        "on_timeout": "What happens if nobody answers within timeout: fail or go_on.",
    },
}


def describe(properties: Mapping[str, Any], *models: str) -> dict[str, Any]:
    """The properties of a JSON Schema with what the keys of these models mean, where they do not say so themselves."""
    texts = {key: text for model in reversed(models) for key, text in KEYS.get(model, {}).items()}
    return {
        key: {**schema, "description": texts[key]}
        if isinstance(schema, dict) and key in texts and "description" not in schema
        else schema
        for key, schema in properties.items()
    }
