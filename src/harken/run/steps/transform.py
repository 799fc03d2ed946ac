"""Steps on values alone: transform and emit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from harken.errors import Misconfigured
from harken.event import Event
from harken.run.compiler import Compiler, Strict
from harken.run.execute import Frame
from harken.run.plan import Kind, Made

__all__ = ["EMIT", "TRANSFORM"]


class TransformWords(Strict):
    values: dict[str, Any] = Field(alias="set")


class EmitWords(Strict):
    type: str = Field(alias="event")
    data: Any = Field(default_factory=dict)
    subject: str = ""
    key: str = ""


def _transform(params: TransformWords, builder: Compiler) -> Made:
    parts = {name: builder.value(value, "set", name) for name, value in params.values.items()}

    async def act(frame: Frame) -> Any:
        return {name: part(frame.names) for name, part in parts.items()}

    return Made(act=act, instant=True)


def _emit(params: EmitWords, builder: Compiler) -> Made:
    kind, data = builder.value(params.type, "event"), builder.value(params.data, "data")
    subject, key = builder.value(params.subject, "subject"), builder.value(params.key, "key")

    async def act(frame: Frame) -> Any:
        names = frame.names
        given = data(names)
        if not isinstance(given, Mapping):
            raise Misconfigured(f"emit needs data that is a mapping, not {type(given).__name__}")
        named = str(key(names)) or frame.key
        event = Event(
            subject=str(subject(names)) or named,
            type=str(kind(names)),
            data=given,
            key=named,
            state=named,
            occurred_at=frame.execution.clock.now(),
        )
        frame.caused.append(event)
        return {"type": event.type, "subject": event.subject, "key": event.key}

    return Made(act=act, instant=True)


TRANSFORM = Kind(name="transform", params=TransformWords, build=_transform, pure=True)
EMIT = Kind(name="emit", params=EmitWords, build=_emit, pure=True)
