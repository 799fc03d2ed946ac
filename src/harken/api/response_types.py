"""What the operations answer, as types: OpenAPI, TypeScript and the Python client are made from them.

Only `typing` is imported, because the client and its users import this. More names may come in any answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

__all__ = [
    "ANSWERS",
    "Activity",
    "AuditEntry",
    "BankedEvent",
    "Check",
    "CutValue",
    "DeadLetter",
    "Deleted",
    "Doctor",
    "Draft",
    "DraftClause",
    "DraftHour",
    "DraftRow",
    "DraftRun",
    "DraftShown",
    "Event",
    "EventBank",
    "EventCase",
    "EventType",
    "Explanation",
    "Exported",
    "Feed",
    "FeedDetail",
    "Finding",
    "Forgotten",
    "Integration",
    "Me",
    "NewToken",
    "Problem",
    "Replayed",
    "Rerun",
    "Run",
    "RunDetail",
    "Seek",
    "Service",
    "ServiceDetail",
    "ShownRun",
    "Span",
    "Star",
    "StartedRun",
    "Status",
    "Step",
    "Token",
    "Trigger",
    "TriggerDetail",
    "TriggerRow",
    "Verdict",
    "Webhook",
    "Workflow",
    "WorkflowDetail",
    "WorkflowSource",
    "WrittenWorkflow",
]

Time = str
"""RFC 3339 in UTC."""


class Finding(TypedDict):
    """One thing that is wrong or odd, where, and what to do. `path` names the setting, such as trigger, poll, query."""

    severity: Literal["error", "warning"]
    code: str
    file: str
    line: int
    column: int
    path: list[str | int]
    message: str
    fix: str
    excerpt: str
    text: str


class Problem(TypedDict):
    """RFC 9457. `detail` says what happened, `fix` what to do; `code` is for programs. `errors`: all that is wrong."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    request_id: str
    fix: str
    code: str
    errors: NotRequired[list[Finding]]


class Span(TypedDict):
    start: Time
    end: Time


class Verdict(TypedDict):
    trigger: str
    outcome: str
    reason: str
    run_id: str


class Event(TypedDict, total=False):
    """`data` is there in `events.show`, and in lists that were asked to include it.

    `starred` and `previous` (the event of the same subject before) are in `events.show` only.
    """

    id: int
    feed: str
    feed_id: str
    key: str
    subject: str
    title: str
    state: str | None
    type: str
    occurred_at: Time | None
    recorded_at: Time
    data: Any
    verdicts: list[Verdict]
    repeats: int
    last_repeat_at: Time | None
    starred: bool
    previous: int | None


class BankedEvent(Event, total=False):
    """`star`: by whom, when and why it was starred; only of starred ones."""

    star: dict[str, Any]


class EventBank(TypedDict):
    """The last events of a trigger, newest first. `keep`: how many of each stay, however old; 0 if none do."""

    trigger: str
    keep: int
    starred: list[BankedEvent]
    fired: list[BankedEvent]
    filtered: list[BankedEvent]
    error: list[BankedEvent]


class EventCase(TypedDict):
    """A test case of an event. `kept`: the fields whose values the condition needs as they are."""

    name: str
    trigger: str
    outcome: str
    kept: list[str]
    yaml: str


class Star(TypedDict, total=False):
    event: int
    starred: bool
    by: str
    at: Time
    trigger: str
    note: str


class Run(TypedDict):
    id: str
    trigger: str
    workflow: str
    status: Literal[
        "gathering", "held", "ready", "blocked", "running", "waiting", "done", "failed", "dead", "cancelled"
    ]
    outcome: str
    event_keys: list[str]
    attempt: int
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    seconds: float | None
    error: str
    hold: str
    due_at: Time | None
    waiting_for: str


