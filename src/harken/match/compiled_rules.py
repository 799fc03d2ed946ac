"""The rules of a feed at one revision, compiled once and used for every event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from harken.feed import Feed, Join, Part, Trigger, TriggerState
from harken.language.cel import Condition, Key, Needs, compile_condition, compile_key, needs_of
from harken.language.go_template import Template, compile_template
from harken.store import Listeners

__all__ = ["PART_EVENTS", "Rule", "RulePart", "Rules", "compile_rules"]

PART_EVENTS = 200
"""The most events of one commit."""

PART_DECISIONS = 5_000
"""The most decisions of one commit: events times triggers that listen to them."""


class RulePart:
    """A part of a trigger's join, compiled. `number`: its place among the parts that the join needs.

    `ends`: the join is without it, so it ends the wait of the others.
    """

    __slots__ = ("by", "ends", "name", "number", "when")

    def __init__(self, part: Part, number: int, *, ends: bool) -> None:
        self.name = part.name
        self.number = number
        self.ends = ends
        self.by = _key(part.by)
        self.when: Condition | None = _condition(part.when) if part.when else None


class Rule:
    """One trigger with its state, compiled: condition, mapping, keys, and the parts of its join that `feed` has."""

    __slots__ = (
        "condition",
        "dedupe_by",
        "gather_by",
        "joins",
        "limited",
        "mapping",
        "name",
        "parts",
        "slot",
        "start_line",
        "state",
        "throttle_by",
        "timed",
        "trigger",
        "uid",
    )

    def __init__(self, trigger: Trigger, state: TriggerState, feed: str = "") -> None:
        self.trigger = trigger
        self.state = state
        self.uid = state.uid
        self.name = trigger.name
        self.start_line: datetime = state.start_line
        self.timed = trigger.max_age > 0 or trigger.quiet is not None
        self.condition: Condition | None = _condition(trigger.condition) if trigger.condition else None
        self.mapping: Any = _compile(trigger.mapping) if trigger.mapping is not None else None
        self.slot: Template | None = _template(trigger.concurrency_key) if trigger.concurrency_key else None
        gather, throttle, dedupe = trigger.gather, trigger.throttle, trigger.dedupe
        self.joins = isinstance(gather, Join)
        self.limited = throttle is not None or dedupe is not None
        self.gather_by = _key(gather.by) if gather is not None and not isinstance(gather, Join) else None
        self.throttle_by = _key(throttle.by) if throttle is not None else None
        self.dedupe_by = _key(dedupe.by) if dedupe is not None else None
        self.parts = _parts(gather, trigger.feed, feed or trigger.feed) if isinstance(gather, Join) else ()

    def with_state(self, state: TriggerState) -> Rule:
        """The same trigger in another state: nothing is compiled again."""
        if state == self.state:
            return self
        found = copy(self)
        found.state, found.uid, found.start_line = state, state.uid, state.start_line
        return found

    def expressions(self) -> Iterator[Condition]:
        """Everything that is evaluated of an event, but templates."""
        keys = (self.gather_by, self.throttle_by, self.dedupe_by, *(part.by for part in self.parts))
        yield from (found for found in (self.condition, *(part.when for part in self.parts)) if found is not None)
        yield from (key.expression for key in keys if isinstance(key, Key))

    def begun_by(self, moment: datetime, lag: int = 0) -> bool:
        """Whether the start line was reached by then, by a clock that is `lag` seconds behind ours.

        A time in whole seconds counts as any time within its second."""
        if moment >= self.start_line:
            return True
        if lag:
            moment += timedelta(seconds=lag)
        # a later epoch begins without memory: what it has shown in the same second must not fire again
        exact = moment.microsecond or self.state.epoch > 1
        return moment >= (self.start_line if exact else self.start_line.replace(microsecond=0))


class Rules:
    """Everything that matching needs to know of a feed at one revision.

    `names`: those of the triggers, by uid. `needs`: what all conditions read together.
    `reads_from`: nothing before it has to be read; None without triggers.
    `backfilling`: the triggers that have not yet been shown everything since their start line.
    `part_size`: so many events are matched and committed at once, which bounds how long others have to wait.
    `resting`: all triggers are paused, so there is no need to read.
    """

    __slots__ = (
        "backfilling",
        "feed",
        "names",
        "needs",
        "part_size",
        "reads_from",
        "reads_meta",
        "reads_replay",
        "resting",
        "revision",
        "rules",
    )

    def __init__(self, revision: int, feed: Feed, rules: tuple[Rule, ...]) -> None:
        self.revision = revision
        self.feed = feed
        self.rules = rules
        self.names = {rule.uid: rule.name for rule in rules}
        conditions = [found for rule in rules for found in rule.expressions()]
        self.needs: Needs | None = needs_of(conditions) if conditions else None
        self.reads_meta = self.needs is not None and "meta" in self.needs.tree
        self.reads_replay = self.needs is not None and "replay" in (self.needs.tree.get("event") or ())
        self.reads_from = min((rule.state.reads_from or rule.start_line for rule in rules), default=None)
        self.backfilling = tuple(rule for rule in rules if rule.state.backfilling)
        self.part_size = max(1, min(PART_EVENTS, PART_DECISIONS // max(1, len(rules))))
        self.resting = bool(rules) and all(rule.state.paused for rule in rules)

    @property
    def starts(self) -> dict[str, tuple[int, datetime]]:
        """The epoch and start line of each trigger, by uid. A read that began with others begins again."""
        return {rule.uid: (rule.state.epoch, rule.start_line) for rule in self.rules}


def compile_rules(listeners: Listeners, before: Rules | None = None) -> Rules:
    """The rules of a feed. What has not changed since `before` is not compiled again."""
    feed = listeners.feed.name
    known = {rule.name: rule for rule in before.rules} if before is not None and before.feed.name == feed else {}
    rules = tuple(
        known[trigger.name].with_state(state)
        if trigger.name in known and known[trigger.name].trigger == trigger
        else Rule(trigger, state, feed)
        for trigger, state in listeners.triggers
    )
    return Rules(listeners.revision, listeners.feed, rules)


@lru_cache(maxsize=4096)
def _condition(source: str) -> Condition:
    return compile_condition(source)


def _parts(join: Join, own: str, feed: str) -> tuple[RulePart, ...]:
    """The parts of the join that come from this feed; `own` is the feed of the trigger."""
    numbers = {part.name: number for number, part in enumerate((*join.wanted, *_unwanted(join)))}
    return tuple(
        RulePart(part, numbers[part.name], ends=part.name in join.none)
        for part in join.parts
        if (part.feed or own) == feed
    )


def _unwanted(join: Join) -> list[Part]:
    return [part for part in join.parts if part.name in join.none]


def _key(source: str) -> Key | Template | None:
    """A template, or an expression in CEL; None without a key, which is one key for all events."""
    if not source:
        return None
    return _template(source) if "{{" in source else _cel_key(source)


@lru_cache(maxsize=4096)
def _cel_key(source: str) -> Key:
    return compile_key(source)


@lru_cache(maxsize=4096)
def _template(source: str) -> Template:
    return compile_template(source)


def _compile(value: Any) -> Any:
    """The value with every string that has a template in it compiled; everything else stays as it is."""
    if isinstance(value, str):
        return _template(value) if "{{" in value else value
    if isinstance(value, Mapping):
        return {key: _compile(inner) for key, inner in value.items()}
    return [_compile(inner) for inner in value] if isinstance(value, list) else value
