"""The schema of `trigger:` in a workflow file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from harken.config.feeds import FeedBlock
from harken.config.model_validation import Invalid, Strict
from harken.config.settings import Duration
from harken.errors import Misconfigured
from harken.event import Identity
from harken.feed import First, Overlap
from harken.schedule import zone_of

__all__ = [
    "KINDS",
    "BudgetBlock",
    "CommonBlock",
    "DebounceBlock",
    "DedupeBlock",
    "DigestBlock",
    "DispatchBlock",
    "EmptyBlock",
    "EventBlock",
    "FileBlock",
    "GatherBlock",
    "JoinBlock",
    "PartBlock",
    "PollBlock",
    "QuietHours",
    "ThrottleBlock",
    "TriggerBlock",
    "WebhookBlock",
]

KINDS = ("poll", "webhook", "stream", "file", "schedule", "event", "api", "feed")


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _within_a_day(seconds: float) -> float:
    if not 0 < seconds <= 86_400:
        raise Invalid("must be at most 24h", "Write a duration such as 4h")
    return seconds


def _within_five_minutes(seconds: float) -> float:
    if not 0 < seconds <= 300:
        raise Invalid("must be at most 5m", "Write a duration such as 10s")
    return seconds


Texts = Annotated[list[str], BeforeValidator(_as_list)]
Startup = Literal["since_last", "ignore_historical", "backfill"]


class DispatchBlock(Strict):
    """How events become runs: where to begin, how fast, and with which inputs."""

    startup: Startup | None = None
    backfill: Annotated[Duration, AfterValidator(_within_a_day)] | None = None
    input_mapping: dict[str, Any] | None = None
    max_per_tick: int | None = Field(default=None, ge=1, le=1_000_000)
    dispatch_delay_ms: int | None = Field(default=None, ge=0, le=3_600_000)


class PollBlock(FeedBlock, DispatchBlock):
    """`poll:` describes a feed in place."""


class FileBlock(Strict):
    """The settings of every file trigger; all others are those of the service `files`."""

    interval: Duration | None = None
    schedule: Any = None
    identity: Identity | None = None
    first: First | None = None


class DigestBlock(Strict):
    """One run for all events within the window, or once there are `max` of them; separately for each value of `by`."""

    window: Annotated[Duration, Field(gt=0)]
    max: int = Field(default=0, ge=0)
    by: str = ""


class DebounceBlock(Strict):
    """One run for all events until none has come for `window`, and after `max_wait` at the latest."""

    window: Annotated[Duration, Field(gt=0)]
    max_wait: Annotated[Duration, Field(gt=0)] | None = None
    max: int = Field(default=0, ge=0)
    by: str = ""


class PartBlock(Strict):
    """One part of a join: which events it is, and the value that the parts which belong together share."""

    by: str = Field(min_length=1)
    when: str = ""
    feed: str | None = None


class JoinBlock(Strict):
    """One run for events of several kinds that belong together. Without `all`, `any` and `then`: all parts."""

    parts: dict[str, PartBlock] = Field(min_length=1, max_length=64)
    within: Annotated[Duration, Field(gt=0)]
    all: Texts | None = None
    any: int | None = Field(default=None, ge=1)
    then: list[str] | None = None
    none: Texts | None = None
    on_miss: Literal["drop", "run"] = "drop"


class ThrottleBlock(Strict):
    """At most `most` runs start in any span of `per`, separately for each value of `by`."""

    most: int = Field(ge=1, le=10_000)
    per: Annotated[Duration, Field(gt=0)]
    by: str = ""
    rest: Literal["hold", "drop"] = "hold"


class DedupeBlock(Strict):
    """Of the events with the same value of `by`, only the first within the span starts a run."""

    by: str = Field(min_length=1)
    within: Annotated[Duration, Field(gt=0)]


class GatherBlock(Strict):
    digest: DigestBlock | None = None
    debounce: DebounceBlock | None = None
    join: JoinBlock | None = None
    throttle: ThrottleBlock | None = None
    dedupe: DedupeBlock | None = None


class QuietHours(Strict):
    """Hours in which nothing is started, in the time zone `tz`."""

    start: str = Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    end: str = Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
    tz: str = "UTC"

    @field_validator("end")
    @classmethod
    def _another_time(cls, value: str, info: ValidationInfo) -> str:
        if value == info.data.get("start"):
            raise Invalid("is the same as start", "To start nothing at all: harken triggers pause NAME")
        return value

    @field_validator("tz")
    @classmethod
    def _a_zone(cls, value: str) -> str:
        try:
            zone_of(value)
        except Misconfigured as error:
            raise Invalid(error.message, error.fix) from None
        return value


class BudgetBlock(Strict):
    """Limits on what the trigger's runs use per calendar hour or day, in UTC."""

    tokens_per_day: int | None = Field(default=None, ge=0)
    usd_per_day: float | None = Field(default=None, ge=0)
    runs_per_hour: int | None = Field(default=None, ge=0)


class CommonBlock(DispatchBlock):
    """Settings of every kind of trigger."""

    condition: str = ""
    gather: GatherBlock | None = None
    overlap: Overlap = "allow"
    concurrency_key: str = ""
    priority: int = Field(default=0, ge=-1_000, le=1_000)
    flood_limit: int = Field(default=100, ge=0)
    max_attempts: int = Field(default=3, ge=1, le=100)
    stale_after: Annotated[Duration, Field(gt=0)] | None = None
    max_age: Annotated[Duration, Field(gt=0)] | None = None
    quiet_hours: QuietHours | None = None
    budget: BudgetBlock | None = None


class TriggerBlock(CommonBlock):
    """A trigger of any kind. `type` is optional: the block that is present names the kind."""

    type: str | None = None
    poll: Any = None
    webhook: Any = None
    schedule: Any = None
    event: Any = None
    api: Any = None
    feed: Any = None
    file: Any = None
    stream: Any = None


class WebhookBlock(Strict):
    """The settings of every webhook; all others belong to the provider."""

    id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    provider: str = "generic"
    integration: str | None = None
    respond: Literal["at_once", "when_done"] = "at_once"
    respond_within: Annotated[Duration, AfterValidator(_within_five_minutes)] | None = None


class EventBlock(Strict):
    """Selects Harken's own events by type and by the workflow they are about."""

    type: Texts = Field(default_factory=list, alias="types")
    workflow: str | None = None


class EmptyBlock(Strict):
    """A block without settings."""
