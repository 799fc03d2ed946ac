from __future__ import annotations

import pytest

from bench import idle, poll, scale, start, ticks, webhook
from bench.figures import Figure, at_least, at_most, table
from bench.sizes import TINY

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("bench")]


@pytest.mark.parametrize("measurement", [webhook, poll, ticks, scale, idle, start], ids=lambda module: module.__name__)
def test_a_measurement_runs_and_gives_figures(measurement):
    said: list[str] = []
    figures = measurement.measure(TINY, said.append)
    assert all(figure.value >= 0 for figure in figures)
    assert any(figure.goal for figure in figures)
    assert said


def test_a_goal_is_judged_by_the_value_or_by_the_ratio_to_the_limit():
    figure = Figure(measure="speed", value=50, unit="/s", limit=100, ratio=0.5)
    assert at_least(figure, 0.35, of="ratio").ok
    assert not at_most(figure, 40).ok


def test_the_table_shows_the_limit_beside_the_value():
    line = table([Figure(measure="speed", value=1234, unit="/s", limit=5678, limit_is="bare")]).splitlines()[-1]
    assert line.split() == ["speed", "1,234", "/s", "5,678", "/s", "(bare)"]
