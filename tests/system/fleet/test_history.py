"""The judge of the other tests: it has to find what must not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.system.fleet.lease_history import Grant, History, Write, read_history
from tests.system.fleet.recording_store import Pen


def grant(token: int, at: float, *, who: str = "ann", shard: int = 0) -> Grant:
    return Grant(who=who, shard=shard, token=token, asked=at, heard=at + 0.1, granted=1_000 + at)


def write(token: int, at: float, *, who: str = "ann", shard: int = 0, **rest: Any) -> Write:
    given = {"verb": "commit", "outcome": "done", "heard": at + 0.1, **rest}
    return Write(who=who, shard=shard, token=token, asked=at, **given)


def flaws(*what: Grant | Write, recorded: dict[int, float] | None = None) -> list[str]:
    grants = tuple(one for one in what if isinstance(one, Grant))
    writes = tuple(one for one in what if isinstance(one, Write))
    return History(grants=grants, writes=writes).flaws(recorded or {})


def test_a_hand_over_with_rising_tokens_is_sound() -> None:
    found = flaws(grant(1, 0), write(1, 1), grant(1, 2), grant(2, 5, who="bob"), write(2, 6, who="bob"))
    assert found == []


def test_a_write_that_began_before_the_next_lease_was_heard_of_may_have_come_first() -> None:
    assert flaws(grant(1, 0), write(1, 5.05, heard=9.0), grant(2, 5, who="bob")) == []


def test_a_late_write_that_was_taken_is_found() -> None:
    (found,) = flaws(grant(1, 0), grant(2, 5, who="bob"), write(1, 6))
    assert found == "commit of ann with token 1 was taken after 2 was given out"


def test_a_late_write_that_was_refused_is_sound() -> None:
    late = [write(1, 6, outcome="refused"), write(1, 6, outcome="stale"), write(1, 6, outcome="unknown")]
    assert flaws(grant(1, 0), grant(2, 5, who="bob"), *late) == []


def test_an_event_that_the_store_recorded_under_an_ended_lease_is_found() -> None:
    began_in_time = write(1, 4.9, heard=9.0, events=(7,))
    what = (grant(1, 0), began_in_time, grant(2, 5, who="bob"))
    assert flaws(*what, recorded={7: 1_004.95}) == []
    (found,) = flaws(*what, recorded={7: 1_006.0})
    assert found == "event 7 of ann was recorded with token 1 after that had ended"


def test_a_token_that_falls_is_found() -> None:
    assert flaws(grant(2, 0), grant(1, 5, who="bob")) == ["bob got shard 0 with token 1 after 2 was given out"]


def test_a_token_of_two_is_found() -> None:
    assert flaws(grant(1, 0), grant(1, 5, who="bob")) == ["token 1 was given to [('ann', 0), ('bob', 0)]"]


def test_a_token_that_nobody_was_given_is_found() -> None:
    assert flaws(grant(1, 0), write(2, 1)) == ["ann wrote shard 0 with token 2, which it was never given"]


def test_what_a_killed_replica_left_is_put_together(tmp_path: Path) -> None:
    pen = Pen(tmp_path / "ann.jsonl", "ann")
    pen.hear(pen.ask("open", shards={"news": 3}), "done")
    pen.hear(pen.ask("lease", shard=3, holder="1-a"), "done", token=4, granted=1_000.0)
    pen.hear(pen.ask("lease", shard=5, holder="1-a"), "refused")
    pen.hear(pen.ask("commit", writes=[("news", 4)]), "done", events=[7])
    pen.ask("record_idle", writes=[("news", 4)])
    found = read_history(tmp_path)
    assert [(one.shard, one.token) for one in found.grants] == [(3, 4)]
    assert [(one.verb, one.shard, one.outcome, one.events) for one in found.writes] == [
        ("commit", 3, "done", (7,)),
        ("record_idle", 3, "unknown", ()),
    ]
