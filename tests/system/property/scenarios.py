"""What can happen: a small configuration, and a script of everything that goes on around it."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from textwrap import fill
from typing import Any, TypeAlias

from hypothesis import strategies as st

from harken.timings import Timings

WIDTH = 150
STATES = ("open", "acked", "closed")
CONDITIONS = ("", 'event.state == "open"', 'event.state != "closed"')
FLOWS = ("quick", "quick", "slow")
# so that a virtual day costs milliseconds; not LONG_NAPS: the scenarios that once went wrong were found with these, and
# may need them to go wrong
RARE_LOOKS = Timings(idle_flush=20.0, worker_sleep=120.0, scheduler_nap=60.0, scheduler_dead=600.0, memory_cap=4)


@dataclass(frozen=True, kw_only=True)
class FeedPlan:
    """One polled feed and the API behind it."""

    view: str
    identity: str
    interval: float = 60.0
    page_size: int = 100
    cap: int = 0
    conditional: bool = False
    named: bool = False
    latency: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TriggerPlan:
    """A trigger, and whether it is there from the start."""

    feed: int
    condition: int = 0
    gather: tuple[float, int] | None = None
    overlap: str = "allow"
    flow: str = "quick"
    early: bool = True
    startup: str = "since_last"
    backfill: float = 0.0
    max_age: float = 0.0
    quiet: bool = False


@dataclass(frozen=True)
class Put:
    """Create or change an item; `late` says how long ago it claims to have happened (None: undated)."""

    feed: int
    item: int
    state: int
    late: float | None = 0.0


@dataclass(frozen=True)
class Burst:
    feed: int
    first: int
    count: int
    tied: bool


@dataclass(frozen=True)
class Remove:
    feed: int
    item: int


@dataclass(frozen=True)
class Flap:
    """A → B → A, with so many seconds between."""

    feed: int
    item: int
    gap: float


@dataclass(frozen=True)
class Trouble:
    feed: int
    kind: str
    seconds: float
    after: float | None


@dataclass(frozen=True)
class Crashing:
    """Die at a store verb to come, and be away for so long; `again`: and once more while starting."""

    verbs: int
    after: bool
    down: float
    again: int | None = None
    only: str = ""


@dataclass(frozen=True)
class Locked:
    """The database is locked at so many store verbs to come; `after`: they take effect, but their answers are lost."""

    verbs: int
    after: bool = False
    only: str = ""


@dataclass(frozen=True)
class Restart:
    down: float


@dataclass(frozen=True)
class Jump:
    seconds: float


@dataclass(frozen=True)
class Lid:
    seconds: float


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Turn:
    """A person does something about a trigger: add, drop, edit, pause, resume, reset or reset_cursor."""

    trigger: int
    what: str


@dataclass(frozen=True)
class Meanwhile:
    """It happens while the next page is between its source and its commit."""

    what: Any


@dataclass(frozen=True)
class Push:
    """Webhooks, some of them delivered before."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Tidy:
    """Retention and reaping, as the application does them now and then."""


