"""The tools that every agent has: what it may do with its own jobs. None of them creates or deletes anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["JOB_TOOLS", "Hints", "JobTool"]


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What a client may tell its user before it calls; `outside`: it reaches beyond Harken."""

    reads: bool
    destroys: bool = False
    repeatable: bool = False
    outside: bool = True


@dataclass(frozen=True, kw_only=True)
class JobTool:
    """`operation` is what is done, for the agent that calls."""

    operation: str
    summary: str
    params: type[BaseModel]
    result: type[BaseModel]
    hints: Hints


_LOOKS = Hints(reads=True, repeatable=True, outside=False)
_SETS = Hints(reads=False, repeatable=True, outside=False)


class NoParams(BaseModel):
    """Nothing has to be said."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class JobParams(NoParams):
    """Which job."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$", description="the id of a job, from pollers_list")


class ResetParams(JobParams):
    """Which job, and that it is meant."""

    confirm: Literal[True] = Field(description="must be true: what the job has read is forgotten, and not recoverable")


class JobRow(BaseModel):
    """A job and how it is doing. Times are milliseconds since 1970."""

    id: str
    kind: str | None = Field(description="what it watches, such as gmail or rss")
    agent: str | None
    paused: bool
    last_run_at_ms: int | None
    next_run_at_ms: int | None
    last_status: Literal["ok", "transient", "permanent", "skipped"] | None
    last_error: str | None
    consecutive_errors: int
    items_seen_total: int
    items_dispatched_total: int


class JobRows(BaseModel):
    """The jobs of this agent."""

    items: list[JobRow]


class JobDetail(JobRow):
    """A job with all its settings, and why it stands still if it does."""

    paused_reason: str | None
    breaker: str
    breaker_until_ms: int | None
    alert_cooldown_until_ms: int | None
    settings: dict[str, Any] | None


class JobRead(BaseModel):
    """What a read found: how many items it saw, and how many of them are new."""

    id: str
    result: str
    seen: int
    new: int
    error: str | None


JOB_TOOLS: Mapping[str, JobTool] = {
    "pollers_list": JobTool(
        operation="pollers.list",
        summary="List your poller jobs: whether each runs, when it was and will be read, its errors and counts.",
        params=NoParams,
        result=JobRows,
        hints=_LOOKS,
    ),
    "pollers_show": JobTool(
        operation="pollers.show",
        summary="Show one of your poller jobs with its settings, and why it stands still if it does.",
        params=JobParams,
        result=JobDetail,
        hints=_LOOKS,
    ),
    "pollers_run": JobTool(
        operation="pollers.run",
        summary="Read one of your poller jobs now instead of at its next time. What is new is delivered as always.",
        params=JobParams,
        result=JobRead,
        hints=Hints(reads=False),
    ),
    "pollers_pause": JobTool(
        operation="pollers.pause",
        summary="Pause one of your poller jobs: it reads and delivers nothing until it is resumed.",
        params=JobParams,
        result=JobRow,
        hints=_SETS,
    ),
    "pollers_resume": JobTool(
        operation="pollers.resume",
        summary="Resume one of your poller jobs: its errors are forgotten, and it reads again.",
        params=JobParams,
        result=JobRow,
        hints=_SETS,
    ),
    "pollers_reset": JobTool(
        operation="pollers.reset",
        summary="Make one of your poller jobs forget all that it has read and begin at now. Cannot be undone.",
        params=ResetParams,
        result=JobRow,
        hints=Hints(reads=False, destroys=True, repeatable=True, outside=False),
    ),
}
