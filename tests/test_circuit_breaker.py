from __future__ import annotations

import msgspec
import pytest

from harken.circuit_breaker import (
    Health,
    Policy,
    Step,
    after_failure,
    after_progress,
    after_success,
    before_try,
    error_code,
    jittered,
)
from harken.errors import (
    CursorExpired,
    Deferred,
    Garbled,
    HarkenError,
    LeaseLost,
    Misconfigured,
    NeedsAttention,
    NotFound,
    Offline,
    Refused,
    RetryLater,
    StoreBusy,
    StoreUnavailable,
)

NOW = 1_800_000_000.0
WORKFLOW, POLLER = Policy.workflow(), Policy.poller()
DOWN = RetryLater("api.example answered 503 to GET /x")
LATE = RetryLater("api.example did not answer", reason="timeout")


def limited(after: float | None = None) -> RetryLater:
    return RetryLater("api.example answered 429 to GET /x", after=after, reason="rate_limited")


def down(after: float) -> RetryLater:
    return RetryLater("api.example answered 503 to GET /x", after=after)


def fail(
    error: BaseException,
    health: Health | None = None,
    policy: Policy = WORKFLOW,
    interval: float = 60,
    roll: float = 0,
    now: float = NOW,
) -> Step:
    return after_failure(error, health or Health(), policy, interval=interval, now=now, roll=roll)


def fail_often(error: BaseException, times: int, policy: Policy = WORKFLOW, interval: float = 60) -> list[Step]:
    """So many failures in a row, each as soon as it may come after the one before."""
    steps: list[Step] = []
    health, now = Health(), NOW
    for _ in range(times):
        steps.append(fail(error, health, policy, interval, now=now))
        health, now = steps[-1].health, now + steps[-1].wait_seconds
    return steps


def seconds_until(change: str, policy: Policy, interval: float) -> float:
    """How long after the first failure the change comes, if every read fails."""
    health, now = Health(), NOW
    while True:
        step = fail(DOWN, health, policy, interval, now=now)
        if step.change == change:
            return now - NOW
        health, now = step.health, now + step.wait_seconds


def test_a_deferred_read_comes_back_when_its_turn_comes_and_counts_as_nothing() -> None:
    steps = fail_often(Deferred("used up", after=40), 12)
    assert {(step.wait_seconds, step.health.failures, step.health.state, step.change) for step in steps} == {
        (40, 0, "closed", "")
    }
    assert steps[-1].health.blocked_until == NOW + 12 * 40
    assert error_code(Deferred("x")) == "deferred"


def test_a_pause_is_told_once_also_when_a_person_reads_meanwhile() -> None:
    assert [step.change for step in fail_often(NeedsAttention("401", fix="Check the token"), 3)] == ["paused", "", ""]


def test_429_waits_30_60_120_up_to_600_seconds() -> None:
    waits = [step.wait_seconds for step in fail_often(limited(), 8)]
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600]


@pytest.mark.parametrize(("asked", "waits"), [(None, 30), (0, 30), (5, 30), (31, 31), (700, 700), (86_400, 86_400)])
def test_429_waits_at_least_what_the_server_asked(asked: float | None, waits: float) -> None:
    step = fail(limited(asked))
    assert (step.wait_seconds, step.health.blocked_until) == (waits, NOW + waits)


def test_429_is_neither_failure_nor_success() -> None:
    troubled = Health(failures=4, code="retry")
    steps = fail_often(limited(), 50)
    assert steps[-1].health.failures == 0
    assert steps[-1].health.state == "closed"
    assert fail(limited(), troubled).health.failures == 4
    assert fail(limited(), troubled, POLLER).health.state == "closed"


def test_429_is_told_once() -> None:
    assert [step.change for step in fail_often(limited(), 3)] == ["rate_limited", "", ""]


def test_a_failure_between_starts_the_count_of_429_anew() -> None:
    thrice = fail_often(limited(), 3)[-1].health
    assert fail(limited(), fail(DOWN, thrice).health).wait_seconds == 30


def test_a_probe_that_meets_429_leaves_the_breaker_open() -> None:
    probing = Health(failures=5, state="half_open")
    step = fail(limited(), probing, POLLER)
    assert (step.health.state, step.health.failures, step.change) == ("open", 5, "rate_limited")


@pytest.mark.parametrize(
    ("interval", "waits"),
    [
        (1, [1, 1, 1, 1, 1, 1]),
        (10, [10, 10, 10, 10, 10, 10]),
        (60, [10, 60, 60, 60, 60, 60]),
        (300, [10, 60, 300, 300, 300, 300]),
        (3600, [10, 60, 300, 600, 600, 600]),
    ],
)
def test_after_an_error_the_next_try_comes_soon_and_no_feed_waits_longer_than_its_interval(
    interval: float, waits: list[float]
) -> None:
    assert [step.wait_seconds for step in fail_often(DOWN, 6, interval=interval)] == waits


