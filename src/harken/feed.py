"""Feeds and triggers: what is read, and what listens to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from harken.circuit_breaker import Health
from harken.event import Identity, Span
from harken.schedule import Every, Quiet, Schedule

__all__ = [
    "AT_START",
    "INTERNAL",
    "MEMORY_COUNTED",
    "Budget",
    "Debounce",
    "Dedupe",
    "Digest",
    "Feed",
    "FeedState",
    "First",
    "Gather",
    "Join",
    "JoinForm",
    "Overlap",
    "Part",
    "Spacing",
    "Throttle",
    "TickSpan",
    "Trigger",
    "TriggerState",
    "Way",
]

INTERNAL = "harken"
"""The feed of what Harken itself does: emitted events, run outcomes and alerts."""

AT_START = "paused at start (paused_on_boot)"
"""The pause reason of a job with `paused_on_boot`: it waits for a person at every start."""

MEMORY_COUNTED = 20_000
"""How many subjects of a feed's memory are counted at most: a feed may have millions, and a person waits."""

Overlap = Literal["allow", "skip", "queue", "cancel_previous"]
Way = Literal["poll", "push", "stream", "internal"]
First = Literal["baseline", "deliver", "all"]
"""What the first read does with the items it finds: only remember them, deliver the newest of them, or deliver all.

With `all` the start line does not count, in any read: the query decides what is too old.
"""


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """A configured reading of an integration. Editing it never moves its cursor.

    `inherits` names the feed whose cursor and memory this one takes over when it is new in the store.
    The process that holds the lease of its `shard` reads it. A feed that a workflow describes has a digest of what it
    reads as its name, under which everything is stored, and a `label` for people, which may change at any time.
    Webhooks at its `path` are answered with what their run came to, if it ends within `respond_seconds`.
    """

    name: str
    kind: str
    integration: str
    way: Way = "poll"
    query: Mapping[str, Any] = {}
    schedule: Schedule | None = None
    identity: Identity = "once"
    lookback: float = 120.0
    first: First = "baseline"
    memory_seconds: float = 86_400.0
    page_timeout: float = 10.0
    tick_timeout: float = 120.0
    jitter: float = 0.1
    added_jitter: float = 0.0
    breaker: int | None = None
    backoff: tuple[float, float] | None = None
    inherits: str = ""
    path: str = ""
    respond_seconds: float = 0.0
    shard: int = 0
    label: str = ""

    @property
    def display_name(self) -> str:
        """What people see, in place of the name."""
        return self.label or self.name

    @property
    def interval(self) -> float:
        """The usual number of seconds between two reads; a minute where the schedule has no fixed interval."""
        return self.schedule.seconds if isinstance(self.schedule, Every) else 60.0


class Digest(msgspec.Struct, frozen=True, kw_only=True, tag="digest"):
    """Gather events into one run, until the window closes or there are `max` of them."""

    window: float
    max: int = 0
    by: str = ""


