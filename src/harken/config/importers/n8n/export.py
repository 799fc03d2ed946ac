"""The JSON that n8n exports, as nodes and the edges between them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from harken.config.findings import Place, Report

__all__ = ["Graph", "Node", "objects_of", "read_export"]

MOST_NODES = 2_000
_NAME = re.compile(r'"name"\s*:\s*("(?:[^"\\]|\\.)*")')
_PREFIXES = ("n8n-nodes-base.", "@n8n/n8n-nodes-langchain.")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is the type without the prefix of n8n's own nodes. `error_output`: its last output gets what failed."""

    name: str
    kind: str
    version: float
    parameters: Mapping[str, Any]
    place: Place
    disabled: bool = False
    retries: int = 0
    on_error: str = ""
    error_output: bool = False
    credentials: tuple[str, ...] = ()


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow: `edges[node][output]` are the nodes that get what the output gives."""

    name: str
    id: str
    zone: str
    nodes: Mapping[str, Node]
    edges: Mapping[str, tuple[tuple[str, ...], ...]]

    def after(self, name: str) -> tuple[tuple[str, ...], ...]:
        return self.edges.get(name, ())

    def before(self, name: str) -> list[str]:
        return [source for source, outputs in self.edges.items() if any(name in output for output in outputs)]


def read_export(text: str, *, file: str, report: Report) -> list[Graph]:
    """The workflows of the file: one, a list of them, or one inside the `workflow` of a template."""
    try:
        document = json.loads(text)
    except ValueError as error:
        line, column = getattr(error, "lineno", 1), getattr(error, "colno", 1)
        report.error(Place(file, line, column), (), "this is not JSON", "Export the workflow again", "syntax")
        return []
    except RecursionError:
        report.error(Place(file), (), "its values are too deep inside each other", "Export it again", "syntax")
        return []
    places = _places(text, file)
    found = [_graph(value, file, places, report) for value in _workflows(document)]
    graphs = [graph for graph in found if graph is not None]
    if not found:
        fix = "Export it in n8n: menu of the workflow, Download"
        report.error(Place(file), (), "there is no workflow in it: nodes and connections are missing", fix, "missing")
    return graphs


def objects_of(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; none where an export has something else in its place."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _workflows(document: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(document, list):
        for value in document:
            if isinstance(value, dict) and isinstance(value.get("nodes"), list):
                yield value
        return
    for _ in range(3):
        if not isinstance(document, dict):
            return
        if isinstance(document.get("nodes"), list):
            yield document
            return
        document = document.get("workflow", document.get("data"))


def _graph(value: Mapping[str, Any], file: str, places: Mapping[str, Place], report: Report) -> Graph | None:
    name = value.get("name") if isinstance(value.get("name"), str) else ""
    written = value["nodes"]
    if len(written) > MOST_NODES:
        message = f"the workflow {name} has {len(written):,} nodes; at most {MOST_NODES:,} are translated"
        report.error(Place(file), (), message, "Divide it in n8n", "invalid")
        return None
    nodes: dict[str, Node] = {}
    for number, raw in enumerate(written):
        node = _node(raw, file, places)
        if node is None or node.name in nodes:
            what = (
                "this is no node: it has no name or no type" if node is None else f"a second node is called {node.name}"
            )
            report.error(Place(file), ("nodes", number), what, "", "wrong_type")
            continue
        nodes[node.name] = node
    strangers = _strangers(value.get("connections"), nodes)
    if strangers:
        named = ", ".join(strangers[:5])
        message = f"connections from what is no node are left out: {named}"
        report.warn(Place(file), ("connections",), message, "Open the workflow in n8n, and export it again", "ignored")
    settings = value.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    zone = settings.get("timezone")
    if settings.get("errorWorkflow"):
        fix = "Import that workflow too, or set on_failure in harken.yaml"
        message = "which workflow hears of its failures is not taken over"
        report.warn(Place(file), ("settings", "errorWorkflow"), message, fix, "ignored")
    return Graph(
        # what is pasted from a page of templates has none
        name=name or file.removesuffix(".json") or "n8n",
        id=str(value.get("id") or ""),
        zone=zone if isinstance(zone, str) and zone not in ("", "DEFAULT") else "",
        nodes=nodes,
        edges=_edges(value.get("connections"), nodes),
    )


def _node(raw: Any, file: str, places: Mapping[str, Place]) -> Node | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not isinstance(raw.get("type"), str):
        return None
    kind = raw["type"]
    for prefix in _PREFIXES:
        kind = kind.removeprefix(prefix)
    version = raw.get("typeVersion")
    parameters, credentials = raw.get("parameters"), raw.get("credentials")
    retries = raw.get("maxTries", 3) if raw.get("retryOnFail") else 0
    return Node(
        name=raw["name"],
        kind=kind,
        version=float(version) if isinstance(version, int | float) else 1.0,
        parameters=parameters if isinstance(parameters, dict) else {},
        place=places.get(raw["name"], Place(file)),
        disabled=raw.get("disabled") is True,
        retries=retries if isinstance(retries, int) else 0,
        on_error="ignore" if raw.get("continueOnFail") or raw.get("onError") == "continueRegularOutput" else "",
        error_output=raw.get("onError") == "continueErrorOutput",
        credentials=tuple(map(str, credentials)) if isinstance(credentials, dict) else (),
    )


def _edges(connections: Any, nodes: Mapping[str, Node]) -> dict[str, tuple[tuple[str, ...], ...]]:
    made: dict[str, tuple[tuple[str, ...], ...]] = {}
    for source, kinds in connections.items() if isinstance(connections, dict) else ():
        outputs = kinds.get("main") if isinstance(kinds, dict) else None
        if source in nodes and isinstance(outputs, list):
            made[source] = tuple(
                tuple(
                    target["node"]
                    for target in (output if isinstance(output, list) else ())
                    if isinstance(target, dict) and isinstance(target.get("node"), str) and target["node"] in nodes
                )
                for output in outputs
            )
    return made


def _strangers(connections: Any, nodes: Mapping[str, Node]) -> list[str]:
    """What has connections and is no node: n8n names nodes there by their names, not by their ids."""
    given = connections if isinstance(connections, dict) else {}
    return [name for name, kinds in given.items() if name not in nodes and isinstance(kinds, dict) and kinds]


def _places(text: str, file: str) -> dict[str, Place]:
    """Where each name stands first, in one pass over the text."""
    places: dict[str, Place] = {}
    line, begin, seen = 1, 0, 0
    for found in _NAME.finditer(text):
        line += text.count("\n", seen, found.start())
        begin = text.rfind("\n", 0, found.start()) + 1
        seen = found.start()
        try:
            places.setdefault(json.loads(found[1]), Place(file, line, found.start() - begin + 1))
        except ValueError:
            continue
    return places