@pytest.mark.parametrize(
    ("interval", "alert", "pause"),
    [(10, 40, 5400), (60, 190, 5410), (300, 670, 5470), (3600, 970, 5770)],
)
def test_a_job_alerts_after_five_failures_and_a_feed_pauses_after_an_hour_and_a_half_of_them(
    interval: float, alert: float, pause: float
) -> None:
    assert seconds_until("opened", POLLER, interval) == alert
    assert seconds_until("paused", WORKFLOW, interval) == pause


def test_a_page_that_failed_after_others_were_read_is_tried_again_soon() -> None:
    step = after_progress(DOWN, Health(failures=2), WORKFLOW, interval=3600, now=NOW)
    assert (step.wait_seconds, step.health.failures) == (10, 0)


@pytest.mark.parametrize(("asked", "waits"), [(0, 10), (60, 60), (700, 700), (7200, 7200)])
@pytest.mark.parametrize("policy", [WORKFLOW, Policy.poller(9)])
def test_a_failure_waits_at_least_what_the_server_asked(policy: Policy, asked: float, waits: float) -> None:
    assert fail(down(asked), policy=policy).wait_seconds == waits


def test_an_open_breaker_waits_at_least_what_the_server_asked() -> None:
    assert fail(down(700), Health(failures=4), POLLER).wait_seconds == 700


def test_a_workflow_says_failing_at_1_error_at_5_and_pauses_at_10_when_they_span_an_hour_and_a_half() -> None:
    steps = fail_often(down(after=700), 10)
    assert [step.change for step in steps] == ["failing", "", "", "", "error", "", "", "", "", "paused"]
    assert [step.health.state for step in steps] == ["closed"] * 9 + ["paused"]
    assert steps[-1].health.failures == 10


def test_an_outage_of_an_hour_pauses_nothing_however_often_it_was_tried() -> None:
    steps = fail_often(DOWN, 360, interval=10)
    assert {step.health.state for step in steps} == {"closed"}
    assert [step.change for step in steps if step.change] == ["failing", "error"]


def test_nine_failures_pause_nothing_however_long_they_took() -> None:
    assert fail_often(down(after=7200), 9)[-1].health.state == "closed"


def test_failures_that_were_counted_by_an_older_version_go_on_counting() -> None:
    stored = Health(failures=9, since=NOW - 6000)
    assert fail(DOWN, stored).health.state == "paused"


def test_waiting_for_a_rate_limit_does_not_count_as_failing() -> None:
    limited_long_ago = Health(rate_limited=3, since=NOW - 20_000)
    assert fail(DOWN, limited_long_ago).health.failing_since == NOW


@pytest.mark.parametrize("error", [LATE, TimeoutError(), ValueError("bug"), DOWN])
def test_timeouts_and_surprises_count_as_failures(error: BaseException) -> None:
    assert fail(error, Health(failures=9, failing_since=NOW - 5400)).health.state == "paused"
    assert fail_often(error, 5, POLLER)[-1].health.state == "open"


def test_being_offline_is_no_failure_and_pauses_nothing() -> None:
    steps = fail_often(Offline("offline: no route"), 500, interval=300)
    assert {(step.wait_seconds, step.health.failures, step.health.state) for step in steps} == {(60, 0, "closed")}
    assert [step.change for step in steps if step.change] == ["offline"]
    assert steps[-1].health.offline_since == NOW
    assert fail_often(Offline("offline: no route"), 500, POLLER)[-1].health.state == "closed"


def test_being_offline_keeps_the_failures_from_before_and_ends_with_any_answer() -> None:
    offline = fail(Offline("offline: no route"), Health(failures=4, state="half_open", failing_since=NOW - 60)).health
    assert (offline.failures, offline.state, offline.offline_since) == (4, "open", NOW)
    answered = fail(DOWN, offline, POLLER).health
    assert (answered.failures, answered.offline_since) == (5, None)
    assert after_success(offline, NOW).health == Health(since=NOW)


def test_a_network_that_is_back_is_told_once() -> None:
    offline = fail(Offline("offline: no route")).health
    assert not offline.clean
    assert after_success(offline, NOW + 9).change == "recovered"


def test_trouble_after_being_offline_dates_from_its_own_beginning() -> None:
    offline = fail(Offline("offline: no route"), now=NOW - 7200).health
    assert fail(NeedsAttention("401"), offline).health.since == NOW


