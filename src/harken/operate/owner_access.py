"""What somebody who is limited to an owner's things may see and change. To them the rest is as if it were not there.

Triggers that files define belong to the operator. They are seen, and their workflow may be started, where it is shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from harken.errors import Forbidden, NotFound, Refused
from harken.event import Recorded
from harken.feed import INTERNAL, Feed
from harken.operate.context import Context
from harken.operate.output_rows import Plain, own_secrets
from harken.operate.permissions import Permission
from harken.operate.principal import Principal
from harken.runs import Run

if TYPE_CHECKING:
    from harken.config.stored_trigger_compiler import CompiledRow, TriggerRow
    from harken.run.compiler import Use

__all__ = ["Ownership", "heard", "triggers_beside", "visible", "visible_rows", "whose"]

_SECRET = re.compile(r"\$\{\s*secret\s*:([^}]*)", re.IGNORECASE)
OPERATORS = "operator"
"""Whose the things are that no owner made."""


def whose(owner: str) -> str:
    """The owner as people see it."""
    return owner or OPERATORS


class Ownership:
    """Compares what there is now with what the principal may see."""

    def __init__(self, context: Context, principal: Principal) -> None:
        self._context = context
        self._principal = principal

    async def admit(self, permission: Permission, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters to call the operation with. Raises NotFound for what the principal may not see, Forbidden for
        what it may see and not change."""
        given = dict(params)
        if not self._principal.limited or permission.thing == "self":
            return given
        if permission.thing == "list":
            if given.get("trigger") and not self.sees(self._name_of(str(given["trigger"]))):
                # which events it has verdicts on would be told by what is left of them
                raise NotFound(f"there is no trigger {given['trigger']}")
            return given
        if permission.thing == "job":
            return given | self._as_agent(permission, given)
        name = given.get(permission.param)
        if permission.thing in ("trigger", "new"):
            self._admit_target(given.get("workflow"))
            self._admit_heard(self._name_of(str(name or "")), given)
            self._admit_secrets(str(name or ""), given)
        if permission.thing == "new":
            self._admit_new(str(name or ""))
        elif permission.thing == "trigger":
            self._admit_trigger(permission, self._name_of(str(name or "")))
        elif permission.thing == "workflow":
            self._admit_workflow(str(name or ""))
        elif permission.thing == "feed":
            self._admit_feed(str(name or ""))
        elif permission.thing == "event":
            await self._admit_event(permission, given)
        else:
            await self._admit_run(permission, str(name or ""), given)
        return given

    def admit_row(self, row: TriggerRow, compiled: CompiledRow) -> None:
        """Raise NotFound or Forbidden for a row that reaches what the principal may not.

        What was sent may say it in many ways; what the row becomes says it in one."""
        from harken.config.loaded import reveal

        if not self._principal.limited:
            return
        if INTERNAL in compiled.trigger.feeds:
            self._admit_hearing(row.config)
        if compiled.workflow is None:
            self._admit_target(compiled.uses)
        else:
            self._admit_uses(_uses(reveal(compiled.workflow.definition, compiled.references)))

    def admit_fields(self, name: str, fields: Mapping[str, Any]) -> None:
        """The same for the fields of a row that were read from a text, before anything in them is looked up."""
        if self._principal.limited:
            self._admit_target(fields.get("workflow"))
            self._admit_secrets(name, fields)

    def admit_edited(self, before: Any, after: Any) -> None:
        """Raise NotFound or Forbidden for a definition with other parameters that reaches more than it did `before`."""
        if not self._principal.limited:
            return
        more = _uses(after) - _uses(before)
        self._admit_uses(more)
        if any(kind != "workflow" for kind, _ in more):
            fix = "Change the trigger instead, and use latest"
            raise Forbidden("other parameters of a step may not change what it notifies or calls", fix=fix)

    def show(self, permission: Permission, answer: Plain) -> Plain:
        """The answer without what the principal may not see."""
        if not self._principal.limited:
            return answer
        if permission.thing == "list":
            rows = [shown for row in answer["items"] if (shown := self.row(permission.param, row)) is not None]
            return answer | {"items": rows}
        if permission.thing in ("feed", "workflow") and "triggers" in answer:
            return answer | {"triggers": self._names(answer["triggers"])}
        if permission.thing == "event" and "verdicts" in answer:
            return answer | {"verdicts": self._verdicts(answer)}
        if permission.thing == "job" and not permission.param and self._principal.triggers and "items" in answer:
            return answer | {"items": [row for row in answer["items"] if row.get("id") in self._principal.triggers]}
        return answer

    def row(self, by: str, row: Plain) -> Plain | None:
        """One row of a list as the principal may see it; None to leave it out. `by`: the field that names triggers."""
        if by == "verdicts":
            kept = self._verdicts(row)
            return row | {"verdicts": kept} if kept else None
        if by == "triggers":
            names = self._names(row["triggers"])
            return row | {"triggers": names} if names else None
        if by == "name":
            if "steps" in row:
                # a workflow, which triggers of others may start too
                own = row | {"triggers": self._names(row["triggers"])}
                return own if self.sees_workflow(str(row["name"])) else None
            return row if self.sees(str(row["name"])) else None
        # the dead letter of an event has a feed in place of a trigger
        if row.get("what") == "event":
            return None
        return row if self._sees_run(str(row["trigger"]), str(row.get("workflow", ""))) else None

    def sees(self, trigger: str) -> bool:
        """Whether the trigger is theirs or shared with them."""
        return self.owns(trigger) or (self._is_named(trigger) and self._is_shared(trigger))

    def owns(self, trigger: str) -> bool:
        if not self._is_named(trigger):
            return False
        loaded = self._context.loaded
        # who has a row that is not enabled, or cannot be used any more, may still mend and delete it
        found = self._context.triggers().get(trigger) or (loaded.idle_row(trigger) if loaded else None)
        return found is not None and self._principal.owner in ("", found.owner)

    def sees_workflow(self, name: str) -> bool:
        flow = self._context.workflows().get(name)
        if flow is None:
            return False
        if flow.share_with != "" and self._principal.has_role(flow.share_with):
            return True
        if not self._principal.triggers:
            return self._context.starts(self._principal.owner, name)
        named = (self._context.triggers().get(trigger) for trigger in self._principal.triggers)
        return any(one is not None and name in one.workflows and self.owns(one.name) for one in named)

    def _is_named(self, trigger: str) -> bool:
        return not self._principal.triggers or trigger in self._principal.triggers

    def _is_shared(self, trigger: str) -> bool:
        found = self._context.triggers().get(trigger)
        if found is None or found.owner:
            return False
        flows = (self._context.workflows().get(name) for name in found.workflows)
        return all(flow is not None and flow.share_with and self._principal.has_role(flow.share_with) for flow in flows)

    def _sees_run(self, trigger: str, workflow: str) -> bool:
        return self.sees(trigger) if trigger else not self._principal.triggers and self.sees_workflow(workflow)

    def _names(self, triggers: list[str]) -> list[str]:
        return [name for name in triggers if self.sees(name)]

    def hears(self, feed: str, data: Any) -> bool:
        """Whether an event may be told to the owner: those of Harken itself only if about a workflow that they see.

        A trigger of theirs has a verdict on each of them, also on those that its condition leaves out."""
        if not self._principal.owner or feed != INTERNAL:
            return True
        workflow = data.get("workflow") if isinstance(data, Mapping) else None
        return isinstance(workflow, str) and self.sees_workflow(workflow)

    def _verdicts(self, row: Plain) -> list[Plain]:
        # rows of lists without data were looked at while they had it
        if "data" in row and not self.hears(row.get("feed_id", ""), row["data"]):
            return []
        return [verdict for verdict in row["verdicts"] if self.sees(str(verdict["trigger"]))]

    def _as_agent(self, permission: Permission, given: Mapping[str, Any]) -> dict[str, Any]:
        """An owner is the agent of the same name."""
        owner, named = self._principal.owner, given.get("agent") or ""
        if not owner and not permission.param and permission.changes:
            raise Forbidden("this token is for some triggers only, and not for the tools of agents")
        self._principal.require_agent(named or owner)
        id = given.get(permission.param)
        if self._principal.triggers and permission.param and id not in self._principal.triggers:
            raise NotFound(f"there is no job {id}")
        return {"agent": owner} if owner else {}

    def _admit_trigger(self, permission: Permission, name: str) -> None:
        if not name:
            raise Forbidden("this token is not for all triggers", fix=f"Name one with {permission.param}")
        if not self.sees(name):
            raise NotFound(f"there is no trigger {name}")
        if permission.changes and not self.owns(name):
            raise Forbidden(f"the trigger {name} belongs to the operator; it is only shared with you")

    def _admit_new(self, name: str) -> None:
        if not self._is_named(name):
            raise Forbidden(f"this token is for other triggers than {name}")

    def _admit_secrets(self, name: str, given: Mapping[str, Any]) -> None:
        """A row of an owner uses no secrets but its own: its steps could send others to anybody."""
        loaded, named = self._context.loaded, self._name_of(name)
        # a new one may have been given the name of somebody else's, whose secrets it must not get
        row = loaded.row_id(named) if loaded is not None and self.owns(named) else ""
        for found in _references(given):
            if not row or not found.startswith(own_secrets(row)):
                raise Forbidden(
                    f"this token may not use the secret {found}", fix="Give the value itself; it is kept as a secret"
                )

    def _admit_target(self, workflow: Any) -> None:
        """A trigger may start a workflow of its own, or one that its owner may start.

        Steps are looked at when they are compiled: before, data that they send could be taken for a step."""
        if isinstance(workflow, str) and not self.sees_workflow(workflow):
            raise NotFound(f"there is no workflow {workflow}")

    def _admit_uses(self, uses: Iterable[Use]) -> None:
        """The workflows that compiled steps start."""
        for kind, name in sorted(uses):
            if kind == "workflow":
                self._admit_started(name)

    def _admit_started(self, name: Any) -> None:
        if not isinstance(name, str) or "{" in name:
            fix = "Write its name; for several use if or switch"
            raise Forbidden("a step of yours starts a workflow that is only known when it runs", fix=fix)
        self._admit_target(name)

    def _admit_heard(self, name: str, given: Mapping[str, Any]) -> None:
        """Events of Harken itself tell of all runs: a trigger of an owner hears only of workflows that they see."""
        current = self._context.triggers().get(name)
        provider = given.get("provider") or ("event" if current is not None and current.feed == INTERNAL else "")
        if provider != "event" or not {"provider", "config"} & given.keys():
            return
        self._admit_hearing(given.get("config"))

    def _admit_hearing(self, config: Any) -> None:
        workflow = config.get("workflow") if isinstance(config, Mapping) else None
        if not isinstance(workflow, str) or not workflow:
            raise Forbidden(
                "events of Harken itself are about everything", fix="Name a workflow of yours: workflow: NAME"
            )
        self._admit_target(workflow)

    def _name_of(self, given: str) -> str:
        """The name of the row that has this id; else what was given."""
        loaded = self._context.loaded
        if loaded is None or given in self._context.triggers():
            return given
        idle = ((name, row.id) for rows in (loaded.disabled, loaded.refused_rows) for name, row in rows.items())
        return next((name for name, id in chain(loaded.rows.items(), idle) if id == given), given)

    def _admit_workflow(self, name: str) -> None:
        if self._principal.triggers or not self.sees_workflow(name):
            raise NotFound(f"there is no workflow {name}")

    def _admit_feed(self, name: str) -> None:
        id = self._context.feed_id(name)
        if not any(self.sees(one.name) for one in self._context.triggers().values() if one.feed == id):
            raise NotFound(f"there is no feed {name}")

    async def _admit_event(self, permission: Permission, given: Mapping[str, Any]) -> None:
        id = int(given[permission.param])
        event = await self._context.store.event(id)
        names = await self._context.names()
        triggers = [names.get(one.trigger, one.trigger) for one in _verdicts(event)]
        heard = event is not None and self.hears(event.feed, event.data)
        if not heard or not any(map(self.sees, triggers)):
            raise NotFound(f"there is no event {id}")
        if permission.changes:
            self._admit_replay(str(given.get("trigger") or ""), triggers, permission)

    def _admit_replay(self, named: str, triggers: list[str], permission: Permission) -> None:
        if named:
            self._admit_trigger(permission, named)
        elif not all(map(self.owns, triggers)):
            raise Forbidden("this event started triggers of others too", fix="Name your own with trigger")

    async def _admit_run(self, permission: Permission, id: str, given: Mapping[str, Any]) -> None:
        run: Run | None = await self._context.store.run(id)
        if run is None or not self._sees_run(run.trigger, run.workflow):
            raise NotFound(f"there is no run {id}")
        if permission.changes and run.trigger and not self.owns(run.trigger):
            raise Forbidden(f"run {run.id} is one of the operator's; it is only shared with you")
        if given.get("step_input"):
            self._admit_edit(run, given["step_input"], latest=bool(given.get("latest")))

    def _admit_edit(self, run: Run, edit: Any, *, latest: bool) -> None:
        """Other parameters of a step: only of a workflow that a row of the caller brought, and nothing of others."""
        loaded, owner = self._context.loaded, self._principal.owner
        brought = loaded is not None and run.workflow in loaded.rows and self.owns(run.workflow)
        if not (brought if owner else run.trigger) or loaded is None:
            # its steps may use secrets of the operator, and could send them anywhere
            raise Forbidden(f"the workflow of run {run.id} is only shared with you: its steps stay as they are")
        current = self._context.workflows().get(run.workflow)
        if owner and not latest and (current is None or current.rev != run.workflow_rev):
            # it may be of somebody else, who had a trigger of this name before
            fix = "Begin with the current one: latest"
            raise Forbidden(f"the steps of run {run.id} are not those that your trigger has now", fix=fix)
        if owner and current is not None:
            # the operator may have changed the row since; another address would be sent what the step has
            self._admit_secrets(run.workflow, {"steps": current.definition})
        for found in _inner_values({"step": edit}):
            account = loaded.integrations.get(found) if isinstance(found, str) else None
            if owner and account is not None and account.agents is not None and owner not in account.agents:
                raise Forbidden(f"the integration {found} is not for {owner}")
            is_step = isinstance(found, Mapping) and "workflow" in (found.get("action"), found.get("type"))
            if isinstance(found, Mapping) and "workflow" in found and (found is edit or is_step):
                self._admit_started(found["workflow"])


