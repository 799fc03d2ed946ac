"""Every operation by name: the one table behind the CLI, the HTTP API, MCP and the UI."""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from harken.clock import Clock
from harken.errors import HarkenError, Malformed, NotFound, StoreUnavailable
from harken.http.known_secret_redaction import redact_error, scrub_bytes
from harken.operate import (
    agent_tools,
    audit_log_listing,
    bulk,
    config_schema,
    event_case,
    events,
    feeds,
    forget,
    integrations,
    language_models,
    login_sessions,
    pollers,
    rate_limits,
    runs,
    services,
    starred_and_last_events,
    status_reload_and_backup,
    stored_triggers,
    tickets,
    tokens,
    trackers,
    triggers,
    webhooks,
    workflow_files,
    workflows,
)
from harken.operate.activity_counts import activity
from harken.operate.backtest import backtest
from harken.operate.caller_and_allowed_operations import me
from harken.operate.context import Context
from harken.operate.doctor import doctor
from harken.operate.engine_protocol import Engine
from harken.operate.explain import explain
from harken.operate.idempotency import Answer, once
from harken.operate.merge_events_and_runs import Moved, Position, merge
from harken.operate.output_rows import Plain
from harken.operate.owner_access import Ownership
from harken.operate.paging import bind_cursor, unbind_cursor
from harken.operate.permissions import RUNS_TAIL, TAIL, require_role
from harken.operate.pollers import Pollers
from harken.operate.principal import OPERATOR, Principal
from harken.operate.progress import Report, ignore
from harken.operate.replay_time_span import replay_range
from harken.operate.rerun import rerun
from harken.operate.retention_periods import list_retention
from harken.operate.runs import micros
from harken.operate.seek import seek
from harken.operate.trigger_activity_counts import trigger_activity
from harken.operate.trigger_draft_check import draft
from harken.store import Definitions, Store
from harken.suggest import suggest_fix
from harken.timings import Timings

if TYPE_CHECKING:
    from harken.config.loaded import Loaded
    from harken.operate.oidc import Identity

__all__ = ["CHANGES", "OPERATIONS", "Operator"]

Operation = Callable[..., Awaitable[Plain]]

BACKUP = "store.backup"
FORGET = "events.forget"
WRITE = "workflows.write"
FORGOTTEN = ("forgotten", "events", "runs", "letters", "notes")
"""What the audit log keeps of a forgetting, beside a mark in place of the subject."""
WRITTEN = ("file", "revision")
"""What the audit log keeps of a file that was written."""

READS: Mapping[str, Operation] = {
    "me": me,
    "status": status_reload_and_backup.status,
    "activity": activity,
    "doctor": doctor,
    "diff": status_reload_and_backup.diff,
    "config.check": status_reload_and_backup.check_config,
    "config.schema": config_schema.schema,
    "store.check": status_reload_and_backup.check_store,
    "store.retention": list_retention,
    "triggers.list": triggers.list_triggers,
    "triggers.activity": trigger_activity,
    "triggers.show": triggers.show,
    "triggers.test": triggers.test,
    "triggers.explain": explain,
    "triggers.backtest": backtest,
    "triggers.export": stored_triggers.export,
    "triggers.draft": draft,
    "triggers.bank": starred_and_last_events.bank,
    "pollers.list": pollers.list_jobs,
    "pollers.show": pollers.show,
    "tools.list": agent_tools.list_tools,
    "tools.schemas": agent_tools.schemas,
    "budget.list": rate_limits.list_rate_limits,
    "feeds.list": feeds.list_feeds,
    "feeds.show": feeds.show,
    "events.list": events.list_events,
    "events.show": events.show,
    "events.case": event_case.make,
    "bulk.show": bulk.show,
    "runs.list": runs.list_runs,
    "runs.show": runs.show,
    "dead.list": runs.list_dead,
    "tickets.list": tickets.list_tickets,
    "tickets.show": tickets.show,
    "trackers.list": trackers.list_trackers,
    "trackers.test": trackers.test,
    "webhooks.list": webhooks.list_webhooks,
    "webhooks.curl": webhooks.curl,
    "workflows.list": workflows.list_workflows,
    "workflows.show": workflows.show,
    "workflows.check": workflows.check,
    "workflows.source": workflow_files.source,
    "integrations.list": integrations.list_integrations,
    "integrations.show": integrations.show,
    "services.list": services.list_services,
    "services.show": services.show,
    "event_types.list": events.list_types,
    "integrations.test": integrations.test,
    "integrations.whoami": integrations.whoami,
    "models.list": language_models.list_models,
    "models.test": language_models.test,
    "tokens.list": tokens.list_tokens,
    "audit.list": audit_log_listing.list_audit,
}

