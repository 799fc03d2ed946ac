"""Reruns: a new run in the place of one that is over, from its first step or from a later one, with other input, on the
old or on the current revision."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from harken.errors import Malformed, Misconfigured, NotFound, Refused
from harken.operate.context import Context
from harken.operate.events import mark_replay
from harken.operate.idempotency import new_id
from harken.operate.output_rows import Plain, input_of, is_replay, run_detail
from harken.operate.owner_access import Ownership
from harken.runs import FINAL, Run, StepRecord, Workflow
from harken.store import NewRun
from harken.store.document_kinds import WORKFLOW
from harken.suggest import suggest_fix

if TYPE_CHECKING:
    from harken.run.plan import Plan, Step

__all__ = ["rerun"]

TRIES = 3
LONGEST_TEXT = 100_000
NO_INPUT = frozenset({"id", "action", "type", "if", "description", "timeout", "retry", "on_error", "fallback"})
"""Keys of a step that say what it is and when it is executed, not what it is given."""
_ITERATION = re.compile(r"(?<!\.cases)\[\d+\]\.")
_SPECIAL = re.compile(r'[\x00-\x1f\x7f"\\{$]')


async def rerun(
    context: Context,
    *,
    id: str,
    input: Mapping[str, Any] | None = None,
    latest: bool = False,
    from_step: str = "",
    step_input: Mapping[str, Any] | None = None,
) -> Plain:
    """Start a new run in the place of one that is over, perhaps with some fields of its input replaced.

    With `from_step` it begins there: what was done before is taken from the old run and not done again, and
    `step_input` replaces parameters of that step. It uses the revision that the run began with, or with `latest` the
    current one; the answer names both, and the steps that were taken. The old run stays.
    """
    run = await context.run(id)
    if run.status not in FINAL:
        raise Refused(f"run {run.id} is {run.status}", fix=f"Cancel it first: harken runs cancel {run.id[:12]}")
    if step_input and not from_step:
        raise Malformed("step_input needs from_step", fix="Name the step that gets it with from_step")
    if from_step and input:
        raise Malformed("what came before from_step was done with the input as it was", fix="Send step_input")
    current = context.workflows().get(run.workflow)
    rev = context.workflow(run.workflow).rev if latest else run.workflow_rev
    taken: tuple[StepRecord, ...] = ()
    if from_step:
        flow = await _workflow(context, run, rev)
        taken = await _steps_before(context, run, flow, from_step)
        rev = await _edited(context, flow, from_step, step_input or {})
    trigger = context.triggers().get(run.trigger)
    again = NewRun(
        trigger=run.trigger,
        workflow=run.workflow,
        workflow_rev=rev,
        id_key=f"rerun:{new_id(run.id).hex}",
        input=await _input(context, run, input or {}),
        event_ids=run.event_ids,
        replay_of=run.id,
        max_attempts=trigger.max_attempts if trigger else TRIES,
        watched=bool(trigger and trigger.routes),
        journal=taken,
    )
    started = await context.store.start(again)
    context.nudge()
    revisions = {"began_with": run.workflow_rev, "current_rev": current.rev if current else None}
    steps = {"from_step": from_step, "taken": [record.path for record in taken]}
    return run_detail(await context.run(started)) | revisions | steps


async def _workflow(context: Context, run: Run, revision: str) -> Workflow:
    """The workflow at this revision, with its references to secrets."""
    current = context.workflows().get(run.workflow)
    if current is not None and current.rev == revision:
        return current
    document = await context.store.get(WORKFLOW, revision)
    if document is None:
        raise NotFound(f"revision {revision} of {run.workflow} is gone", fix="Use the current one: --latest")
    return Workflow(name=run.workflow, rev=revision, definition=document.value["definition"])


def _compile(context: Context, flow: Workflow) -> Plan:
    # commands import this module too, and have to start fast
    from harken.run.compiled_workflows import compile_workflow

    return compile_workflow(msgspec.structs.replace(flow, definition=_revealed(context, flow)))


def _revealed(context: Context, flow: Workflow) -> Any:
    return context.loaded.reveal(flow.definition) if context.loaded else flow.definition


async def _steps_before(context: Context, run: Run, flow: Workflow, path: str) -> tuple[StepRecord, ...]:
    """The records of what the run did before this step, as they begin a new run of this revision.

    Raises Refused if a step before it was never done, or is another one in this revision: it would be done now."""
    records = {record.path: record for record in run.journal}
    if path not in records:
        known = [record.path for record in run.journal]
        raise NotFound(f"run {run.id} never came to a step {path}", fix=suggest_fix(path, known))
    steps, root = _compile(context, flow).steps, _root(path)
    position = next((at for at, step in enumerate(steps) if step.id == root), None)
    if position is None:
        raise Refused(f"revision {flow.rev} of {flow.name} has no step {root}", fix="Use the one that it began with")
    same = flow.rev == run.workflow_rev
    old = flow if same else await _workflow(context, run, run.workflow_rev)
    for step in steps[:position]:
        _require_same(step, records.get(step.id), flow, None if same else old)
    if not same and path != root and _definition_of(flow, root) != _definition_of(old, root):
        raise Refused(f"the step {root} is another one in revision {flow.rev}", fix=f"Begin with it: --from {root}")
    earlier = {step.id for step in steps[:position]}
    return tuple(
        msgspec.structs.replace(record, tokens=0, usd=0.0, from_run=record.from_run or run.id)
        for record in records.values()
        if _root(record.path) in earlier or (_root(record.path) == root and _is_before(record, records[path]))
    )


def _require_same(step: Step, done: StepRecord | None, flow: Workflow, old: Workflow | None) -> None:
    """Raise Refused unless this step was done. `old`: the workflow as it was then, if it is another one."""
    if done is None or done.action != step.action or done.status == "waiting":
        raise Refused(
            f"the step {step.id} of revision {flow.rev} comes before, and the run has not done it",
            fix=f"Begin there: --from {step.id}, or use the revision that the run began with",
        )
    # what is inside is reached by executing it again, so it has to be what it was
    if old is not None and step.replays and _definition_of(flow, step.id) != _definition_of(old, step.id):
        raise Refused(
            f"the step {step.id} comes before, and has other steps inside in revision {flow.rev}",
            fix=f"Begin there: --from {step.id}, or use the revision that the run began with",
        )


def _root(path: str) -> str:
    """The step of the workflow itself that this one is inside of."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]


