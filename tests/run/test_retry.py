"""How long a step, a run and a call to the store wait before the next attempt."""

from __future__ import annotations

from itertools import islice

import pytest

from harken.circuit_breaker import doubling, retry
from harken.errors import LeaseLost, RetryLater, StoreBusy, StoreUnavailable
from harken.run.retry import Retry, rate_limited_wait, retry_store, run_wait
from harken.testing.clock import VirtualClock, virtual


class Failing:
    """A call that raises these errors, one after the other, and then returns "done"."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        for error in self._errors[:1]:
            self._errors.pop(0)
            raise error
        return "done"


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (5000, 600)])
def test_the_wait_of_a_run_doubles_up_to_its_cap(attempt: int, seconds: float) -> None:
    assert run_wait(attempt, None, roll=0) == seconds


@pytest.mark.parametrize(("earlier", "seconds"), [(0, 30), (1, 60), (4, 480), (5, 600), (29, 600)])
def test_the_wait_after_a_rate_limit_doubles_up_to_its_cap(earlier: int, seconds: float) -> None:
    assert rate_limited_wait(earlier, None, roll=0) == seconds


@pytest.mark.parametrize("retry_after", [601.0, 7_200.0, 86_400.0])
def test_the_retry_after_of_a_run_is_not_cut_by_the_cap(retry_after: float) -> None:
    assert run_wait(1, retry_after, roll=0) == retry_after
    assert rate_limited_wait(0, retry_after, roll=0) == retry_after


@pytest.mark.parametrize(
    ("earlier", "retry_after", "seconds"), [(0, 6, 6), (1, 6, 6), (2, 6, 6), (4, 6, 16), (29, 6, 600), (0, 0, 30)]
)
def test_a_short_retry_after_of_a_429_is_kept_until_it_does_not_help(
    earlier: int, retry_after: float, seconds: float
) -> None:
    assert rate_limited_wait(earlier, retry_after, roll=0) == seconds


def test_a_short_retry_after_does_not_shorten_the_wait_that_follows_a_failure() -> None:
    assert run_wait(4, 5, roll=0) == 80


@pytest.mark.parametrize("roll", [0.0, 0.5, 0.999])
def test_jitter_only_lengthens_a_wait_and_by_a_fifth_at_most(roll: float) -> None:
    assert 600 <= run_wait(99, None, roll) < 720
    assert 30 <= rate_limited_wait(0, None, roll) < 36


@pytest.mark.parametrize(
    ("attempt", "after", "seconds"),
    [
        (1, None, 2),
        (2, None, 4),
        (3, None, None),
        (1, 25.0, 25),
        (1, 31.0, None),
    ],
    ids=["first", "doubled", "used up", "as long as asked for", "too long to occupy a slot"],
)
def test_the_next_attempt_of_a_step(attempt: int, after: float | None, seconds: float | None) -> None:
    step = Retry(max_attempts=3, backoff=2.0)
    assert step.wait(attempt, RetryLater("busy", after=after), roll=0) == seconds


def test_a_step_has_one_attempt_unless_it_says_more() -> None:
    assert Retry().wait(1, RetryLater("busy"), roll=0) is None


def test_pauses_double_and_stay_at_their_cap() -> None:
    assert list(islice(doubling(0.5, 5), 6)) == [0.5, 1, 2, 4, 5, 5]


@virtual
async def test_a_call_to_the_store_is_repeated_while_the_store_is_busy_or_away(clock: VirtualClock) -> None:
    call = Failing(StoreBusy("full"), StoreUnavailable("away"), StoreUnavailable("away"))
    began = clock.monotonic()
    assert (await retry_store(call, clock), call.calls) == ("done", 4)
    assert clock.monotonic() - began == pytest.approx(0.05 + 0.1 + 0.2)


@virtual
async def test_a_store_that_asks_for_more_time_gets_it(clock: VirtualClock) -> None:
    began = clock.monotonic()
    await retry_store(Failing(StoreBusy("full", after=30)), clock)
    assert clock.monotonic() - began == pytest.approx(30)


@virtual
async def test_any_other_error_passes_at_once(clock: VirtualClock) -> None:
    call = Failing(LeaseLost("another worker has it"))
    with pytest.raises(LeaseLost):
        await retry_store(call, clock)
    assert call.calls == 1


@virtual
async def test_an_error_is_reported_when_it_changes_and_not_while_it_repeats(clock: VirtualClock) -> None:
    heard: list[str] = []
    call = Failing(RetryLater("a"), RetryLater("a"), RetryLater("b"), RetryLater("a"))
    await retry(call, clock, on=(RetryLater,), pauses=doubling(1, 9), on_wait=lambda error: heard.append(str(error)))
    assert heard == ["a", "b", "a"]


@virtual
async def test_who_waits_for_a_start_does_not_have_to_honour_what_an_error_asks_for(clock: VirtualClock) -> None:
    began = clock.monotonic()
    call = Failing(RetryLater("loading", after=30))
    await retry(call, clock, on=(RetryLater,), pauses=doubling(1, 9), on_wait=lambda error: None, honour_after=False)
    assert clock.monotonic() - began == pytest.approx(1)
