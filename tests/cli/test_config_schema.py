"""JSON Schema for editors: it accepts what the check accepts, and finds keys that do not exist.

The files in the wheel are those of the last release, which writes them anew: `harken config schema` is what counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harken.cli.root import run
from harken.config.findings import Report
from harken.config.yaml.nodes import to_plain
from harken.config.yaml.parser import parse
from harken.operate.config_schema import FILES

ROOT = Path(__file__).parents[2]
STORED = ROOT / "src" / "harken" / "schemas"
VALIDATORS = {
    name: jsonschema.Draft7Validator(json.loads((STORED / f"{name}.schema.json").read_text("utf-8"))) for name in FILES
}


def kind_of(file: Path) -> str | None:
    if file.name in ("harken.yaml", "pollers.yaml"):
        return file.stem
    return {"tests": "cases", "workflows": "workflow"}.get(file.parent.name)


def examples() -> list[Path]:
    folders = [folder.resolve() for folder in (ROOT / "examples").iterdir() if folder.is_dir()]
    return sorted({file for folder in folders for file in folder.rglob("*.yaml") if kind_of(file)})


def problems(name: str, text: str) -> list[str]:
    tree = parse(text.encode(), "x.yaml", Report())
    value: Any = to_plain(tree) if tree is not None else {}
    return [error.message for error in VALIDATORS[name].iter_errors(value)]


@pytest.mark.parametrize("name", sorted(FILES))
def test_it_is_a_schema(name: str) -> None:
    VALIDATORS[name].check_schema(VALIDATORS[name].schema)


def test_every_example_and_recipe_fits() -> None:
    files = examples()
    assert len(files) > 80
    wrong = {str(file): problems(str(kind_of(file)), file.read_text("utf-8")) for file in files}
    assert {file: found for file, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("workflow", "steps: [{action: wait, for: 1s}]\n"),
        ("workflow", "name: x\nsteps: [{action: http, url: a, metod: GET}]\n"),
        ("workflow", "name: x\nsteps: [{action: slack.post, chanel: a}]\n"),
        ("workflow", "name: x\nsteps: [{action: if, condition: 'true', then: [{action: wait, fro: 1s}]}]\n"),
        ("workflow", "name: x\ntrigger: {scedule: '* * * * *'}\nsteps: []\n"),
        ("workflow", "name: x\ntrigger: {poll: {integration: rss, query: {feed: x}}}\nsteps: []\n"),
        ("workflow", "name: x\ntrigger: {schedule: a, overlap: sometimes}\nsteps: []\n"),
        ("harken", "sever: {port: 1}\n"),
        ("harken", "log: {level: loud}\n"),
        ("harken", "integrations: {a: {kind: nothing}}\n"),
        ("pollers", "pollers: {jobs: [{id: a, kin: rss}]}\n"),
        ("cases", "cases: [{name: x, expekt: {}}]\n"),
    ],
)
def test_what_does_not_exist_is_found(name: str, text: str) -> None:
    assert problems(name, text)


@pytest.mark.parametrize(
    "text",
    [
        "name: x\ntrigger: {schedule: {every: '${PACE}'}, overlap: '${A}', max_attempts: '${B}'}\nsteps: []\n",
        "name: x\ntrigger: {event: [run.done, run.failed]}\nsteps: [{action: transform, set: {a: 1}}]\n",
        "name: x\ntrigger: {webhook: {secret: s, id_field: id}}\nsteps: [{action: http, url: u, json: '{{.event}}'}]\n",
        "name: x\ntrigger: {poll: {integration: my-jira, query: {a: 1}}}\nsteps: [{action: my-jira.comment, a: x}]\n",
        "name: x\nsteps: [{if: event.a, then: [{action: emit, event: a}]}]\n",
    ],
)
def test_references_templates_and_names_of_accounts_are_accepted(text: str) -> None:
    assert problems("workflow", text) == []


def test_it_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Harken: workflows/*.yaml"
    assert run(["config", "schema", "--write", str(tmp_path / "schemas")]) == 0
    assert "yaml-language-server: $schema=" in capsys.readouterr().out
    assert sorted(file.name for file in (tmp_path / "schemas").iterdir()) == sorted(
        f"{name}.schema.json" for name in FILES
    )


@pytest.mark.parametrize("name", FILES)
def test_the_stored_one_is_that_of_the_models(name: str, tmp_path: Path) -> None:
    assert run(["config", "schema", "--write", str(tmp_path)]) == 0
    file = f"{name}.schema.json"
    stored, made = ((directory / file).read_text("utf-8") for directory in (STORED, tmp_path))
    assert stored == made, "write them anew: harken config schema --write src/harken/schemas"


def undescribed(node: Any, definitions: Any, place: str = "") -> list[str]:
    """The keys that a file may have and that nothing says what they are for."""
    if isinstance(node, list):
        return [key for at, one in enumerate(node) for key in undescribed(one, definitions, f"{place}/{at}")]
    if not isinstance(node, dict):
        return []
    own = node.get("properties", {})
    found = [
        f"{place}/{key}" for key, schema in own.items() if schema is not True and not described(schema, definitions)
    ]
    # what stands under `if` is compared, and not offered
    inner = {name: value for name, value in node.items() if name != "if"}
    return found + [key for name, value in inner.items() for key in undescribed(value, definitions, f"{place}/{name}")]


def described(schema: Any, definitions: Any) -> bool:
    if "$ref" in schema:
        return "description" in schema or described(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return "description" in schema or any(described(one, definitions) for one in schema.get("anyOf", ()))


def test_editors_can_say_of_every_key_of_a_workflow_file_what_it_is_for() -> None:
    schema = json.loads((STORED / "workflow.schema.json").read_text("utf-8"))

    assert undescribed(schema, schema["$defs"]) == []
