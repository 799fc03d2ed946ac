"""Every kind of document in the registry, and the names of those that exist once. The values are stored: keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = [
    "ACTIVITY",
    "ALERT",
    "APPLIED",
    "CHANGES",
    "CONFIG",
    "COUNTED",
    "COUNTER",
    "DELIVERIES",
    "FLEET",
    "GAP_TOLD",
    "IDS",
    "KEYS",
    "LETTERS",
    "LETTERS_TOLD",
    "NEWS",
    "NOT_COPIED",
    "PLAN",
    "RATE_LIMIT",
    "REPLICA",
    "REQUEST",
    "RETRIED",
    "RUN_ALERT",
    "RUN_FIELDS",
    "SEAL",
    "SESSION",
    "STALE_REPORT",
    "STARRED",
    "START_MOVED",
    "THIS_STORE",
    "TICKET",
    "TOKEN",
    "TRANSFER",
    "TRIGGER_ACTIVITY",
    "TRIGGER_FORM",
    "TRIGGER_LOG",
    "TRIGGER_NAME",
    "TRIGGER_ROW",
    "UNWIPED",
    "WORKFLOW",
]

WORKFLOW = "workflow"
"""A workflow's name and definition, by revision: a run keeps the revision that it began with."""

CONFIG, APPLIED = "config", "applied"
"""The feeds and triggers that were applied last."""

RATE_LIMIT = "budget"
"""What is left of a credential's quota at its vendor, by account."""

ALERT = "alert"
"""Which trouble of a feed was reported, and when, so that it is reported once."""

RUN_ALERT = "run_alert"
"""Which held or dying runs of a trigger were reported, and when."""

GAP_TOLD = "gap_told"
"""Up to when the gaps in the ledger of a feed were announced."""

LETTERS, LETTERS_TOLD = "letters", "told"
"""The last dead letter of an event that was announced."""

START_MOVED = "start_moved"
"""From when to when the start line of a trigger was moved back, because it was in the future."""

TRIGGER_ROW = "trigger"
"""A trigger that somebody made over the API, by its id."""

TRIGGER_FORM = "trigger_form"
"""What a trigger that is a row compiles to, by the row's id: it is made again whenever it is missing or outdated."""

TRIGGER_NAME = "trigger_name"
"""The id of the row that has a name, by name: it keeps two from having the same."""

TRIGGER_LOG, CHANGES = "trigger_log", "changes"
"""The ids of the rows that were changed last, oldest first. Its revision rises by one with each change of a row."""

REQUEST = "request"
"""A request with an Idempotency-Key, by a digest of the key: what it asked, and its answer once it has one."""

RETRIED = "retried"
"""That a request with an Idempotency-Key has retried a run, by a digest of both: it does so once."""

STARRED = "starred"
"""Who starred an event, when and why, by the event's id: it stays when retention deletes."""

PLAN = "plan"
"""A bulk action with the ids that it is for, by its id."""

TICKET = "ticket"
"""What was last written on a ticket that has had a run, by tracker and ticket."""

ACTIVITY, COUNTED = "activity", "counted"
"""Numbers of events, runs done and runs failed over time, as all replicas have counted them."""

TRIGGER_ACTIVITY = "trigger_activity"
"""Numbers of events and matches of triggers by the hour of the last day; each document holds some of the triggers."""

DELIVERIES = "deliveries"
"""How many changes of tickets were told by webhooks, and how many only found by polls, by tracker."""

STALE_REPORT = "stale"
"""Since when a trigger has been reported as stale."""

TOKEN = "token"
"""The hash of a token and what it may be used for, by id."""

SESSION = "session"
"""The hash of a session and who logged in, by id."""

REPLICA = "replica"
"""A process that uses the store, by holder; rewritten with each heartbeat."""

FLEET, NEWS = "fleet", "news"
"""Its revision rises when somebody changed the store and every replica should look."""

TRANSFER, THIS_STORE = "moving", "here"
"""Says that this store is being copied or filled, or was replaced by its copy: refuse to start with it."""

RUN_FIELDS: Mapping[str, Sequence[str]] = {TICKET: ("run", "withdrawn", "settled")}
"""The fields of documents, by kind, that begin with the id of a run: it changes when encryption is switched on."""

NOT_COPIED = frozenset({TRANSFER, REPLICA})
"""Kinds that describe one store or its processes, not its contents: a copy does without them."""

SEAL, KEYS, UNWIPED = "seal", "keys", "unwiped"
"""SQLite's own: the wrapped keys of an encrypted file, and a note that plain text may be left in free pages."""

COUNTER, IDS = "counter", "ids"
"""SQLite's own: the next ids of events and runs, so that ids rise even after the newest rows were deleted."""
