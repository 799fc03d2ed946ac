"""A configuration directory with many feeds that read a listing on loopback."""

from __future__ import annotations

from pathlib import Path

from bench.listing import WORKFLOW

__all__ = ["lay_out"]


def lay_out(directory: Path, count: int, address: str, *, interval: str = "5m") -> None:
    """One workflow file for each feed; the listing of feed 7 is at `address/7`."""
    directory.joinpath("workflows").mkdir(parents=True)
    directory.joinpath("harken.yaml").write_text("log: {level: warning}\n")
    for number in range(count):
        text = WORKFLOW.format(name=f"w{number}", interval=interval, url=f"{address}/{number}")
        directory.joinpath("workflows", f"w{number}.yaml").write_text(text)
