"""Steps without a call to anything outside: transform and emit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from harken.errors import Misconfigured
from harken.event import Event
from harken.run.compiler import Compiler, Strict
from harken.run.execute import Frame
from harken.run.plan import CompiledAct, StepKind

__all__ = ["EMIT", "TRANSFORM"]


class TransformBlock(Strict):
    values: dict[str, Any] = Field(alias="set")


class EmitBlock(Strict):
    type: str = Field(alias="event")
    data: Any = Field(default_factory=dict)
    subject: str = ""
    key: str = ""


def _transform(params: TransformBlock, compiler: Compiler) -> CompiledAct:
    parts = {name: compiler.value(value, "set", name) for name, value in params.values.items()}

    async def act(frame: Frame) -> Any:
        return {name: part(frame.names) for name, part in parts.items()}

    return CompiledAct(act=act, instant=True)


def _emit(params: EmitBlock, compiler: Compiler) -> CompiledAct:
    kind, data = compiler.value(params.type, "event"), compiler.value(params.data, "data")
    subject, key = compiler.value(params.subject, "subject"), compiler.value(params.key, "key")
    compiler.note_run_needed()

    async def act(frame: Frame) -> Any:
        names = frame.names
        given = data(names)
        if not isinstance(given, Mapping):
            raise Misconfigured(f"emit needs data that is a mapping, not {type(given).__name__}")
        event_key = str(key(names)) or frame.key
        event = Event(
            subject=str(subject(names)) or event_key,
            type=str(kind(names)),
            data=given,
            key=event_key,
            state=event_key,
            occurred_at=frame.execution.clock.now(),
        )
        frame.caused.append(event)
        frame.input = {"event": event.type, "data": given}
        return {"type": event.type, "subject": event.subject, "key": event.key}

    return CompiledAct(act=act, instant=True)


TRANSFORM = StepKind(name="transform", params=TransformBlock, build=_transform, pure=True)
EMIT = StepKind(name="emit", params=EmitBlock, build=_emit, pure=True)
