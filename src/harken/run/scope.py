"""The names that a run's templates and conditions can use, and how templates in values are compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from harken.errors import Misconfigured
from harken.event import Recorded
from harken.language.cel import Condition, Decision, bind
from harken.language.go_template import compile_template
from harken.runs import REPLAYED, Claimed, StepRecord

__all__ = [
    "Resolve",
    "Scope",
    "compile_text",
    "compile_value",
    "open_scope",
    "reads_name",
    "replace_event",
    "template_reads",
]

Names: TypeAlias = Mapping[str, Any]
Resolve: TypeAlias = Callable[[Names], Any]


class Scope:
    """The names visible at one place of a run. Steps in `if`, `switch` and `parallel` share the names of their run."""

    __slots__ = ("names", "steps")

    def __init__(self, names: dict[str, Any], steps: dict[str, Any]) -> None:
        self.names = names
        self.steps = steps

    def nested(self, **more: Any) -> Scope:
        """The scope of one iteration of a loop: it sees all names of this one, and its steps are not visible here."""
        steps = dict(self.steps)
        return Scope({**self.names, **more, "steps": steps}, steps)

    def decide(self, condition: Condition) -> Decision:
        """Evaluate the condition; raises Misconfigured when that fails, because an error must not count as false."""
        decision = condition.decide(bind(self.names))
        if decision.outcome == "error":
            fix = "Guard fields that may be missing with has(...)"
            raise Misconfigured(f"the condition {condition.source!r} failed: {decision.reason}", fix=fix)
        return decision

    def holds(self, condition: Condition) -> bool:
        return self.decide(condition).outcome == "true"

    def add_step(self, step_id: str, record: StepRecord, detailed: bool) -> Any:
        """Make a finished step visible as `steps.ID`, and return its response."""
        output = record.output
        details: Mapping[str, Any] = {}
        if detailed and isinstance(output, Mapping):
            response, details = output.get("response"), output
        else:
            response = output
        known = {**details, "response": response, "output": response, "status": record.status}
        self.steps[step_id] = {**known, "error": record.error} if record.error else known
        return response


def open_scope(claimed: Claimed, inputs: Mapping[str, Any], *, reads_replay: bool = False) -> Scope:
    """The scope at the start of a run. Reserved names hide inputs of the same name.

    `reads_replay`: the workflow asks for `event.replay`, which is not in the data of events."""
    events, replay = claimed.events, REPLAYED in inputs
    if replay:
        inputs = {name: value for name, value in inputs.items() if name != REPLAYED}
    trigger = _trigger(claimed.trigger, events)
    if reads_replay and events and (replay or "replay" not in trigger["event"]):
        # an event that brings a field of this name along keeps it, unless it is replayed
        shown = {**trigger["event"], "replay": replay}
        trigger |= {"event": shown, "events": [shown, *trigger["events"][1:]]}
    steps: dict[str, Any] = {}
    names = {
        **inputs,
        "event": trigger["event"],
        "trigger": trigger,
        "inputs": inputs,
        "steps": steps,
        "run": {"id": claimed.id, "attempt": claimed.attempt},
    }
    if events:
        names["meta"] = {name: trigger[name] for name in ("feed", "key", "subject", "type", "state", "occurred_at")}
    return Scope(names, steps)


def replace_event(scope: Scope, response: Any) -> None:
    """Show other values for some fields of the run's event: those of `event` in the response of its first step."""
    fields = response.get("event") if isinstance(response, Mapping) else None
    if not isinstance(fields, Mapping) or not fields:
        return
    trigger = scope.names["trigger"]
    event = {**trigger["event"], **fields}
    scope.names["event"] = event
    scope.names["trigger"] = {**trigger, "event": event, "events": [event, *trigger["events"][1:]]}


def _trigger(name: str, events: tuple[Recorded, ...]) -> dict[str, Any]:
    if not events:
        return {"name": name, "event": {}, "events": []}
    first = events[0]
    return {
        "name": name,
        "event": first.data,
        "events": [event.data for event in events],
        "feed": first.feed,
        "key": first.key,
        "subject": first.subject,
        "type": first.type,
        "state": first.state,
        "occurred_at": first.occurred_at.isoformat() if first.occurred_at else None,
    }


def compile_value(value: Any) -> Resolve:
    """Compile every template inside a value; raises Misconfigured. Types are kept, and a missing field is an error."""
    if isinstance(value, str) and "{{" in value:
        return compile_template(value).value
    if isinstance(value, Mapping):
        return _compile_mapping(value)
    if isinstance(value, list):
        parts = [compile_value(part) for part in value]
        return lambda names: [part(names) for part in parts]
    return lambda names: value


def template_reads(value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the path of each field that the templates inside a value read. They must compile."""
    if isinstance(value, str):
        yield from compile_template(value).reads if "{{" in value else ()
    elif isinstance(value, Mapping | list):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from template_reads(part)


def reads_name(value: Any, name: str) -> bool:
    """Whether the templates inside a value may read this name. They must compile."""
    if isinstance(value, str):
        return "{{" in value and compile_template(value).may_read(name)
    if isinstance(value, Mapping | list):
        return any(reads_name(part, name) for part in (value.values() if isinstance(value, Mapping) else value))
    return False


def _compile_mapping(value: Mapping[Any, Any]) -> Resolve:
    parts = {str(name): compile_value(part) for name, part in value.items()}
    return lambda names: {name: part(names) for name, part in parts.items()}


def compile_text(source: str) -> Callable[[Names, list[str]], str]:
    """Compile text for people and models: a missing field becomes `<no value>` and adds a warning."""
    if "{{" not in source:
        return lambda names, warnings: source
    template = compile_template(source)

    def render(names: Names, warnings: list[str]) -> str:
        rendered = template.render(names)
        warnings.extend(rendered.warnings)
        return rendered.text

    return render
