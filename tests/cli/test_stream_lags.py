"""`harken status`: what waits at the brokers of streams."""

from __future__ import annotations

from typing import Any

import pytest

from harken.cli.status import _lag_words


@pytest.mark.parametrize(
    ("lags", "said"),
    [
        ({}, ""),
        ({"orders": {"messages": 1, "seconds": 150.0}}, "orders 1 message, 2 min"),
        (
            {"orders": {"messages": 12, "seconds": None}, "bills": {"messages": None, "seconds": 3.0}},
            "orders 12 messages; bills 3 s",
        ),
        (
            {"orders": {"messages": None, "seconds": None}, "bills": {"messages": 0, "seconds": 0.0}},
            "bills 0 messages, 0 s",
        ),
    ],
)
def test_the_lag_of_each_stream_is_told_as_far_as_it_is_known(lags: dict[str, Any], said: str) -> None:
    assert _lag_words(lags) == said
