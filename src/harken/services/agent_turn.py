"""One turn of a language model at every tick: a morning summary, a reminder, a recurring question.

The job's schedule decides when the model is called, and the tokens per day are limited.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from harken.event import Event
from harken.kit import QueryModel
from harken.source import Batch, Cursor, Delivery, Host, Plugin

__all__ = ["Query", "Turns", "plugin"]


class Query(QueryModel):
    """What the model is asked at every tick."""

    prompt: str = Field(
        min_length=1, description="what the model is asked; {{.trigger.event.at}} is the time of the tick"
    )
    system: str = Field("", description="who the model is and how it answers")
    model: str = Field("", description="a tier (fast, balanced, strategic) or provider:model; else the default")
    max_tokens: int | None = Field(None, ge=1, description="longest answer")
    tokens_per_day: int = Field(
        100_000, ge=1, description="what all turns of a day (UTC) may use; those beyond it wait for the next day"
    )


class Turns:
    """Each committed read is one turn."""

    def __init__(self, host: Host) -> None:
        self._clock = host.clock

    async def poll(self, cursor: Cursor, since: datetime) -> Batch:
        now = self._clock.now()
        at = now.isoformat()
        data = {"at": at, "date": now.date().isoformat(), "previous": cursor if isinstance(cursor, str) else None}
        return Batch(events=[Event(subject=at, key=at, type="agent.turn", occurred_at=now, data=data)], cursor=at)


def _source(query: Query, account: object, host: Host) -> Turns:
    return Turns(host)


def _delivery(query: Query, integration: str) -> Delivery:
    params = {"prompt": query.prompt, "system": query.system, "model": query.model, "max_tokens": query.max_tokens}
    turn: dict[str, Any] = {"id": "answer", "action": "llm", **{key: value for key, value in params.items() if value}}
    return Delivery(template="{answer}", before=(turn,), tokens_per_day=query.tokens_per_day)


plugin = Plugin(
    kind="agent_turn",
    summary="One turn of a language model per tick",
    docs="reference/services/agent_turn.md",
    query=Query,
    source=_source,
    delivery=_delivery,
    first="all",
    lookback_seconds=0.0,
)
