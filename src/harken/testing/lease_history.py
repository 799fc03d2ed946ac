"""What a store was asked, in its own order, and whether every shard and every run had at most one writer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harken.clock import Clock
from harken.errors import HarkenError
from harken.store import HOUSEKEEPING, Commit, Committed, Definitions, Lease

__all__ = ["History", "Note"]

WRITES = ("commit", "fail", "record_idle", "forget")


@dataclass(frozen=True, kw_only=True)
class Note:
    """One verb about a lease or under one. `what` is a shard or a run; `token` None says that nothing was given.

    It was sent after the verb that is at `began`, and answered at its `position`.
    """

    position: int
    began: int
    at: float
    who: str
    verb: str
    what: int | str
    token: int | None
    accepted: bool
    until: float = 0.0

    def __str__(self) -> str:
        end = "" if self.accepted else " REFUSED"
        return f"{self.position:5} {self.at:.3f} {self.who:6} {self.verb:8} {self.what} token {self.token}{end}"


class History:
    """Told of each verb when it has taken effect or was refused."""

    def __init__(self, clock: Clock) -> None:
        self.notes: list[Note] = []
        self.refused = 0
        self._clock = clock
        self._shards: dict[str, int] = {}
        self.position = 0
        self._began = 0
        self._generation = ""

    def note(self, who: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any, began: int) -> None:
        """`answer` is what the caller gets, or the error that it meets; `began`: the position when it was sent."""
        self.position += 1
        self._began = began
        refused = isinstance(answer, HarkenError)
        if verb in WRITES:
            accepted = isinstance(answer, Committed) if verb == "commit" else not refused
            for shard, token in self._written(verb, args):
                self._add(who, verb, shard, token, accepted)
        if refused:
            return
        if verb == "open":
            self._opened(who, args[0])
        elif verb == "lease":
            self._leased(who, args, kwargs.get("generation", ""), answer)
        elif verb == "release_lease":
            self._add(who, verb, args[0].shard, args[0].token, True)
        for run, token in _claimed(verb, args, answer):
            self._add(who, "claim", run, token, True)
        for run, token in _of_runs(verb, args, answer):
            self._add(who, verb, run, token, True)

    def _add(self, who: str, verb: str, what: int | str, token: int | None, accepted: bool, until: float = 0.0) -> None:
        self.refused += not accepted
        note = Note(
            position=self.position,
            began=self._began,
            at=self._clock.time(),
            who=who,
            verb=verb,
            what=what,
            token=token,
            accepted=accepted,
            until=until,
        )
        self.notes.append(note)

    def _opened(self, who: str, definitions: Definitions) -> None:
        self._shards = {feed.name: feed.shard for feed in definitions.feeds}
        if definitions.generation != self._generation and definitions.holder:
            # from now on the leases of all others are over
            self._add(who, "open", "", None, True)
        self._generation = definitions.generation

    def _leased(self, who: str, args: tuple[Any, ...], generation: str, lease: Lease | None) -> None:
        if lease is not None:
            assert generation in ("", self._generation), f"{who} was given a lease for the old {generation}"
            self._add(who, "lease", lease.shard, lease.token, True, until=self._clock.time() + args[2])
        elif generation and generation != self._generation:
            self._add(who, "release_lease", args[0], None, True)

    def _written(self, verb: str, args: tuple[Any, ...]) -> Iterator[tuple[int, int]]:
        given: Any = args[0]
        if verb == "forget":
            yield self._shards[given], args[1]
            return
        for one in given if verb == "record_idle" else [given]:
            if one.token is not None:
                yield self._shards[one.feed], one.token

    def check(self) -> None:
        """Raise AssertionError where two wrote at once."""
        current: dict[int | str, Note] = {}
        claims: dict[int | str, list[Note]] = {}
        over: set[int | str] = set()
        for note in self.notes:
            held = current.get(note.what)
            if note.verb == "open":
                over |= {what for what, one in current.items() if one.who != note.who and what != HOUSEKEEPING}
            elif note.verb == "lease":
                self._may_hold(note, held, note.what in over)
                over.discard(note.what)
                current[note.what] = note
            elif note.verb == "claim":
                assert held is None or (note.token or 0) > (held.token or 0), self._told("a claim's token fell", note)
                current[note.what] = note
                claims.setdefault(note.what, []).append(note)
            elif note.verb == "release_lease":
                if held is not None and note.token in (held.token, None) and note.who == held.who:
                    over.add(note.what)
            elif note.accepted:
                self._may_write(note, _as_it_was(note, claims.get(note.what, [])) or held)

    def _may_hold(self, note: Note, held: Note | None, over: bool) -> None:
        if held is None:
            return
        if held.token == note.token:
            assert held.who == note.who, self._told(f"the token is that of {held.who}", note)
            return
        assert (note.token or 0) > (held.token or 0), self._told("a lease's token fell", note)
        free = over or held.who == note.who or held.until <= note.at
        assert free, self._told(f"{held.who} holds it until {held.until:.3f}", note)

    def _may_write(self, note: Note, held: Note | None) -> None:
        assert held is not None, self._told("nobody was given this", note)
        assert held.token == note.token, self._told(f"the newest token is {held.token} of {held.who}", note)
        assert held.who == note.who, self._told(f"the token is that of {held.who}", note)

    def _told(self, what: str, note: Note) -> str:
        before = [str(one) for one in self.notes if one.what == note.what and one.position <= note.position]
        return "\n".join([what, *before[-12:]])


def _as_it_was(note: Note, claims: list[Note]) -> Note | None:
    """The claim that a verb was written with: the newest when it was sent, or one that was answered meanwhile.

    The answers of verbs that are under way at the same time do not come in the order in which they took effect.
    """
    before = sum(claim.position <= note.began for claim in claims)
    possible = claims[max(0, before - 1) :]
    return next((claim for claim in possible if claim.token == note.token), None)


def _of_runs(verb: str, args: tuple[Any, ...], answer: Any) -> Iterator[tuple[str, int]]:
    """The runs that were written with a claim's token."""
    if verb in ("journal", "park"):
        if answer is None:
            yield args[0], args[1]
    elif verb == "settle":
        for one, result in zip(args[0], answer, strict=True):
            if result == "settled":
                yield one.id, one.token


def _claimed(verb: str, args: tuple[Any, ...], answer: Any) -> Iterator[tuple[str, int]]:
    """The runs that were handed out, with their tokens."""
    if verb == "claim":
        yield from ((one.id, one.token) for one in answer)
    elif verb == "commit" and isinstance(answer, Committed):
        commit: Commit = args[0]
        assert len(answer.claimed) <= commit.claim
        yield from ((one.id, one.token) for one in answer.claimed)
