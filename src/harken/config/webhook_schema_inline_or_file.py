"""`schema:` of a webhook: written in place, or the path of a JSON file below the directory of harken.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath

from harken.config.findings import Path, Report
from harken.config.interpolate import OUTSIDE_FIX, is_inside
from harken.config.yaml.nodes import Node, Scalar, is_empty, locate, to_plain
from harken.config.yaml.parser import parse, read_source
from harken.kit.json_schema import JsonSchema, SchemaError

__all__ = ["read_payload_schema"]

ENDING = ".json"


def read_payload_schema(
    node: Node, directory: FilePath, allowed: Sequence[FilePath], report: Report, path: Path
) -> Node | None:
    """Return the schema; None when it is wrong, with a finding at its line in whichever file it stands."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        found = _read_file(node, node.value, directory, allowed, report, path)
    else:
        found = node
    if found is None:
        return None
    try:
        JsonSchema(to_plain(found))
    except SchemaError as error:
        report.error(locate(found, error.path), (*path, *error.path), error.message, "Correct the schema")
        return None
    except RecursionError:
        report.error(found.place, path, "is nested too deeply", "Make it flatter")
        return None
    return found


def _read_file(
    node: Scalar, name: str, directory: FilePath, allowed: Sequence[FilePath], report: Report, path: Path
) -> Node | None:
    if node.shown is not None:
        fix = "Write the path alone: schema: workflows/deploy.json"
        report.error(node.place, path, "is a path; what ${…} reads is kept secret", fix)
        return None
    if not name.endswith(ENDING):
        report.error(node.place, path, "must be a schema, or the path of a .json file", f"Name it {name}{ENDING}")
        return None
    if not is_inside(directory / name, (directory, *allowed)):
        report.error(node.place, path, f"{name} is outside the directory of harken.yaml", OUTSIDE_FIX)
        return None
    found = Report()
    source = read_source(directory / name, name, found)
    # YAML has all of JSON but tabs between its values; within them JSON has none
    tree = parse(source.replace(b"\t", b" "), name, found) if source is not None else None
    if tree is not None and is_empty(tree):
        found.error(node.place, path, f"{name} is empty", "Write a JSON Schema into it")
    report.findings.extend(found.findings)
    return tree if not found.failed else None
