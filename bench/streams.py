"""The stream flow: CPU per message and messages a second, from a broker to settled runs, beside the bare client library
that reads the same batches and writes the same rows with bare group commit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgspec

from bench.figures import Figure, Say, at_least, middle
from bench.measurement_sizes import Sizes
from bench.processes import Child, child, report
from bench.sample_pages import Used
from bench.sample_stream import TITLES, StreamFlow, System, fill
from bench.servers import broker, durable_redis

__all__ = ["measure"]

LIMIT_IS = "bare client and group commit"
GOAL = 0.5
LOGS: tuple[System, ...] = ("redis", "kafka")
"""Systems whose streams can be read again and again."""
SERVED: tuple[System, ...] = ("sse", "websocket", "pubsub")
"""Systems whose server is a process of ours, which makes its messages itself."""
SLOW: dict[System, int] = {"sqs": 6, "rabbitmq": 2}
"""So many times fewer messages, where publishing them takes longer than what is measured."""


def measure(sizes: Sizes, say: Say) -> list[Figure]:
    """Each round has processes and files of its own, and reads the same messages."""
    figures: list[Figure] = []
    for system in [one for one in TITLES if one in (sizes.stream_systems or TITLES)]:
        with ExitStack() as stack:
            address, fill_stream = _server(system, stack)
            count = max(sizes.stream_messages // SLOW.get(system, 1), 2 * sizes.stream_batch)
            flow = StreamFlow(system=system, address=address, messages=count, warm=count // 6, batch=sizes.stream_batch)
            figures += _rounds(flow, fill_stream, sizes, say)
    return figures


Fill = Callable[[StreamFlow], None]


def _server(system: System, stack: ExitStack) -> tuple[str, Fill]:
    """The address of a server of that system, and what publishes the messages of a flow there."""
    if system in SERVED:
        served = stack.enter_context(child("bench.stream_server"))
        # the address is that of its answer
        return _told_address(served, system), lambda flow: _tell(served, flow)
    if system == "redis":
        return stack.enter_context(durable_redis()).url(), fill
    return stack.enter_context(broker(system)), fill


def _told_address(served: Child, system: System) -> str:
    nothing = StreamFlow(system=system, address="", messages=0, warm=0, batch=0)
    return str(_tell(served, nothing))


def _tell(served: Child, flow: StreamFlow) -> Any:
    served.tell(msgspec.to_builtins(flow))
    return served.hear()


def _rounds(flow: StreamFlow, fill_stream: Fill, sizes: Sizes, say: Say) -> list[Figure]:
    ours: list[Used] = []
    bares: list[Used] = []
    if flow.system in LOGS:
        fill_stream(flow)
    for number in range(sizes.rounds):
        for measured, module in ((ours, "bench.stream_flow"), (bares, "bench.bare_stream")):
            own = flow if flow.system in LOGS else _renamed(flow, f"{number}-{module[-11:-7]}")
            if own is not flow:
                fill_stream(own)
            measured.append(_round(module, own))
        one, bare = _told(ours[-1], flow.messages), _told(bares[-1], flow.messages)
        say(f"{TITLES[flow.system]}, round {number + 1}: {one}; bare {bare}")
    return _figures(flow, ours, bares)


def _renamed(flow: StreamFlow, name: str) -> StreamFlow:
    return msgspec.structs.replace(flow, stream=f"{flow.stream}-{name}", warm_stream=f"{flow.warm_stream}-{name}")


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
