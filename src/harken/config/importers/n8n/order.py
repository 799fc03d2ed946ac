"""The part of a graph that one trigger reaches, without its loops, and where its branches meet again."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from harken.config.importers.n8n.export import Graph

__all__ = ["Order", "order_of"]

_END = ""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes` stand before all that they lead to. `meets`: the nearest node through which all ways from a node go."""

    nodes: tuple[str, ...]
    edges: Mapping[str, tuple[tuple[str, ...], ...]]
    back_edges: tuple[tuple[str, str], ...]
    meets: Mapping[str, str]
    rank: Mapping[str, int]

    def outputs(self, name: str) -> tuple[tuple[str, ...], ...]:
        return self.edges.get(name, ())

    def after(self, name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(target for output in self.outputs(name) for target in output))

    def meeting(self, names: tuple[str, ...]) -> str:
        """The nearest node through which all ways from these nodes go, themselves included; empty if there is none."""
        found = names[0]
        for other in names[1:]:
            found = _common(found, other, self.meets, self.rank)
        return found


def order_of(graph: Graph, start: str) -> Order:
    nodes, back = _sorted(graph, start)
    dropped = set(back)
    edges = {
        name: tuple(tuple(target for target in output if (name, target) not in dropped) for output in graph.after(name))
        for name in nodes
    }
    rank = {name: number for number, name in enumerate(nodes)}
    meets: dict[str, str] = {}
    for name in reversed(nodes):
        targets = list(dict.fromkeys(target for output in edges[name] for target in output))
        found = targets[0] if targets else _END
        for other in targets[1:]:
            found = _common(found, other, meets, rank)
        meets[name] = found
    return Order(nodes=tuple(nodes), edges=edges, back_edges=tuple(back), meets=meets, rank=rank)


def _common(one: str, other: str, meets: Mapping[str, str], rank: Mapping[str, int]) -> str:
    last = len(rank)
    while one != other:
        if rank.get(one, last) < rank.get(other, last):
            one = meets[one]
        else:
            other = meets[other]
    return one


def _sorted(graph: Graph, start: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Depth first, without recursion: a hostile export may be a chain of any length."""
    done: list[str] = []
    state: dict[str, int] = {start: 1}
    back: list[tuple[str, str]] = []
    stack = [(start, _targets(graph, start))]
    while stack:
        name, targets = stack[-1]
        if not targets:
            stack.pop()
            state[name] = 2
            done.append(name)
            continue
        target = targets.pop()
        seen = state.get(target, 0)
        if seen == 1:
            back.append((name, target))
        elif seen == 0:
            state[target] = 1
            stack.append((target, _targets(graph, target)))
    return done[::-1], back


def _targets(graph: Graph, name: str) -> list[str]:
    return list(dict.fromkeys(target for output in graph.after(name) for target in output))
