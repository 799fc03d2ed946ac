"""The stream flow: CPU per message and messages a second, from a broker to settled runs, beside the bare client library
that reads the same batches and writes the same rows with bare group commit."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec

from bench.figures import Figure, Say, at_least, middle
from bench.measurement_sizes import Sizes
from bench.processes import report
from bench.sample_pages import Used
from bench.sample_stream import StreamFlow, fill
from bench.servers import durable_redis, mock_kafka

__all__ = ["measure"]

LIMIT_IS = "bare client and group commit"
GOAL = 0.5
System = Literal["redis", "kafka"]
TITLES: dict[System, str] = {"redis": "Redis Streams", "kafka": "Kafka"}


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """Each round has processes and files of its own, and reads the same messages."""
    figures: list[Figure] = []
    for system in TITLES:
        with _server(system) as address:
            flow = StreamFlow(
                system=system,
                address=address,
                messages=sizes.stream_messages,
                warm=sizes.stream_messages // 6,
                batch=sizes.stream_batch,
            )
            fill(flow)
            figures += _rounds(flow, sizes, say)
    return figures


@contextmanager
def _server(system: System) -> Iterator[str]:
    if system == "redis":
        with durable_redis() as redis:
            yield redis.url()
    else:
        with mock_kafka() as kafka:
            yield kafka.address


def _rounds(flow: StreamFlow, sizes: Sizes, say: Say) -> list[Figure]:
    ours: list[Used] = []
    bares: list[Used] = []
    for number in range(sizes.rounds):
        ours.append(_round("bench.stream_flow", flow))
        bares.append(_round("bench.bare_stream", flow))
        one, bare = _told(ours[-1], flow.messages), _told(bares[-1], flow.messages)
        say(f"{TITLES[flow.system]}, round {number + 1}: {one}; bare {bare}")
    return _figures(flow, ours, bares)


def _round(module: str, flow: StreamFlow) -> Used:
    with tempfile.TemporaryDirectory(prefix="harken-bench-") as scratch:
        asked = msgspec.structs.replace(flow, directory=scratch)
        return msgspec.convert(report(module, msgspec.to_builtins(asked)), Used)


def _told(used: Used, messages: int) -> str:
    return f"{messages / used.seconds:,.0f}/s, {used.cpu * 1000 / messages:.3f} ms CPU/message"


def _figures(flow: StreamFlow, ours: list[Used], bares: list[Used]) -> list[Figure]:
    title, pairs = TITLES[flow.system], list(zip(ours, bares, strict=True))
    # as a share of what is possible, like the speed: the limit's cost by ours
    cost = Figure(
        measure=f"{title}: CPU per message", value=middle([one.cpu for one in ours]) * 1000 / flow.messages, unit="ms",
        limit=middle([one.cpu for one in bares]) * 1000 / flow.messages, limit_is=LIMIT_IS,
        ratio=middle([bare.cpu / one.cpu for one, bare in pairs]),
    )  # fmt: skip
    speed = Figure(
        measure=f"{title}: durable messages", value=flow.messages / middle([one.seconds for one in ours]), unit="/s",
        limit=flow.messages / middle([one.seconds for one in bares]), limit_is=LIMIT_IS,
        ratio=middle([bare.seconds / one.seconds for one, bare in pairs]),
    )  # fmt: skip
    return [at_least(cost, GOAL, of="ratio"), speed]
