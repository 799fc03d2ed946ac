"""How events gather in runs, as pure rules: when a run is due, when a join is complete, when a throttle allows a run.

The SQL stores decide by these functions, `triggers show` draws by them; backends/redis/lua/gathering.lua says the same
in Lua. Times are microseconds since 1970.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from struct import Struct

from harken.store.method_arguments_and_results import GatherInto, JoinPart, RateLimit

__all__ = [
    "Gathered",
    "answered_by",
    "decode_parts",
    "encode_parts",
    "fits",
    "is_complete",
    "keeps_incomplete",
    "pack_times",
    "part_numbers",
    "part_of",
    "postponed",
    "runs_when_over",
    "start_within",
    "unpack_times",
    "with_answer",
    "with_start",
]

Gathered = tuple[int, int]
"""A part of a join: its number, to which EARLY is added if it is early, and when it happened."""

EARLY = 128

MOST_ANSWERS = 64
"""So many times are kept at which a part happened that a join is without; they reach back 32 spans or more."""

_PART = Struct(">BQ")
_TIME = Struct(">Q")


def postponed(due: int, opened: int, wanted: int, into: GatherInto) -> int:
    """When a run that was opened at `opened` and is due at `due` is due after one more event, which wants `wanted`."""
    if not into.extends:
        return due
    latest = opened + round(into.wait * 1_000_000) if into.wait else wanted
    return max(due, min(wanted, latest))


def start_within(times: Sequence[int], wanted: int, rate: RateLimit) -> int:
    """When a run that is wanted at `wanted` may start, after runs that started, or will start, at `times`."""
    last = times[-rate.most :]
    return wanted if len(last) < rate.most else max(wanted, last[0] + round(rate.seconds * 1_000_000))


def with_start(times: Sequence[int], start: int, rate: RateLimit) -> list[int]:
    """The times that decide about the next runs."""
    later = list(times)
    insort(later, start)
    return later[-rate.most :]


def fits(gathered: Sequence[Gathered], at: int, span: float) -> bool:
    """Whether something that happened at `at` is within the span of the parts that are there."""
    times = [time for _, time in gathered]
    return max(*times, at) - min(*times, at) <= round(span * 1_000_000)


def part_of(part: JoinPart, at: int) -> Gathered:
    return part.number + (EARLY if part.early else 0), at


def is_complete(gathered: Sequence[Gathered], part: JoinPart) -> bool:
    """Whether enough different parts are there, and with `ordered` one after the other by the time they happened."""
    if len({number % EARLY for number, _ in gathered}) < part.needs or not _is_live(gathered):
        return False
    return not part.ordered or _in_order(gathered, part.needs)


def runs_when_over(gathered: Sequence[Gathered], part: JoinPart) -> bool:
    """Whether the run is run when its time is over, complete or not."""
    return (part.keeps and _is_live(gathered)) or is_complete(gathered, part)


def _is_live(gathered: Sequence[Gathered]) -> bool:
    return any(number < EARLY for number, _ in gathered)


def _in_order(gathered: Sequence[Gathered], needs: int) -> bool:
    earliest = 0
    for wanted in range(needs):
        later = [at for number, at in gathered if number % EARLY == wanted and at >= earliest]
        if not later:
            return False
        earliest = min(later)
    return True


def answered_by(newest: int, oldest: int, answer: int, span: float) -> bool:
    """Whether a part that a join is without, which happened at `answer`, ends the wait of those that are there."""
    return newest <= answer <= oldest + round(span * 1_000_000)


def with_answer(answers: Sequence[int], at: int, span: float) -> list[int]:
    """The times at which a part happened that a join is without, as far as they decide about what comes later.

    Of three within one span the middle one does not: what it would answer is answered by one of the others too.
    """
    sorted_times, width = list(answers), round(span * 1_000_000)
    insort(sorted_times, at)
    kept: list[int] = []
    for time in sorted_times:
        if len(kept) > 1 and time - kept[-2] <= width:
            kept.pop()
        kept.append(time)
    return kept[-MOST_ANSWERS:]


def encode_parts(gathered: Sequence[Gathered], *, keeps: bool) -> bytes:
    """`keeps`: the run is run when its time is over."""
    return bytes((keeps,)) + b"".join(_PART.pack(*part) for part in gathered)


def decode_parts(encoded: bytes) -> list[Gathered]:
    return list(_PART.iter_unpack(encoded[1:]))


def part_numbers(encoded: bytes | None) -> tuple[int, ...]:
    """The different parts that are there."""
    return tuple(sorted({number % EARLY for number, _ in decode_parts(encoded)})) if encoded else ()


def keeps_incomplete(encoded: bytes | None) -> bool:
    """Whether a run with these parts, None if it is no join, is run when its time is over."""
    return encoded is None or encoded[0] == 1


def pack_times(times: Sequence[int]) -> bytes:
    return b"".join(_TIME.pack(time) for time in times)


def unpack_times(packed: bytes) -> list[int]:
    return [time for (time,) in _TIME.iter_unpack(packed)]