def test_401_and_403_pause_at_once_and_are_probed_after_15_minutes_doubling_to_6_hours() -> None:
    steps = fail_often(NeedsAttention("401", fix="Check the token"), 8)
    assert [step.wait_seconds / 60 for step in steps] == [15, 30, 60, 120, 240, 360, 360, 360]
    assert {step.health.state for step in steps} == {"paused"}
    assert [step.change for step in steps if step.change] == ["paused"]
    assert not steps[0].health.may_try(NOW + 899)
    assert steps[0].health.may_try(NOW + 900)


def test_a_probe_that_succeeds_ends_the_pause() -> None:
    paused = fail(NeedsAttention("401")).health
    assert after_success(paused, NOW + 900) == Step(health=Health(since=NOW + 900), change="recovered")


def test_a_read_by_hand_does_not_delay_the_next_probe() -> None:
    paused = fail(NeedsAttention("401")).health
    by_hand = fail(NeedsAttention("401"), paused, now=NOW + 60)
    assert (by_hand.health.blocked_until, by_hand.health.probes, by_hand.wait_seconds) == (NOW + 900, 1, 840)


@pytest.mark.parametrize(
    ("error", "waits"),
    [(limited(700), 700), (Deferred("used up", after=40), 40), (Offline("offline: no route"), 60), (DOWN, 900)],
)
def test_a_probe_that_finds_nothing_out_is_repeated_and_the_pause_keeps_its_reason(
    error: BaseException, waits: float
) -> None:
    paused = fail(NeedsAttention("401")).health
    step = fail(error, paused, now=NOW + 900)
    assert (step.health.state, step.health.code, step.health.message) == ("paused", "attention", "401")
    assert (step.wait_seconds, step.health.blocked_until, step.health.probes) == (waits, NOW + 900 + waits, 1)


@pytest.mark.parametrize("error", [limited(700), Deferred("used up", after=40), Offline("offline: no route"), DOWN])
def test_a_pause_after_ten_failures_is_not_probed(error: BaseException) -> None:
    paused = Health(state="paused", failures=10)
    assert not fail(error, paused).health.probed
    assert after_success(paused, NOW).health is paused


@pytest.mark.parametrize("policy", [WORKFLOW, POLLER])
def test_one_malformed_answer_is_retried_before_it_pauses(policy: Policy) -> None:
    first = fail(Garbled("no list", fix="Correct items_path"), policy=policy, interval=300)
    assert (first.health.state, first.health.failures, first.wait_seconds) == ("closed", 1, 10)
    second = fail(Garbled("no list", fix="Correct items_path"), first.health, policy)
    assert (second.health.state, second.health.code, second.change) == ("paused", "attention", "paused")


def test_malformed_answers_with_other_failures_between_are_each_the_first() -> None:
    first = fail(Garbled("no list")).health
    assert fail(Garbled("no list"), fail(DOWN, first).health).health.state == "closed"


def test_a_poller_opens_at_its_threshold_and_probes_at_30_doubling_to_300_seconds() -> None:
    steps = fail_often(DOWN, 8, Policy.poller(3), interval=10)
    assert [step.wait_seconds for step in steps] == [10, 10, 30, 60, 120, 240, 300, 300]
    assert [step.change for step in steps] == ["failing", "", "opened", "", "", "", "", ""]
    assert [step.health.state for step in steps] == ["closed"] * 2 + ["open"] * 6


def test_a_poller_never_pauses_for_failures_alone() -> None:
    assert fail_often(DOWN, 500, POLLER)[-1].health.state == "open"


def test_an_open_breaker_lets_a_probe_through_when_its_wait_is_over() -> None:
    opened = fail(DOWN, Health(failures=4), POLLER).health
    assert not opened.may_try(NOW + 29)
    assert before_try(opened, NOW + 29) is opened
    assert before_try(opened, NOW + 30).state == "half_open"


def test_a_failed_probe_opens_again_without_another_word() -> None:
    step = fail(DOWN, Health(failures=5, state="half_open"), POLLER)
    assert (step.health.state, step.wait_seconds, step.change) == ("open", 60, "")


def test_before_try_leaves_every_other_state_alone() -> None:
    for state in ("closed", "half_open", "paused"):
        health = Health(state=state)
        assert before_try(health, NOW) is health


@pytest.mark.parametrize("policy", [WORKFLOW, POLLER])
@pytest.mark.parametrize("kind", [NeedsAttention, CursorExpired, Refused, Misconfigured, NotFound])
def test_what_a_person_must_mend_pauses_and_is_told_at_the_first_time(kind: type[HarkenError], policy: Policy) -> None:
    step = fail(kind("no", fix="do this"), policy=policy)
    assert (step.health.state, step.health.failures, step.change) == ("paused", 1, "paused")
    assert (step.health.code, step.health.message) == (kind.code, "no. do this")


