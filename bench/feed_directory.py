"""A configuration directory with many feeds that read a listing on loopback."""

from __future__ import annotations

from pathlib import Path

from bench.listing_server import WORKFLOW

__all__ = ["lay_out"]


def lay_out(directory: Path, count: int, *addresses: str, interval: str = "5m", store: str = "harken.db") -> None:
    """One workflow file for each feed; with one address the listing of feed 7 is at `address/7`. Several take turns."""
    directory.joinpath("workflows").mkdir(parents=True)
    directory.joinpath("harken.yaml").write_text(f"log: {{level: warning}}\nstore: '{store}'\n")
    for number in range(count):
        address = addresses[number % len(addresses)]
        text = WORKFLOW.format(name=f"w{number}", interval=interval, url=f"{address}/{number}")
        directory.joinpath("workflows", f"w{number}.yaml").write_text(text)