CHANGES: Mapping[str, Operation] = {
    "reload": status_reload_and_backup.reload,
    BACKUP: status_reload_and_backup.backup,
    "triggers.create": stored_triggers.create,
    "triggers.replace": stored_triggers.replace,
    "triggers.edit": stored_triggers.edit,
    "triggers.delete": stored_triggers.delete,
    "triggers.run": triggers.run_now,
    "triggers.pause": triggers.pause,
    "triggers.resume": triggers.resume,
    "triggers.reset": triggers.reset,
    "triggers.seek": seek,
    "triggers.release": triggers.release,
    "triggers.drop": triggers.drop,
    "pollers.reload": pollers.reload,
    "pollers.run": pollers.run_now,
    "pollers.pause": pollers.pause,
    "pollers.resume": pollers.resume,
    "pollers.reset": pollers.reset,
    "tools.call": agent_tools.call,
    "events.star": starred_and_last_events.star,
    "events.unstar": starred_and_last_events.unstar,
    "events.replay": events.replay,
    "events.replay_range": replay_range,
    FORGET: forget.forget,
    "bulk.plan": bulk.make_plan,
    "bulk.execute": bulk.execute,
    "bulk.undo": bulk.undo,
    "runs.retry": runs.retry,
    "runs.rerun": rerun,
    "runs.cancel": runs.cancel,
    "runs.approve": runs.approve,
    "dead.retry": runs.retry_dead,
    "dead.retry_all": runs.retry_all_dead,
    "dead.drop": runs.drop_dead_letter,
    "tickets.claim": tickets.claim,
    "tickets.retry": tickets.retry,
    "tickets.cancel": tickets.cancel,
    "tickets.release": tickets.release,
    "tickets.adopt": tickets.adopt,
    "trackers.fix": trackers.fix,
    "workflows.run": workflows.run,
    WRITE: workflow_files.write,
    "integrations.renew": integrations.renew,
    "tokens.create": tokens.create,
    "tokens.revoke": tokens.revoke,
    "tokens.rotate": tokens.rotate,
}

OPERATIONS: Mapping[str, Operation] = {**READS, **CHANGES}

LARGEST = 2**63 - 1

RUNS_REST = 0.25
"""Seconds between two looks at the runs for pages: nobody reads faster."""

AUDITED = (
    "reason", "to", "token", "cursor", "latest", "from_step", "approved", "trigger", "target", "role", "owner",
    "action",
)  # fmt: skip
"""What of a change the audit log keeps; inputs and comments may hold anything."""


@cache
def _required(operation: str) -> tuple[str, ...]:
    """The parameters that have no default."""
    taken = inspect.signature(OPERATIONS[operation]).parameters.values()
    return tuple(one.name for one in taken if one.kind is one.KEYWORD_ONLY and one.default is one.empty)


@cache
def _has_pages(operation: str) -> bool:
    """Whether it is a list with a cursor; that of a reset is a flag."""
    cursor = inspect.signature(OPERATIONS[operation]).parameters.get("cursor")
    return cursor is not None and cursor.default == ""


def _changed(params: Mapping[str, Any], answer: Plain) -> str:
    """What was changed: its name, or its whole id, of which the caller may have given the beginning or nothing."""
    given = str(params.get("name") or params.get("id") or params.get("ticket") or "")
    if params.get("name"):
        return given
    ids = (answer.get("id"), answer.get("replay_of"))
    return next((id for id in ids if isinstance(id, str) and id.startswith(given)), given)