def triggers_of(context: Context, agent: str) -> Collection[str]:
    """The agent's own jobs and triggers; for a token that is for some triggers only, these of them."""
    jobs = context.loaded.jobs if context.loaded else {}
    own = {id for id, job in jobs.items() if job.agent == agent}
    own |= {name for name, one in context.triggers().items() if one.owner == agent}
    return own.intersection(context.principal.triggers) if context.principal.triggers else own


def visible(context: Context, by: str) -> Callable[[Plain], Plain | None]:
    """How the caller sees a row of a list; None for one that it may not see.

    Lists ask before they filter rows and cut them into pages: else filters and cursors would tell of the others."""
    if not context.principal.limited:
        return lambda row: row
    return partial(Ownership(context, context.principal).row, by)


def visible_rows(context: Context, by: str, rows: Iterable[Plain]) -> list[Plain]:
    """The rows of a list that is in memory as a whole, as the caller sees them."""
    see = visible(context, by)
    return [shown for row in rows if (shown := see(row)) is not None]


def heard(context: Context, found: Iterable[Recorded]) -> list[Recorded]:
    """Those of the events on which a trigger of the caller has verdicts that the caller may know of."""
    ownership = Ownership(context, context.principal)
    return [event for event in found if ownership.hears(event.feed, event.data)]