class Debounce(msgspec.Struct, frozen=True, kw_only=True, tag="debounce"):
    """Gather events into one run until none has come for `window` seconds; after `max_wait` at the latest, if given."""

    window: float
    max_wait: float = 0.0
    max: int = 0
    by: str = ""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a join: the events of `feed` (empty: that of the trigger) that meet `when`, matched up by `by`."""

    name: str
    by: str
    when: str = ""
    feed: str = ""


JoinForm = Literal["all", "any", "then"]


class Join(msgspec.Struct, frozen=True, kw_only=True, tag="join"):
    """Gather events of several kinds into one run: all parts, `count` of them, or all in the order of their time.

    The parts belong together if their keys are equal and they happened within `within` seconds of each other. Parts in
    `none` must not come: then the run waits until the time is over. `on_miss`: what becomes of a run that is incomplete
    when the time is over.
    """

    parts: tuple[Part, ...]
    within: float
    form: JoinForm = "all"
    count: int = 0
    none: tuple[str, ...] = ()
    on_miss: Literal["drop", "run"] = "drop"

    @property
    def wanted(self) -> tuple[Part, ...]:
        """The parts that have to come, in the order in which they were written."""
        return tuple(part for part in self.parts if part.name not in self.none)

    @property
    def needs(self) -> int:
        """So many different parts have to come."""
        return self.count if self.form == "any" else len(self.wanted)


Gather = Digest | Debounce | Join


class Throttle(msgspec.Struct, frozen=True, kw_only=True):
    """At most `most` runs start in any `per` seconds, for each value of `by`; the rest start later or not at all."""

    most: int
    per: float
    by: str = ""
    rest: Literal["hold", "drop"] = "hold"


class Dedupe(msgspec.Struct, frozen=True, kw_only=True):
    """Of the events with the same value of `by`, only the first within `within` seconds counts."""

    by: str
    within: float


class Spacing(msgspec.Struct, frozen=True, kw_only=True):
    """At most `per_tick` runs of one read become due at once; the rest follow, `delay` seconds apart."""

    per_tick: int = 0
    delay: float = 0.0


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger's runs may use in a calendar hour or day (UTC); None for no limit. Runs beyond it are held."""

    runs_per_hour: int | None = None
    tokens_per_day: int | None = None
    usd_per_day: float | None = None


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """Feed + condition + mapping + target workflow, as a person wrote it.

    With `routes` each event names its workflow in the field `pipeline`; they have the revision of each workflow that
    may be named. The runs of such a trigger are `watched`: the store tells when one of them moved.
    `owner` is whose it is: empty for what files define, which is the operator's.
    """

    name: str
    feed: str
    workflow: str
    workflow_rev: str
    condition: str = ""
    mapping: Mapping[str, Any] | None = None
    overlap: Overlap = "allow"
    concurrency_key: str = ""
    gather: Gather | None = None
    throttle: Throttle | None = None
    dedupe: Dedupe | None = None
    spacing: Spacing | None = None
    priority: int = 0
    startup: Literal["since_last", "ignore_historical", "backfill"] = "since_last"
    backfill: float = 0.0
    flood_limit: int = 100
    types: tuple[str, ...] = ()
    max_attempts: int = 3
    stale_after: float = 0.0
    max_age: float = 0.0
    quiet: Quiet | None = None
    budget: Budget | None = None
    source: str = ""
    routes: Mapping[str, str] = {}
    owner: str = ""

    @property
    def gathers(self) -> bool:
        """Whether several events may be one run, or some of them none."""
        return self.gather is not None or self.throttle is not None or self.dedupe is not None

    @property
    def feeds(self) -> tuple[str, ...]:
        """The feeds that it listens to: its own first, then those of the parts of its join."""
        parts = self.gather.parts if isinstance(self.gather, Join) else ()
        return tuple(dict.fromkeys((self.feed, *(part.feed for part in parts if part.feed))))

    @property
    def workflows(self) -> tuple[str, ...]:
        """The workflows that it may start."""
        return tuple(self.routes) or (self.workflow,)


class TriggerState(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows of a trigger beyond its definition. A trigger keeps its uid for as long as its name.

    `reads_from`: where its feed has to be read from; before the start line where history is ignored on purpose.
    `backfilling`: events between its start line and now have yet to be read or decided again.
    `runs_this_hour`, `tokens_today` and `usd_today` are what it has used of its budget.
    `done` counts its runs that succeeded, including deleted ones.
    """

    uid: str
    name: str
    epoch: int
    start_line: datetime
    paused: str = ""
    created_at: datetime
    fired: int = 0
    last_fired_at: datetime | None = None
    removed_at: datetime | None = None
    reads_from: datetime | None = None
    backfilling: bool = False
    runs_this_hour: int = 0
    tokens_today: int = 0
    usd_today: float = 0.0
    done: int = 0


class FeedState(msgspec.Struct, frozen=True, kw_only=True):
    """The position and health of a feed. `revision` rises with every change of the feed or its triggers.

    `memory` is how many subjects it remembers, or MEMORY_COUNTED if there are more: counting takes time. `seen` counts
    the new items that its reads have found, including deleted ones.
    """

    name: str
    revision: int
    cursor: Any = None
    watermark: datetime | None = None
    next_due: datetime | None = None
    health: Health = Health()
    reads: int = 0
    baselined: bool = False
    last_success: datetime | None = None
    last_tick: datetime | None = None
    coverage: tuple[Span, ...] = ()
    created_at: datetime
    memory: int = 0
    seen: int = 0


class TickSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Successive reads with the same result: one row, however many reads found nothing new."""

    feed: str
    started_at: datetime
    ended_at: datetime
    count: int
    result: Literal["nothing_new", "events", "unchanged", "error", "rate_limited", "changed"]
    seen: int = 0
    new: int = 0
    error: str = ""
    seconds: float = 0.0
