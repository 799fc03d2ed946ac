"""Durations as options: `10m`, `1h30m`, or a bare number of seconds."""

from __future__ import annotations

from typing import Any

import click

from harken.durations import parse_duration
from harken.errors import Misconfigured

__all__ = ["DURATION"]


class DurationType(click.ParamType[float]):
    """The seconds of `90s`, `10m` or `1h30m`. A bare number is seconds, as these options always took them."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            try:
                return parse_duration(value)
            except Misconfigured as error:
                self.fail(f"{error.message}. {error.fix}", param, ctx)
        if not 0 <= seconds < float("inf"):
            self.fail(f"{value} is not a duration", param, ctx)
        return seconds


DURATION = DurationType()