class Operator:
    """Calls operations by name. Everything it returns consists of JSON types."""

    def __init__(
        self,
        store: Store,
        engine: Engine | None,
        loaded: Loaded | None,
        clock: Clock,
        timings: Timings = Timings(),
    ) -> None:
        self._context = Context(store, engine, loaded, clock, timings)
        self._principal = OPERATOR
        self._report: Report = ignore

    @property
    def loaded(self) -> Loaded | None:
        return self._context.loaded

    @loaded.setter
    def loaded(self, loaded: Loaded | None) -> None:
        """Set after a new configuration was applied."""
        self._context.loaded = loaded

    def use_part(self, loaded: Loaded, part: Definitions) -> None:
        """Like setting `loaded`, where only a part of it has changed."""
        self._context.use_part(loaded, part)

    def acting_as(self, principal: Principal) -> Operator:
        """The same operations, called by somebody else than the operator."""
        found = copy.copy(self)
        found._principal = principal
        return found

    def reporting_to(self, report: Report) -> Operator:
        """The same operations, which tell how far they are if they take long."""
        found = copy.copy(self)
        found._report = report
        return found

    async def log_in(self, identity: Identity, seconds: float) -> str:
        """Begin a session and return its secret, for a cookie."""
        return await login_sessions.begin(self._context.store, self._context.clock, identity, seconds)

    async def log_out(self, session: str) -> None:
        await login_sessions.end(self._context.store, self._context.clock, session)

    async def authenticate_session(self, session: str) -> Principal:
        """Whose session this is. Raises Unauthorized for one that is unknown or over."""
        return await login_sessions.find(self._context.store, self._context.clock, session)

    async def authenticate(self, token: str) -> Principal:
        """Whose token this is. Raises Unauthorized for one that is unknown, revoked or expired."""
        return await tokens.authenticate(self._context.store, self._context.clock, token)

    async def call(self, operation: str, /, **params: Any) -> Plain:
        """Call the operation and return its answer. A successful change is written to the audit log.

        Raises Forbidden for what the caller may not do, and NotFound for what it may not see."""
        if operation not in OPERATIONS:
            raise NotFound(f"there is no operation {operation}", fix=suggest_fix(operation, OPERATIONS))
        for name, value in params.items():
            if isinstance(value, int) and abs(value) > LARGEST:
                raise Malformed(f"{name} is larger than any id")
        permission = require_role(self._principal, operation)
        asked = params
        if params.get("cursor") and _has_pages(operation):
            params = params | {"cursor": unbind_cursor(params["cursor"], operation, asked)}
        if missing := [name for name in _required(operation) if name not in params]:
            raise Malformed(f"{operation} needs {missing[0]}", fix=f"Send {missing[0]}")
        context = self._context.acting_as(self._principal, self._report)
        ownership = Ownership(context, self._principal)
        try:
            params = await ownership.admit(permission, params)
            if permission.thing == "trigger" and isinstance(params.get("name"), str):
                params = params | {"name": await stored_triggers.named_by_id(context, params["name"])}
            answer = await OPERATIONS[operation](context, **params)
        except HarkenError as error:
            raise redact_error(error, self._secrets()) from None
        if operation in CHANGES and not params.get("dry_run"):
            what = _changed(params, answer)
            detail = {name: params[name] for name in AUDITED if name in params}
            if operation == WRITE:
                detail |= {name: answer[name] for name in WRITTEN}
            if operation == FORGET:
                # who was forgotten must not be remembered here
                what, detail = answer["subject"], {name: answer[name] for name in FORGOTTEN}
            await self._audit(self._who(params), operation, what, detail | self._token())
        if _has_pages(operation) and answer["next"] is not None:
            answer = answer | {"next": bind_cursor(answer["next"], operation, asked)}
        return ownership.show(permission, answer)

    def _who(self, params: Mapping[str, Any]) -> str:
        """Whom the audit log names. An agent that has no token of its own is named by its door."""
        agent = params.get("agent")
        return f"agent {agent}" if agent and not self._principal.owner else self._principal.who

    def _token(self) -> Plain:
        return {} if self._principal is OPERATOR else {"by": self._principal.name}

    async def _audit(self, who: str, operation: str, what: str, detail: Plain) -> None:
        try:
            await self._context.store.audit(who, operation, what, detail)
        except StoreUnavailable as error:
            if operation != BACKUP:
                raise
            # commands import this module too, and have to start fast
            import structlog

            # a store that cannot write is when a backup is needed most, and it is made
            structlog.get_logger("harken.operate").warning(
                "audit.not_written", operation=operation, reason=error.message
            )

    async def once(
        self, key: str, fingerprint: str, act: Callable[[], Awaitable[Answer]], *, secret: bool = False
    ) -> Answer:
        """Do what the first request with this Idempotency-Key asks, and give all others its answer, unless it is
        `secret`."""
        context, caller = self._context, self._principal
        # a token of the same name that another owner has next does not get what this one was answered
        who = f"{caller.name}\n{caller.owner}" if caller.owner else caller.name
        return await once(context.store, who, key, fingerprint, context.clock.now, act, secret=secret)

    @property
    def pollers(self) -> Pollers:
        """The poller jobs as a Python object."""
        return Pollers(self.call)

    def discreet(self, answer: bytes) -> bytes:
        """The answer as JSON with our own secrets removed, wherever they came from."""
        return scrub_bytes(answer, self._secrets())

    def _secrets(self) -> frozenset[str]:
        return self._context.loaded.secrets if self._context.loaded else frozenset()

    async def tail(self, after: int | None = None) -> AsyncIterator[Plain | None]:
        """Events as they are committed, and None as a heartbeat while there are none; ends when the engine stops."""
        permission = require_role(self._principal, TAIL)
        context = self._context.acting_as(self._principal)
        ownership = Ownership(context, self._principal)
        async for event in events.tail(context, after=after):
            if event is None or not self._principal.limited:
                yield event
            elif (shown := ownership.row(permission.param, event)) is not None:
                yield shown

    async def tail_runs(self, after: int | None = None, rest: float = 0.0) -> AsyncIterator[Plain | None]:
        """Runs as they move, each with its `position`, and None as a heartbeat; ends when the engine stops.

        It rests so many seconds between two looks."""
        permission = require_role(self._principal, RUNS_TAIL)
        ownership = Ownership(self._context, self._principal)
        async for run in runs.tail(self._context, after=after, rest=rest):
            if run is None or not self._principal.limited:
                yield run
            elif (shown := ownership.row(permission.param, run)) is not None:
                yield shown

    async def position(self) -> Position:
        """Where a stream begins that shows what happens from now on."""
        return Position(await events.newest_id(self._context), micros(self._context.clock.now()))

    def live(self, after: Position) -> AsyncIterator[Moved]:
        """Events and runs in one stream; ends when the engine stops."""
        return merge(self.tail(after.event), self.tail_runs(after.run, RUNS_REST), after)

    def require(self, operation: str) -> None:
        """Raise Forbidden if the caller may not do this."""
        require_role(self._principal, operation)