class Step(TypedDict, total=False):
    """`from_run`: it was not executed in this run, but taken from that one."""

    path: str
    action: str
    status: Literal["ok", "failed", "skipped", "waiting"]
    attempt: int
    retries: int
    tries: int
    seconds: float | None
    input: Any
    output: Any
    error: str
    warnings: list[str]
    started_at: Time | None
    finished_at: Time | None
    tokens: int | None
    usd: float | None
    from_run: str


class RunDetail(Run):
    workflow_rev: str
    event_ids: list[int]
    input: Any
    output: Any
    priority: int
    cancel_requested: bool
    parent: str
    replay: bool
    replay_of: str
    steps: list[Step]


class CutValue(TypedDict):
    """`place`: such as `output` or `steps.2.output`."""

    place: str
    bytes: int


class ShownRun(RunDetail, total=False):
    """`cut`: what was left away, if the caller asked for that."""

    cut: list[CutValue]


class Rerun(RunDetail):
    """`taken`: the paths of the steps that the old run has done; `current_rev` is null if it is not configured."""

    began_with: str
    current_rev: str | None
    from_step: str
    taken: list[str]


class Trigger(TypedDict):
    """A trigger as lists show it. `type` is the word under `trigger:`, or `poller` or `ticket`."""

    name: str
    type: str
    status: str
    reason: str
    advice: str
    needs_person: bool
    feed: str
    feed_id: str
    integration: str
    workflow: str
    interval_seconds: float | None
    failures: int
    fired: int
    held: int
    dead: int
    last_fired_at: Time | None
    last_tick_at: Time | None
    last_read_at: Time | None
    next_read_at: Time | None
    paused: str
    start_line: Time | None
    late_seconds: float


class TriggerDetail(Trigger, total=False):
    uid: str
    epoch: int
    created_at: Time
    schedule: str
    query: dict[str, Any]
    condition: str
    mapping: Any
    overlap: str
    source: str
    recent: dict[str, int]
    identity: str
    lookback: float
    watermark: Time | None
    memory: int
    reads: int
    last_error: str
    coverage: list[Span]
    gaps: list[Span]
    ticks: list[dict[str, Any]]
    row: TriggerRow | None
    revision: str


class Seek(TypedDict, total=False):
    """What moving a trigger does; with `done` it is done. `token` does exactly this, unless something changes.

    Of streams: `messages` there are from that time on, `read_again` before its position; `skipped` are passed over.
    """

    trigger: str
    to: Time
    direction: Literal["back", "forward"]
    done: bool
    token: str
    read_again: int
    messages: int
    skipped: int
    would_fire: int
    known: int
    outcomes: dict[str, int]
    sentence: str
    items: list[dict[str, Any]]
    notes: list[str]


class Feed(TypedDict):
    name: str
    id: str
    kind: str
    integration: str
    way: str
    schedule: str
    health: Literal["ok", "failing", "paused"]
    failures: int
    error: str
    last_read_at: Time | None
    next_read_at: Time | None
    reads: int
    memory: int
    watermark: Time | None
    triggers: list[str]


class FeedDetail(Feed, total=False):
    query: dict[str, Any]
    identity: str
    lookback: float
    revision: int
    created_at: Time
    clock_skew: float
    lag_messages: int | None
    lag_seconds: float | None
    announced: int | None
    unannounced: int | None
    coverage: list[Span]
    ticks: list[dict[str, Any]]


class DeadLetter(TypedDict):
    id: str
    what: Literal["run", "event"]
    trigger: str
    key: str
    reason: str
    at: Time


class Workflow(TypedDict):
    name: str
    rev: str
    description: str
    steps: int
    triggers: list[str]


class Integration(TypedDict):
    """`source` is where its credential comes from; `missing` if it has none."""

    name: str
    kind: str
    source: str
    base_url: str
    feeds: list[str]
    error: str


class Webhook(TypedDict):
    provider: str
    id: str
    address: str
    triggers: list[str]
    scheme: str
    last_received_at: Time | None
    refused: int


class Explanation(TypedDict, total=False):
    trigger: str
    key: str
    outcome: str


class StartedRun(TypedDict):
    id: str
    workflow: str


