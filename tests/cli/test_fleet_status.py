"""`harken status` where replicas share a store."""

from __future__ import annotations

from typing import Any

import pytest

from harken.cli.status import _fleet


def replica(holder: str, **said: Any) -> dict[str, Any]:
    known = {"host": "box", "url": "http://127.0.0.1:9091", "role": "all", "lag_seconds": 0.0, "runs_in_flight": 2}
    return {"holder": holder, "generation": "g2", "current": True, "shards": [], **known, **said}


def test_each_replica_is_shown_with_what_it_holds_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    members = [replica("one", shards=[0, 1, 2, 3, 7]), replica("two", generation="g1", current=False)]
    _fleet({
        "generation": "g2", "epoch": 4, "shards": 9, "unread_shards": [4, 5, 6, 8], "housekeeper": "one",
        "replicas": members,
    })  # fmt: skip
    head, _, one, two, last = capsys.readouterr().out.splitlines()
    assert head == "The replicas share generation g2 (epoch 4):"
    assert one.split() == ["one", "box", "http://127.0.0.1:9091", "all", "g2", "0-3,", "7", "0.0", "2", "yes"]
    assert two.split()[4:7] == ["g1", "(behind)", "-"]
    assert last == "Nobody reads the shards 4-6, 8 now"


def test_nothing_is_said_where_nobody_shares_the_store(capsys: pytest.CaptureFixture[str]) -> None:
    _fleet({})
    assert capsys.readouterr().out == ""