Happening: TypeAlias = (
    Put
    | Burst
    | Remove
    | Flap
    | Trouble
    | Crashing
    | Locked
    | Restart
    | Jump
    | Lid
    | Wait
    | Turn
    | Meanwhile
    | Push
    | Tidy
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Scenario:
    """It is printed as short as it can be written: of a long text about a failure one may see only a part."""

    feeds: tuple[FeedPlan, ...]
    triggers: tuple[TriggerPlan, ...]
    script: tuple[Happening, ...]
    cron: str = ""
    push: bool = False
    announced: bool = False
    seed: int = 0

    def __repr__(self) -> str:
        return fill(_written(self), WIDTH, break_long_words=False, break_on_hyphens=False)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """As Hypothesis prints it."""
        printer.text(repr(self))


def _written(value: Any) -> str:
    """As one would write it in Python, without what is so by default."""
    if isinstance(value, tuple):
        return f"({', '.join(map(_written, value))}{',' * (len(value) == 1)})"
    if not is_dataclass(value):
        return repr(value)
    words: list[str] = []
    named = False
    for field in fields(value):
        found = getattr(value, field.name)
        if field.default is not MISSING and found == field.default:
            named = True
            continue
        named = named or field.kw_only is True
        words.append(f"{field.name}={_written(found)}" if named else _written(found))
    return f"{type(value).__name__}({', '.join(words)})"


def _secs(*choices: float) -> st.SearchStrategy[float]:
    return st.sampled_from(choices)


def feed_plans(view: str) -> st.SearchStrategy[FeedPlan]:
    plans = st.builds(
        FeedPlan,
        view=st.just(view),
        identity=st.sampled_from(("once", "change", "transition")),
        interval=_secs(60.0, 300.0),
        page_size=st.sampled_from((100, 100, 2, 1, 3)),
        cap=st.sampled_from((0, 0, 3)),
        conditional=st.booleans(),
        named=st.booleans(),
        latency=_secs(0.0, 0.0, 3.0),
    )
    return plans.map(_possible)


def _possible(plan: FeedPlan) -> FeedPlan:
    # a cap hides items for good, and only a listing shows states that change back between two reads
    return plan if plan.view == "listing" else replace(plan, cap=0, conditional=False)


def trigger_plans(feeds: int) -> st.SearchStrategy[TriggerPlan]:
    plans = st.builds(
        TriggerPlan,
        feed=st.integers(0, feeds - 1),
        condition=st.integers(0, len(CONDITIONS) - 1),
        gather=st.sampled_from((None, None, None, (120.0, 0), (600.0, 2))),
        overlap=st.sampled_from(("allow", "allow", "queue", "cancel_previous")),
        flow=st.sampled_from(FLOWS),
        early=st.booleans(),
        max_age=st.sampled_from((0.0, 0.0, 60.0, 3_000.0)),
        quiet=st.sampled_from((False, False, True)),
    )
    return st.builds(_starting, plans, st.sampled_from(STARTS))


STARTS = (("since_last", 0.0),) * 4 + (
    ("since_last", 7_200.0),
    ("ignore_historical", 0.0),
    ("backfill", 600.0),
    ("backfill", 80_000.0),
)


def _starting(plan: TriggerPlan, start: tuple[str, float]) -> TriggerPlan:
    return replace(plan, startup=start[0], backfill=start[1])


def world_ops(feeds: int) -> st.SearchStrategy[Happening]:
    feed, item = st.integers(0, feeds - 1), st.integers(0, 5)
    # in time, late within the lookback, far too late, in the future, undated
    late = st.sampled_from((0.0, 0.0, 0.0, 45.0, 110.0, 4000.0, -14_400.0, None))
    put = st.builds(Put, feed, item, st.integers(0, 2), late)
    return st.one_of(
        put,
        put,
        st.builds(Burst, feed, st.integers(6, 12), st.integers(2, 7), st.booleans()),
        st.builds(Remove, feed, item),
        st.builds(Flap, feed, item, _secs(5.0, 90.0, 400.0)),
    )


def turns(triggers: int) -> st.SearchStrategy[Turn]:
    what = ("add", "drop", "edit", "pause", "resume", "reset", "reset_cursor")
    return st.builds(Turn, st.integers(0, triggers - 1), st.sampled_from(what))


def troubles(feeds: int) -> st.SearchStrategy[Happening]:
    kinds = ("timeout", "rate_limited", "unavailable", "garbage", "forbidden", "malformed", "offline")
    after = st.sampled_from((None, 45.0, 400.0))
    return st.builds(Trouble, st.integers(0, feeds - 1), st.sampled_from(kinds), _secs(5.0, 70.0, 700.0), after)


def crashes() -> st.SearchStrategy[Happening]:
    again = st.none() | st.integers(0, 8)
    only = st.sampled_from(("commit", "commit", "settle", "journal", "record_idle"))
    return st.one_of(
        st.builds(Crashing, st.integers(0, 12), st.booleans(), _secs(0.0, 40.0, 5_000.0)),
        st.builds(Crashing, st.integers(0, 4), st.booleans(), _secs(0.0, 40.0), again),
        st.builds(Crashing, st.integers(0, 1), st.booleans(), _secs(0.0, 40.0, 5_000.0), st.none(), only),
        st.builds(Restart, _secs(0.0, 300.0, 90_000.0)),
    )


def locks() -> st.SearchStrategy[Happening]:
    only = st.sampled_from(("commit", "commit", "settle", "journal", "record_idle", ""))
    return st.builds(Locked, st.integers(1, 5), st.booleans(), only)


def passages() -> st.SearchStrategy[Happening]:
    return st.one_of(
        st.builds(Jump, _secs(-2_000.0, -30.0, 30.0, 2_000.0)),
        st.builds(Lid, _secs(600.0, 30_000.0, 300_000.0)),
    )


WEEKEND = (Wait(400.0), Lid(300_000.0), Tidy(), Wait(2_000.0))
STORIES: tuple[tuple[Happening, ...], ...] = (
    # seen, begun again, and happening once more under the same name
    (Put(0, 1, 0), Wait(400.0), Turn(0, "reset_cursor"), Wait(1.0), Put(0, 1, 0), Wait(400.0)),
    # somebody begins to listen while the page with the event is on its way
    (Wait(400.0), Meanwhile(Turn(1, "add")), Put(0, 2, 0, -14_400.0), Wait(400.0)),
    # the process dies around the commit, and the source says that nothing changed, or shows it no more
    (Put(0, 3, 0), Crashing(0, False, 0.0, None, "commit"), Wait(400.0)),
    (Wait(400.0), Put(0, 4, 0), Crashing(1, False, 5_000.0, None, "commit"), Wait(400.0), Remove(0, 4)),
    # the database is locked when the page is to be stored, and the process goes on
    (Wait(65.0), Put(0, 5, 0), Locked(1, False, "commit"), Wait(65.0), Put(0, 1, 1), Wait(65.0)),
)


@st.composite
def scenarios(draw: st.DrawFn, view: str, *, more: bool = False) -> Scenario:
    """A configuration with a script; `more` adds a schedule, webhooks and a listener to what runs do."""
    feeds = draw(st.lists(feed_plans(view), min_size=1, max_size=2 if more else 1))
    extra = draw(st.lists(trigger_plans(len(feeds)), max_size=2))
    triggers = [TriggerPlan(feed=number, flow=draw(st.sampled_from(FLOWS))) for number in range(len(feeds))] + extra
    wait = st.builds(Wait, _secs(1.0, 65.0, 65.0, 400.0, 900.0))
    world, turn = world_ops(len(feeds)), turns(len(triggers))
    meanwhile = st.builds(Meanwhile, st.one_of(turn, turn, world))
    ops = (
        [world] * 5
        + [wait] * 5
        + [turn] * 2
        + [crashes()] * 2
        + [meanwhile, troubles(len(feeds)), locks(), passages(), st.just(Tidy())]
    )
    if more:
        ops += [st.builds(Push, st.lists(st.integers(0, 9), min_size=1, max_size=4).map(tuple))] * 2
    parts = st.one_of([*ops, *ops]).map(lambda op: (op,)) | st.sampled_from(STORIES)
    script = [op for part in draw(st.lists(parts, min_size=6, max_size=24)) for op in part]
    # enough reads after a long sleep for memory to be swept
    script += draw(st.sampled_from(((), (), WEEKEND)))
    return Scenario(
        feeds=tuple(feeds),
        triggers=tuple(triggers),
        script=tuple(script),
        cron=draw(st.sampled_from(("", "all", "coalesce", "skip"))) if more else "",
        push=more,
        announced=draw(st.booleans()) if more else False,
        seed=draw(st.integers(0, 3)),
    )
