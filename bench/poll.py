"""The poll flow: events a second and CPU per event, from a source's page to settled runs, beside bare group commit."""

from __future__ import annotations

import tempfile

import msgspec

from bench.figures import Figure, Say, at_least, middle
from bench.measurement_sizes import Sizes
from bench.processes import report
from bench.sample_pages import PollFlow, Used

__all__ = ["measure"]

LIMIT_IS = "bare group commit"


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """Each round has processes and files of its own."""
    flows: list[Used] = []
    bares: list[Used] = []
    for number in range(sizes.rounds):
        flow, asked = _round("bench.poll_flow", sizes)
        bare, _ = _round("bench.bare_commit", sizes)
        flows.append(flow)
        bares.append(bare)
        per = 1000 / asked.events
        say(f"round {number + 1}: {asked.events / flow.seconds:,.0f}/s, {flow.cpu * per:.3f} ms CPU/event; "
            f"bare {asked.events / bare.seconds:,.0f}/s, {bare.cpu * per:.3f} ms")  # fmt: skip
    return _figures(flows, bares, asked.events)


def _round(module: str, sizes: Sizes) -> tuple[Used, PollFlow]:
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = PollFlow(feeds=sizes.poll_feeds, pages=sizes.poll_pages, page=sizes.poll_page, directory=scratch)
        return msgspec.convert(report(module, msgspec.to_builtins(asked)), Used), asked


def _figures(flows: list[Used], bares: list[Used], events: int) -> list[Figure]:
    rate = events / middle([one.seconds for one in flows])
    bare_rate = events / middle([one.seconds for one in bares])
    cpu = middle([one.cpu for one in flows]) * 1000 / events
    bare_cpu = middle([one.cpu for one in bares]) * 1000 / events
    speed = Figure(
        measure="poll flow: durable events", value=rate, unit="/s", limit=bare_rate, limit_is=LIMIT_IS,
        ratio=rate / bare_rate,
    )  # fmt: skip
    # as a share of what is possible, like the speed: the limit's cost by ours
    cost = Figure(
        measure="poll flow: CPU per event", value=cpu, unit="ms", limit=bare_cpu, limit_is=LIMIT_IS,
        ratio=bare_cpu / cpu,
    )  # fmt: skip
    return [at_least(speed, 0.5, of="ratio"), at_least(cost, 0.5, of="ratio")]