def _is_before(record: StepRecord, first: StepRecord) -> bool:
    """Whether this step inside of the same one was over when the other began, and is not around or inside it."""
    around = first.path.startswith((f"{record.path}.", f"{record.path}["))
    inside = record.path.startswith((f"{first.path}.", f"{first.path}["))
    if record.path == first.path or around or inside or record.status == "waiting":
        return False
    ended = record.finished_at or record.started_at
    return ended is not None and first.started_at is not None and ended <= first.started_at


async def _edited(context: Context, flow: Workflow, path: str, changes: Mapping[str, Any]) -> str:
    """The revision in which this step has these parameters; it is written to the store if it is a new one."""
    if not changes:
        return flow.rev
    wrong = sorted(NO_INPUT & set(changes))
    if wrong:
        raise Refused(f"{wrong[0]} is not an input of a step", fix="Change the workflow instead, and use --latest")
    from harken.config.loaded import revision

    definition = _replaced(flow, path, {name: _literal(value) for name, value in changes.items()})
    edited = Workflow(name=flow.name, rev=revision([flow.name, definition]), definition=definition)
    try:
        _compile(context, edited)
    except Misconfigured as error:
        raise Refused(f"the step {path} cannot be executed with this input: {error.message}", fix=error.fix) from None
    Ownership(context, context.principal).admit_edited(_revealed(context, flow), _revealed(context, edited))
    await context.store.put(WORKFLOW, edited.rev, {"name": flow.name, "definition": definition}, expect=0)
    return edited.rev


def _replaced(flow: Workflow, path: str, changes: Mapping[str, Any]) -> Any:
    """The definition in which the step at this path has other parameters."""
    if _ITERATION.search(path):
        raise Refused(
            f"the step {path} is done for each item, and would get this input each time",
            fix=f"Begin with {_root(path)}",
        )
    definition = msgspec.json.decode(msgspec.json.encode(flow.definition))
    steps: list[Any] = definition["steps"]
    if path == _root(path):
        found = [step for step in steps if step is _definition_in(steps, path)]
    else:
        name = path.rpartition(".")[2]
        found = [step for step in _inner(_definition_in(steps, _root(path))) if step.get("id") == name]
    if len(found) != 1:
        raise Refused(f"the step {path} cannot be told from others", fix="Give it an id of its own in the workflow")
    found[0].update(changes)
    return definition


def _definition_of(flow: Workflow, id: str) -> Any:
    return _definition_in(flow.definition["steps"], id)


def _definition_in(steps: Sequence[Any], id: str) -> Any:
    """The step of this id. One that has none is called by its action and its number."""
    for number, step in enumerate(steps, 1):
        action = str(step.get("action", step.get("type", "if")))
        if step.get("id", f"{action.replace('.', '_')}_{number}") == id:
            return step
    return None


def _inner(value: Any) -> Iterator[dict[str, Any]]:
    """Everything below that may be a step."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(part, dict):
            yield part
        yield from _inner(part)


def _literal(value: Any) -> Any:
    """The value as a workflow writes it, so that neither templates nor references to secrets in it are resolved."""
    if isinstance(value, str):
        if "{{" not in value and "${" not in value:
            return value
        if len(value) > LONGEST_TEXT:
            raise Refused(f"a text with {{{{ or ${{ in it may have {LONGEST_TEXT} characters")
        return '{{ "' + _SPECIAL.sub(lambda found: f"\\u{ord(found[0]):04x}", value) + '" }}'
    if isinstance(value, Mapping):
        return {str(name): _literal(inner) for name, inner in value.items()}
    return [_literal(inner) for inner in value] if isinstance(value, (list, tuple)) else value


async def _input(context: Context, run: Run, changes: Mapping[str, Any]) -> bytes:
    """The run's input with these fields replaced; empty if it took its event as it is, and still does."""
    given = input_of(run)
    if given is None and not changes:
        return mark_replay(b"") if is_replay(run) else b""
    if given is None:
        events = await context.store.events_by_id(run.event_ids)
        if not events:
            raise Refused(
                f"the event of run {run.id} is no longer stored", fix="Start its workflow: harken workflows run"
            )
        given = events[-1].data
    if changes and not isinstance(given, Mapping):
        raise Refused(f"the input of run {run.id} has no fields")
    encoded = msgspec.json.encode({**given, **changes} if changes else given)
    return mark_replay(encoded) if is_replay(run) else encoded
