"""The first half of matching, for a million stored events: what a trigger declines before anything is made of an event.

It asks the same rule and the same conditions as `match`; an event that is not declined goes on to `match` itself. Only
the fields that the conditions read are decoded, and events with equal fields are decided once.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from harken.language.cel import Bound, Condition, bind, needs_of
from harken.language.cel.failed_clauses import and_clauses, failed_clauses
from harken.match.compiled_rules import Rule, Rules

__all__ = ["Screen", "Screened"]

MOST_KNOWN = 100_000
"""After so many different events what was decided is forgotten, so that memory stays small."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Tree = dict[str, Any]
_encode_lines = msgspec.json.Encoder().encode_lines
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_objects = msgspec.json.Decoder(dict[str, Any]).decode_lines


class Screened(NamedTuple):
    """What the conditions say of an event: `true`, `false` or `error`, now and as changed.

    `failed` are the positions of the clauses of the changed condition that are not true.
    """

    now: str
    changed: str
    failed: tuple[int, ...]


TRUE = Screened("true", "true", ())


class Screen:
    """Decides the condition of a trigger, as it is and as it might be, on pages of stored events.

    An event's key is what the conditions read of it, as JSON: events with equal keys are decided alike. `reads_more`: a
    condition reads more than the event's data, so that keys cannot be used.
    """

    def __init__(self, rule: Rule, rules: Rules, changed: Condition | None) -> None:
        self._rule = rule
        self._rules = rules
        self._changed = changed
        self.clauses = and_clauses(changed) if changed is not None else []
        parts = [part.when for part in rule.parts]
        written = [condition for condition in (rule.condition, changed, *parts) if condition is not None]
        self._needs = needs_of(written) if written else None
        tree: _Tree = dict(self._needs.tree) if self._needs is not None else {}
        self.reads_more = bool(tree.keys() - {"event"})
        self._reads_replay = "replay" in (tree.get("event") or ())
        self._decode = _decoder(tree.get("event", {}))
        self._known: dict[bytes, Screened] = {}
        self._start = _micros(rule.start_line)
        self.selects_types = bool(rule.trigger.types)

    def keys(self, payloads: bytes | str) -> list[bytes]:
        """The key of each event, of their payloads as JSON, one after the other."""
        return _encode_lines(self._decoded(payloads)).split(b"\n")[:-1]

    def _decoded(self, payloads: bytes | str) -> list[Any]:
        if self._decode is not None:
            try:
                found: list[Any] = self._decode(payloads)
            except (msgspec.ValidationError, msgspec.DecodeError):
                # an odd value, such as a number that no machine word holds: all of it is read then
                pass
            else:
                return found
        events = _decode_objects(payloads)
        if self._reads_replay:
            for event in events:
                event.setdefault("replay", False)
        return events

    def event_of(self, key: bytes) -> dict[str, Any]:
        """An event with this key, perhaps only with the fields that the conditions read."""
        return _decode_object(key)

    def decided(self, key: bytes) -> Screened:
        """What the conditions say of an event with this key."""
        found = self._known.get(key)
        if found is None:
            found = self.screen(self.bound(self.event_of(key)))
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    def decide(self, payloads: bytes | str) -> list[Screened]:
        """What the conditions say of each event."""
        return [self.decided(key) for key in self.keys(payloads)]

    def bound(self, event: dict[str, Any]) -> Bound:
        return bind({"event": event}, self._needs)

    def screen(self, bound: Bound) -> Screened:
        now = self._outcome(self._rule.condition, bound)
        changed = now if self._changed is self._rule.condition else self._outcome(self._changed, bound)
        if changed == "true":
            return TRUE if now == "true" else Screened(now, changed, ())
        return Screened(now, changed, failed_clauses(self.clauses, bound))

    def _outcome(self, condition: Condition | None, bound: Bound) -> str:
        """What the condition says, and behind it the parts of a join: an event that is none of them is filtered."""
        outcome = "true" if condition is None else condition.outcome(bound)[0]
        if outcome != "true" or not self._rule.joins:
            return outcome
        for part in self._rule.parts:
            found = "true" if part.when is None else part.when.outcome(bound)[0]
            if found != "false":
                return found
        return "false"

    def listens(self, kind: str) -> bool:
        return not self._rule.trigger.types or kind in self._rule.trigger.types

    def begun(self, occurred_at: int | None) -> bool:
        """Whether the start line counts it. An undated event counts, unless it was in the first read."""
        if occurred_at is None or occurred_at >= self._start or self._rules.feed.first == "all":
            return True
        return self._rules.feed.way == "internal" or self._rule.begun_by(_EPOCH + timedelta(microseconds=occurred_at))


def _micros(moment: datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _decoder(tree: _Tree | None) -> Any:
    """A decoder of payloads that skips all fields but those in the tree; None where everything is read."""
    return msgspec.json.Decoder(_projected(tree)).decode_lines if tree is not None else None


def _projected(tree: _Tree) -> Any:
    # structs, as the garbage collector does not look at them: with objects as dicts it takes longer than the decoding
    fields: list[tuple[str, Any, Any]] = []
    for number, (name, below) in enumerate(tree.items()):
        kind: Any = Any
        if below:
            kind = _projected(below) | list[Any] | str | int | float | bool | None | msgspec.UnsetType
        default: Any = False if name == "replay" else msgspec.UNSET
        # a name that is no identifier works too: it is only a key
        fields.append((f"field{number}", kind, msgspec.field(default=default, name=name)))
    return msgspec.defstruct("Projected", fields, gc=False)