class Replayed(TypedDict):
    event: int
    runs: list[dict[str, Any]]


class Check(TypedDict, total=False):
    name: str
    state: str


class Doctor(TypedDict):
    items: list[Check]
    ok: bool


class RetentionRow(TypedDict):
    name: str
    what: str
    keeps: str
    keep_seconds: float | None
    stored: int | None


class RetentionRows(TypedDict):
    items: list[RetentionRow]
    next: None


class Me(TypedDict):
    """The caller. `operations`: all that its role and scope allow, on what it may see; `way`: how it was recognised."""

    name: str
    who: str
    role: Literal["viewer", "operator", "admin"]
    owner: str
    triggers: list[str]
    limited: bool
    way: Literal["local", "token", "login"]
    operations: list[str]


class Activity(TypedDict):
    """Columns of equal length: when each bucket began, and what was counted in it."""

    bucket_seconds: int
    at: list[Time]
    events: list[int]
    done: list[int]
    failed: list[int]
    total: dict[str, int]


class TriggerActivity(TypedDict):
    """Numbers of each of the last 24 hours, oldest first."""

    name: str
    events: list[int]
    matched: list[int]
    last_event_at: Time | None
    last_match_at: Time | None
    lag_messages: int | None
    lag_seconds: float | None


class Status(TypedDict, total=False):
    running: bool
    version: str
    config: str
    store_trouble: str
    offline_since: Time | None
    triggers: dict[str, int]
    counts: dict[str, int]
    config_errors: int
    attention: list[dict[str, Any]]
    needs_person: bool
    controller: dict[str, Any]


class Token(TypedDict):
    """A token without its secret. `earlier_until`: how long the secret before the last rotation works."""

    id: str
    name: str
    role: Literal["viewer", "operator", "admin"]
    owner: str
    operations: list[str]
    triggers: list[str]
    status: Literal["valid", "expired", "revoked"]
    created_at: Time
    expires_at: Time | None
    earlier_until: Time | None


class NewToken(Token):
    """`token` is shown here and never again."""

    token: str


class Forgotten(TypedDict):
    """How much was removed, or would be if `forgotten` is false. `left`: what has the subject still, and why."""

    subject: str
    forgotten: bool
    events: int
    runs: int
    letters: int
    notes: int
    left: list[str]
    remains: list[str]


class AuditEntry(TypedDict):
    at: Time
    who: str
    did: str
    what: str
    detail: dict[str, Any]


class WorkflowDetail(TypedDict):
    """`definition` is what runs use, `yaml` the same as a file."""

    name: str
    rev: str
    definition: Any
    yaml: str
    source: str
    triggers: list[str]


class WorkflowSource(TypedDict):
    """A file as it is written. `revision` is its ETag; `reason` says why it cannot be changed from here."""

    name: str
    file: str
    text: str
    revision: str
    writable: bool
    reason: str


class WrittenWorkflow(TypedDict):
    """`diff` is what changes, `findings` what is wrong with the text, `reload` what the controller made of it."""

    name: str
    file: str
    diff: str
    findings: list[Finding]
    writable: bool
    reason: str
    written: bool
    revision: str
    reload: dict[str, Any] | None


class Service(TypedDict):
    kind: str
    summary: str
    docs: str
    ways: list[str]
    needs_account: bool
    uses: str


class ServiceDetail(Service):
    """JSON Schema of what each part takes; null for what the service does not have."""

    account: dict[str, Any] | None
    poll: dict[str, Any] | None
    stream: dict[str, Any] | None
    webhook: dict[str, Any] | None
    destination: dict[str, Any] | None
    actions: dict[str, dict[str, Any] | None]
    environment: list[str]


class EventType(TypedDict):
    type: str
    count: int
    feeds: list[str]
    last_id: int
    last_at: Time