@pytest.mark.parametrize("kind", [CursorExpired, Refused, Misconfigured, NotFound])
def test_what_only_a_person_can_mend_here_is_not_probed(kind: type[HarkenError]) -> None:
    assert not fail(kind("no", fix="do this")).health.may_try(NOW + 1e9)


def test_a_lost_lease_changes_nothing() -> None:
    health = Health(failures=3)
    step = fail(LeaseLost("feed oncall is held by another"), health)
    assert step == Step(health=health, wait_seconds=60)


@pytest.mark.parametrize("kind", [StoreBusy, StoreUnavailable])
def test_a_store_that_cannot_write_is_not_the_fault_of_the_feed(kind: type[RetryLater]) -> None:
    step = fail(kind("the disk is full"), Health(failures=9), interval=3600)
    assert (step.health, step.wait_seconds, step.change) == (Health(failures=9), 30, "")


def test_success_forgets_failures_and_says_so_once() -> None:
    recovered = after_success(fail_often(DOWN, 7)[-1].health, NOW + 5)
    assert recovered == Step(health=Health(since=NOW + 5), change="recovered")
    assert after_success(recovered.health, NOW + 9).change == ""


def test_success_closes_the_breaker() -> None:
    step = after_success(Health(failures=9, state="half_open", blocked_until=NOW), NOW)
    assert (step.health.state, step.health.blocked_until, step.change) == ("closed", None, "recovered")


def test_success_after_429_starts_the_count_anew_without_a_word() -> None:
    step = after_success(fail_often(limited(), 3)[-1].health, NOW)
    assert (step.health.rate_limited, step.health.blocked_until, step.change) == (0, None, "")


def test_success_on_a_clean_health_gives_the_same_object_back() -> None:
    health = Health(since=NOW - 100)
    assert after_success(health, NOW).health is health


def test_a_pause_outlives_a_manual_run() -> None:
    paused = fail(CursorExpired("no")).health
    assert after_success(paused, NOW).health is paused
    again = fail(DOWN, paused)
    assert (again.health.state, again.change) == ("paused", "")
    assert fail(limited(), paused).health.state == "paused"


def test_the_trouble_dates_from_its_beginning() -> None:
    first = after_failure(DOWN, Health(since=NOW - 100), WORKFLOW, interval=60, now=NOW)
    second = after_failure(DOWN, first.health, WORKFLOW, interval=60, now=NOW + 60)
    assert (first.health.since, second.health.since) == (NOW, NOW)


def test_the_wait_holds_after_a_restart() -> None:
    stored = msgspec.json.encode(fail(limited(700)).health)
    woken = msgspec.json.decode(stored, type=Health)
    assert not woken.may_try(NOW + 699)
    assert woken.may_try(NOW + 700)
    assert fail(limited(), woken).wait_seconds == 60


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DOWN, "retry"),
        (LATE, "timeout"),
        (TimeoutError(), "timeout"),
        (limited(), "rate_limited"),
        (NeedsAttention("no"), "attention"),
        (CursorExpired("gone"), "cursor_expired"),
        (RetryLater("answered 500 to GET /401/429"), "retry"),
        (ValueError("401 timeout"), "retry"),
    ],
)
def test_errors_are_named_by_their_kind_and_never_by_their_text(error: BaseException, code: str) -> None:
    assert error_code(error) == code


def test_the_text_of_an_unexpected_error_is_not_kept() -> None:
    assert fail(ValueError("https://x/?token=s3cret")).health.message == "unexpected ValueError"


@pytest.mark.parametrize("error", [limited(), limited(700), DOWN, down(700)])
@pytest.mark.parametrize("policy", [WORKFLOW, Policy.poller(1)])
def test_jitter_only_ever_lengthens_a_backoff(error: RetryLater, policy: Policy) -> None:
    plain = fail(error, policy=policy).wait_seconds
    assert plain < fail(error, policy=policy, roll=0.999).wait_seconds < plain * 1.1


@pytest.mark.parametrize(
    ("interval", "roll", "expected"),
    [(100, 0.0, 90), (100, 0.5, 100), (100, 1.0, 110), (10, 0.0, 10), (10.5, 0.0, 10), (11, 0.0, 10)],
)
def test_jitter_is_ten_percent_both_ways_above_the_floor(interval: float, roll: float, expected: float) -> None:
    assert jittered(interval, 0.1, 10, roll) == pytest.approx(expected)
