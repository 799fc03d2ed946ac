from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import datetime

import msgspec
import pytest
from multidict import CIMultiDict

from harken.clock import from_unix
from harken.errors import Deferred, RetryLater
from harken.outgoing_rate_limit import Level, RateLimit

START = 1_800_000_000.0


class HandClock:
    """Stands still until it is moved; whoever sleeps wakes in order."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.jumped = 0.0
        self.sleeps = 0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def time(self) -> float:
        return START + self.passed + self.jumped

    def now(self) -> datetime:
        return from_unix(self.time())

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.passed + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        end = self.passed + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end + 1e-9:
            self.passed, _, woken = heapq.heappop(self._sleepers)
            set_unless_cancelled(woken)
            await settle()
        self.passed = end


def set_unless_cancelled(woken: asyncio.Future[None]) -> None:
    if not woken.cancelled():
        woken.set_result(None)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def headers(**named: object) -> CIMultiDict[str]:
    return CIMultiDict({name.replace("_", "-"): str(value) for name, value in named.items()})


class Caller:
    """Makes calls one after the other, or all at once, and remembers who got through when."""

    def __init__(self, budget: RateLimit, clock: HandClock) -> None:
        self.budget = budget
        self.clock = clock
        self.log: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[None]] = []

    def queue(self, who: str, calls: int, cost: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._call(who, cost)) for _ in range(calls)]

    async def _call(self, who: str, cost: int) -> None:
        await self.budget.take(who, cost)
        self.log.append((who, round(self.clock.passed, 6)))

    @property
    def times(self) -> list[float]:
        return [at for _, at in self.log]

    @property
    def names(self) -> str:
        return "".join(who for who, _ in self.log)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


def runs_at_once(budget: RateLimit) -> bool:
    """Tell whether `take` returns without ever suspending."""
    coroutine = budget.take("a")
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    coroutine.close()
    return False


def test_a_budget_without_limits_never_suspends(clock: HandClock) -> None:
    budget = RateLimit(clock)
    assert all(runs_at_once(budget) for _ in range(1000))
    budget.learn(headers(X_RateLimit_Limit=5000, X_RateLimit_Remaining=4000, X_RateLimit_Reset=60), 200)
    assert all(runs_at_once(budget) for _ in range(1000))


async def test_a_configured_rate_spaces_the_calls(clock: HandClock) -> None:
    caller = Caller(RateLimit(clock, rate=10), clock)
    caller.queue("a", 5)
    await clock.advance(1)
    assert caller.times == [0, 0.1, 0.2, 0.3, 0.4]


async def test_time_that_passed_unused_is_not_saved_up(clock: HandClock) -> None:
    caller = Caller(RateLimit(clock, rate=10), clock)
    await clock.advance(100)
    caller.queue("a", 3)
    await clock.advance(1)
    assert caller.times == [100, 100.1, 100.2]


async def test_two_triggers_with_a_hundred_calls_each_take_turns(clock: HandClock) -> None:
    caller = Caller(RateLimit(clock, rate=10), clock)
    caller.queue("a", 100)
    await settle()
    caller.queue("b", 100)
    await clock.advance(19.95)
    assert len(caller.log) == 200
    assert caller.times[-1] == pytest.approx(19.9)
    # one of a's calls was through and one next in line when b came
    assert caller.names == "aa" + "ba" * 98 + "bb"


async def test_a_newcomer_waits_for_one_turn_of_each_and_not_for_a_backlog(clock: HandClock) -> None:
    caller = Caller(RateLimit(clock, rate=1), clock)
    caller.queue("a", 50)
    caller.queue("b", 50)
    await clock.advance(10)
    caller.queue("c", 1)
    await clock.advance(4)
    assert "c" in caller.names


async def test_within_one_trigger_the_first_to_come_is_the_first_to_go(clock: HandClock) -> None:
    budget, order = RateLimit(clock, rate=10), []

    async def call(number: int) -> None:
        await budget.take("a")
        order.append(number)

    tasks = [asyncio.create_task(call(number)) for number in range(20)]
    await clock.advance(5)
    assert order == list(range(20))
    assert all(task.done() for task in tasks)


async def test_a_dear_call_takes_the_time_of_several(clock: HandClock) -> None:
    caller = Caller(RateLimit(clock, rate=10), clock)
    caller.queue("a", 1, cost=5)
    caller.queue("b", 1)
    await clock.advance(1)
    assert caller.times == [0, 0.5]


async def test_a_caller_who_gives_up_does_not_hold_up_the_others(clock: HandClock) -> None:
    caller = Caller(RateLimit(clock, rate=1), clock)
    caller.queue("a", 3)
    caller.queue("b", 2)
    await settle()
    for task in (caller.tasks[1], caller.tasks[3]):
        task.cancel()
    await clock.advance(10)
    assert sorted(caller.names) == ["a", "a", "b"]


@pytest.mark.parametrize("victim", range(5))
async def test_whoever_gives_up_the_rest_get_through(clock: HandClock, victim: int) -> None:
    caller = Caller(RateLimit(clock, rate=1), clock)
    caller.queue("a", 1)
    await settle()
    caller.queue("a", 3)
    caller.queue("b", 2)
    await settle()
    caller.tasks[1 + victim].cancel()
    await clock.advance(20)
    assert len(caller.log) == 5
    assert runs_at_once(caller.budget)


async def test_giving_up_at_the_very_moment_of_ones_turn_passes_it_on(clock: HandClock) -> None:
    caller = Caller(RateLimit(clock, rate=1), clock)
    caller.queue("a", 1)
    await settle()
    caller.queue("a", 1)
    caller.queue("b", 1)
    await settle()
    caller.tasks[1].cancel()
    caller.tasks[2].cancel()
    caller.queue("c", 1)
    await clock.advance(5)
    assert caller.names == "ac"


async def test_retry_after_blocks_every_caller_until_then(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(Retry_After=700), 429)
    caller = Caller(budget, clock)
    caller.queue("a", 1)
    caller.queue("b", 1)
    await clock.advance(699)
    assert caller.log == []
    await clock.advance(2)
    assert caller.times == [700, 700]


async def test_nothing_is_dropped_however_long_the_block(clock: HandClock) -> None:
    budget = RateLimit(clock, rate=10)
    budget.learn(headers(Retry_After=7200), 429)
    caller = Caller(budget, clock)
    caller.queue("a", 50)
    caller.queue("b", 50)
    await clock.advance(7300)
    assert (caller.names.count("a"), caller.names.count("b")) == (50, 50)


async def test_a_block_survives_a_restart(clock: HandClock) -> None:
    before = RateLimit(clock)
    before.learn(headers(Retry_After=700), 429)
    stored = msgspec.json.decode(msgspec.json.encode(before.to_doc()))
    after = RateLimit(HandClock(), state=stored)
    assert after.blocked_until == START + 700
    assert not runs_at_once(after)


def test_the_revision_rises_when_there_is_something_worth_storing(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(Retry_After=60), 429)
    assert budget.revision == 1
    budget.learn(headers(Retry_After=30), 429)
    assert budget.revision == 1


async def test_another_quota_of_the_same_credential_tells_nothing_about_this_one(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(X_RateLimit_Limit=5000, X_RateLimit_Remaining=4000, X_RateLimit_Reset=600), 200)
    left = {"Limit": 30, "Remaining": 0, "Reset": 600, "Resource": "graphql"}
    spent = headers(**{f"X_RateLimit_{name}": value for name, value in left.items()})
    budget.learn(spent, 200)
    assert (budget.level.limit, budget.level.remaining, budget.blocked_until) == (5000, 4000, None)
    budget.learn(spent, 403)
    assert budget.blocked_until == START + 600, "a refusal is a refusal"


async def test_what_is_left_is_worth_storing_once_a_minute(clock: HandClock) -> None:
    budget = RateLimit(clock)
    told = headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=99, X_RateLimit_Reset=600)
    revisions = []
    for _ in range(5):
        budget.learn(told, 200)
        revisions.append(budget.revision)
        await clock.advance(25)
    assert revisions == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("doc", [{}, {"blocked_until": "soon"}, {"blocked_until": None, "limit": [], "remaining": "x"}])
def test_a_state_that_makes_no_sense_limits_nothing(clock: HandClock, doc: dict[str, object]) -> None:
    assert runs_at_once(RateLimit(clock, state=doc))


def test_a_shorter_retry_after_does_not_shorten_a_longer_one(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(Retry_After=700), 429)
    budget.learn(headers(Retry_After=5), 429)
    budget.learn(headers(), 200)
    assert budget.blocked_until == START + 700


@pytest.mark.parametrize("status", [200, 304, 401, 404, 500, 503])
def test_retry_after_blocks_the_credential_only_where_it_means_too_many_calls(clock: HandClock, status: int) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(Retry_After=700), status)
    assert budget.blocked_until is None


def test_a_success_that_asks_for_a_pause_beside_its_quota_blocks_too(clock: HandClock) -> None:
    budget = RateLimit(clock)
    quota = {"X-RateLimit-Remaining": "40", "X-RateLimit-Limit": "200", "X-RateLimit-Reset": str(START + 300)}
    budget.learn(CIMultiDict({**quota, "Retry-After": "30"}), 200)
    assert (budget.blocked_until, budget.level.why) == (START + 30, "asked")


def test_403_with_retry_after_is_too_many_calls(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(Retry_After=60), 403)
    assert budget.blocked_until == START + 60


@pytest.mark.parametrize("family", ["X-RateLimit-", "x-ratelimit-", "RateLimit-", "ratelimit-", "X-Rate-Limit-"])
@pytest.mark.parametrize("reset", ["90", str(int(START) + 90), str((int(START) + 90) * 1000)])
def test_a_used_up_quota_blocks_until_its_reset(clock: HandClock, family: str, reset: str) -> None:
    budget = RateLimit(clock)
    said = {family + "Limit": "100", family + "Remaining": "0", family + "Reset": reset}
    budget.learn(CIMultiDict(said), 200)
    assert budget.blocked_until == START + 90


@pytest.mark.parametrize("remaining", ["", "many", "-1", "nan"])
def test_headers_that_make_no_sense_limit_nothing(clock: HandClock, remaining: str) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(X_RateLimit_Remaining=remaining, X_RateLimit_Reset="later", X_RateLimit_Limit="x"), 200)
    assert runs_at_once(budget)


async def test_a_scarce_quota_is_spread_over_the_time_to_its_reset(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=5, X_RateLimit_Reset=50), 200)
    caller = Caller(budget, clock)
    caller.queue("a", 8)
    await clock.advance(60)
    assert caller.times[:5] == pytest.approx([0, 10, 20, 30, 40])
    assert caller.times[5:] == pytest.approx([50, 50, 50])


async def test_a_plentiful_quota_is_not_held_back(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=50, X_RateLimit_Reset=50), 200)
    caller = Caller(budget, clock)
    caller.queue("a", 40)
    await settle()
    assert caller.times == [0] * 40


async def test_a_burst_slows_down_when_it_has_eaten_into_the_last_tenth(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=20, X_RateLimit_Reset=50), 200)
    caller = Caller(budget, clock)
    caller.queue("a", 30)
    await settle()
    assert len(caller.log) <= 12
    await clock.advance(51)
    assert len(caller.log) == 30


async def test_calls_made_elsewhere_count(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=20, X_RateLimit_Reset=50), 200)
    budget.spend(20)
    assert budget.blocked_until == START + 50


def test_what_the_server_says_is_believed_over_our_own_count(clock: HandClock) -> None:
    budget = RateLimit(clock)
    told = headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=60, X_RateLimit_Reset=50)
    budget.learn(told, 200)
    budget.spend(55)
    budget.learn(told, 304)
    assert all(runs_at_once(budget) for _ in range(20))


async def test_a_clock_that_jumps_ahead_ends_the_wait_soon(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(Retry_After=700), 429)
    caller = Caller(budget, clock)
    caller.queue("a", 1)
    await clock.advance(10)
    clock.jumped = 1000
    await clock.advance(6)
    assert caller.names == "a"


async def test_a_caller_without_patience_is_told_when_to_come_back(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(Retry_After=700), 429)
    with pytest.raises(RetryLater) as raised:
        await budget.take("a", patience=10)
    assert (raised.value.reason, raised.value.after) == ("rate_limited", 700)
    assert clock.sleeps == 0


async def test_a_turn_that_is_far_away_is_not_waited_for_either(clock: HandClock) -> None:
    budget = RateLimit(clock, rate=0.1)
    await budget.take("a", patience=5)
    with pytest.raises(Deferred, match=r"spaced; the next turn is in 10 s") as raised:
        await budget.take("a", patience=5)
    assert (raised.value.reason, raised.value.after) == ("rate_limited", 10)


async def test_the_last_calls_of_a_quota_are_deferred_and_not_waited_for(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=5, X_RateLimit_Reset=3000), 200)
    await budget.take("a", patience=5)
    with pytest.raises(Deferred) as raised:
        await budget.take("b", patience=5)
    assert raised.value.after == pytest.approx(600)


async def test_those_in_line_count_when_patience_is_short(clock: HandClock) -> None:
    caller = Caller(RateLimit(clock, rate=1), clock)
    for name in "abcdef":
        caller.queue(name, 2)
    await settle()
    with pytest.raises(Deferred):
        await caller.budget.take("g", patience=5)
    assert caller.budget.level.waiting == {"a": 1, "b": 2, "c": 2, "d": 2, "e": 2, "f": 2}


def test_the_level_says_what_is_left_and_why_it_is_blocked(clock: HandClock) -> None:
    budget = RateLimit(clock, rate=2)
    budget.learn(headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=40, X_RateLimit_Reset=50), 200)
    assert budget.level == Level(limit=100, remaining=40, resets_at=START + 50, rate=2)
    budget.learn(headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=0, X_RateLimit_Reset=50), 200)
    assert (budget.level.blocked_until, budget.level.why) == (START + 50, "used up")
    budget.learn(headers(Retry_After=700), 429)
    assert (budget.level.blocked_until, budget.level.why) == (START + 700, "asked")


async def test_a_quota_that_was_reset_since_is_not_shown(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(X_RateLimit_Limit=100, X_RateLimit_Remaining=0, X_RateLimit_Reset=50), 200)
    await clock.advance(51)
    assert budget.level == Level(limit=100)


async def test_a_changed_rate_holds_from_now_on(clock: HandClock) -> None:
    budget = RateLimit(clock)
    assert all(runs_at_once(budget) for _ in range(5))
    budget.rate = 1
    assert [runs_at_once(budget) for _ in range(2)] == [True, False]


async def test_when_the_block_is_over_nothing_suspends_any_more(clock: HandClock) -> None:
    budget = RateLimit(clock)
    budget.learn(headers(Retry_After=60), 429)
    await clock.advance(61)
    assert all(runs_at_once(budget) for _ in range(10))
    assert budget.blocked_until is None