class TriggerRow(TypedDict):
    """A trigger that is in the store. `revision` is its ETag."""

    id: str
    user_id: str
    name: str
    provider: str
    config: Any
    condition: str
    options: dict[str, Any]
    workflow: str | dict[str, Any]
    enabled: bool
    last_checked: Time | None
    created_at: Time
    updated_at: Time
    schema_version: int
    revision: str


class DraftRow(TypedDict):
    """The fields of a trigger that is not stored."""

    name: str
    provider: str
    config: Any
    condition: str
    options: dict[str, Any]
    workflow: Any


class DraftShown(TypedDict):
    """An event and what a draft would do with it. `clauses`: true, false or error for each of the condition."""

    id: int | None
    key: str
    subject: str
    type: str
    title: str
    outcome: str
    reason: str
    occurred_at: Time | None
    recorded_at: Time | None
    clauses: list[Literal["true", "false", "error"]]


class DraftRun(TypedDict):
    """The dry run of a draft, newest first; `sample`: the payload of that. `trouble`: why its service was not read."""

    source: Literal["stored", "read", "none"]
    feed: str
    events: int
    would_fire: int
    would_not: int
    sentence: str
    outcomes: dict[str, int]
    notes: list[str]
    complete: bool
    trouble: dict[str, str] | None
    can_read: bool
    shown: list[DraftShown]
    sample: Any


class DraftClause(TypedDict):
    clause: str
    passed: int
    failed: int
    errors: int
    alone: int


class DraftHour(TypedDict):
    at: Time
    events: int
    would_fire: int


class Draft(TypedDict):
    """What a trigger would be. `row` is null and `dry_run` too where it cannot be read or used."""

    ok: bool
    row: DraftRow | None
    yaml: str
    steps: str
    problems: list[Finding]
    feed: str
    feed_id: str
    way: str
    address: str
    next: list[Time]
    timeline: list[str]
    dry_run: DraftRun | None
    clauses: list[DraftClause]
    hours: list[DraftHour]


class Deleted(TypedDict):
    id: str
    name: str
    deleted: bool


class Exported(TypedDict):
    name: str
    source: str
    yaml: str


ANSWERS: Mapping[str, Any] = {
    "me": Me,
    "status": Status,
    "activity": Activity,
    "triggers.activity": TriggerActivity,
    "doctor": Doctor,
    "store.retention": RetentionRows,
    "triggers.list": Trigger,
    "triggers.show": TriggerDetail,
    "triggers.explain": Explanation,
    "triggers.pause": Trigger,
    "triggers.resume": Trigger,
    "triggers.reset": Trigger,
    "triggers.seek": Seek,
    "feeds.list": Feed,
    "feeds.show": FeedDetail,
    "events.list": Event,
    "events.show": Event,
    "events.case": EventCase,
    "events.star": Star,
    "events.unstar": Star,
    "triggers.bank": EventBank,
    "events.replay": Replayed,
    "events.forget": Forgotten,
    "runs.list": Run,
    "runs.show": ShownRun,
    "runs.retry": Run,
    "runs.rerun": Rerun,
    "runs.cancel": Run,
    "runs.approve": Run,
    "dead.list": DeadLetter,
    "workflows.list": Workflow,
    "workflows.run": StartedRun,
    "workflows.show": WorkflowDetail,
    "workflows.source": WorkflowSource,
    "workflows.write": WrittenWorkflow,
    "services.list": Service,
    "services.show": ServiceDetail,
    "event_types.list": EventType,
    "triggers.create": TriggerRow,
    "triggers.draft": Draft,
    "triggers.replace": TriggerRow,
    "triggers.edit": TriggerRow,
    "triggers.delete": Deleted,
    "triggers.export": Exported,
    "integrations.show": Integration,
    "integrations.list": Integration,
    "webhooks.list": Webhook,
    "tokens.list": Token,
    "tokens.create": NewToken,
    "tokens.rotate": NewToken,
    "tokens.revoke": Token,
    "audit.list": AuditEntry,
}
"""What an operation answers, of a list what its items are; those that are not here answer some object."""
