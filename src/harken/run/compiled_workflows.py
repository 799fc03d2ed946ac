"""Checks and compiles workflows, and caches the compiled plans by revision."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from harken.errors import Misconfigured, NotFound
from harken.run.compiler import Actions, Compiler, Use, parse_inputs
from harken.run.plan import Plan, Problem, StepKind
from harken.run.steps import KINDS
from harken.runs import Workflow
from harken.store import Registry
from harken.store.document_kinds import WORKFLOW
from harken.suggest import suggest_quoted

__all__ = ["DEFINITION_KEYS", "WorkflowCache", "check_workflow", "compile_workflow", "uses_of"]

DEFINITION_KEYS = ("inputs", "steps", "outputs")


def check_workflow(definition: Any, *, actions: Actions | None = None) -> list[Problem]:
    """All problems of a definition; none when it can run. `actions`: the parameters of the services' actions."""
    compiler = Compiler(KINDS, actions)
    _compile(Workflow(name="", rev="", definition=definition), compiler)
    # only here: a stored revision that reads an unknown step, and works without it, runs on
    compiler.note_unknown_steps()
    return compiler.problems


def compile_workflow(workflow: Workflow, kinds: Mapping[str, StepKind] = KINDS) -> Plan:
    """Return the plan; raises Misconfigured with the first problem and the number of others."""
    compiler = Compiler(kinds, None)
    plan, problems = _compile(workflow, compiler), compiler.problems
    if problems:
        first = problems[0]
        where = ".".join(str(part) for part in first.path)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        fix = first.suggestion or f"harken workflows check {workflow.name}"
        raise Misconfigured(f"workflow {workflow.name!r}: {where}: {first.message}{more}", fix=fix)
    return plan


def uses_of(definition: Any) -> set[Use]:
    """What the steps of a definition reach by name, in whichever way and however deep they are written."""
    compiler = Compiler(KINDS, None)
    _compile(Workflow(name="", rev="", definition=definition), compiler)
    return compiler.uses


def _compile(workflow: Workflow, compiler: Compiler) -> Plan:
    given: Any = workflow.definition
    if not isinstance(given, Mapping):
        compiler.problem("a workflow must be a mapping with steps")
        given = {}
    for key in given:
        if key not in DEFINITION_KEYS:
            compiler.problem(f"unknown key {key!r}", str(key), suggestion=suggest_quoted(str(key), DEFINITION_KEYS))
    inputs, wrong = parse_inputs(given.get("inputs"))
    compiler.problems.extend(wrong)
    steps = compiler.steps(given.get("steps") or [], "steps")
    outputs = _outputs(compiler, given.get("outputs"))
    instant = all(step.instant for step in steps)
    return Plan(
        name=workflow.name,
        rev=workflow.rev,
        steps=steps,
        inputs=inputs,
        outputs=outputs,
        instant=instant,
        empty=not (steps or inputs or outputs),
        reads_replay=bool(compiler.replay_reads),
        early=instant and not compiler.needs_run,
    )


def _outputs(compiler: Compiler, given: Any) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        compiler.problem("outputs must be a mapping of names to templates", "outputs")
        return {}
    return {str(name): compiler.value(value, "outputs", str(name)) for name, value in (given or {}).items()}


class WorkflowCache:
    """Compiled workflows by revision. A revision never changes; the least recently used plans are dropped.

    `reveal` replaces references to secrets in a definition from the store by their values. `kinds` are those of steps.
    """

    def __init__(
        self,
        store: Registry,
        *,
        size: int = 1_000,
        reveal: Callable[[Any], Any] = lambda definition: definition,
        kinds: Mapping[str, StepKind] = KINDS,
    ) -> None:
        self._store = store
        self._kinds = kinds
        self._reveal = reveal
        self._size = size
        self._plans: OrderedDict[str, Plan] = OrderedDict()

    def peek(self, rev: str) -> Plan | None:
        """The plan, if it is compiled already."""
        return self._plans.get(rev)

    def forget(self) -> None:
        """Drop all plans: secrets that definitions refer to may have changed."""
        self._plans.clear()

    def put(self, workflow: Workflow) -> Plan:
        """Compile and cache; raises Misconfigured."""
        plan = self._plans[workflow.rev] = compile_workflow(workflow, self._kinds)
        while len(self._plans) > self._size:
            self._plans.popitem(last=False)
        return plan

    async def get(self, rev: str) -> Plan:
        """The plan of a revision, from the store if need be; raises NotFound or Misconfigured."""
        plan = self._plans.get(rev)
        if plan is not None:
            self._plans.move_to_end(rev)
            return plan
        document = await self._store.get(WORKFLOW, rev)
        if document is None:
            fix = "Its definition was removed from the store; retry the run with the latest revision"
            raise NotFound(f"workflow revision {rev[:12]} is not in the store", fix=fix)
        value = document.value
        value = msgspec.json.decode(value) if isinstance(value, bytes | str) else value
        return self.put(Workflow(name=value["name"], rev=rev, definition=self._reveal(value["definition"])))