def triggers_beside(context: Context, trigger: str, feeds: Iterable[Feed], would: str, fix: str) -> list[str]:
    """The other triggers that hear of the feeds. Raises Refused if one of them is not the caller's: it `would` …"""
    ownership, found = Ownership(context, context.principal), set[str]()
    for feed in feeds:
        others = {one.name for one in context.triggers().values() if feed.name in one.feeds and one.name != trigger}
        if context.principal.limited and not all(map(ownership.owns, others)):
            raise Refused(f"{feed.display_name} is also read for triggers of others, which would {would}", fix=fix)
        found |= others
    return sorted(found)


def _references(value: Any) -> Iterator[str]:
    """The names of the secrets that a value refers to, anywhere inside."""
    if isinstance(value, str):
        yield from (found.strip() for found in _SECRET.findall(value))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _references(key)
            yield from _references(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _references(inner)


def _inner_values(value: Any) -> Iterator[Any]:
    """Everything that is in an object or a list, however deep."""
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ():
        yield inner
        yield from _inner_values(inner)


def _uses(definition: Any) -> set[Use]:
    # commands import this module too, and have to start fast
    from harken.run.compiled_workflows import uses_of

    return uses_of(definition)


def _verdicts(event: Recorded | None) -> tuple[Any, ...]:
    return event.verdicts if event is not None else ()
