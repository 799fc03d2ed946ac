"""The Helm chart renders to what the plain manifests say.

helm is not here: the chart is rendered by our own implementation of Go's templates, with stand-ins for the functions
of helm that it uses. Values are written as JSON, which is YAML too.
"""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import harken
from harken.config.loader import load
from harken.language.go_template import compile_template
from harken.language.go_template.functions import FUNCTIONS, Function
from harken.run.compiled_workflows import check_workflow
from harken.services import registry

DEPLOY = Path(__file__).parents[2] / "examples" / "deploy"
CHART = DEPLOY / "helm" / "harken"
HELM = {
    "toYaml": Function(call=json.dumps, least=1),
    "nindent": Function(call=lambda width, text: "\n" + " " * width + text, least=2),
    "quote": Function(call=lambda text: json.dumps(str(text)), least=1),
    "required": Function(call=lambda message, value: value or pytest.fail(message), least=2),
    "sha256sum": Function(call=lambda text: hashlib.sha256(text.encode()).hexdigest(), least=1),
}


def rendered(monkeypatch: pytest.MonkeyPatch, **values: Any) -> dict[tuple[str, str], Any]:
    for name, function in HELM.items():
        monkeypatch.setitem(FUNCTIONS, name, function)
    given = {"store": "postgresql://db/harken", "encryptionKey": "k", **values}
    names = {
        "Values": {**yaml.safe_load((CHART / "values.yaml").read_text("utf-8")), **given},
        "Release": {"Name": "harken"},
        "Chart": {"AppVersion": yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["appVersion"]},
    }
    found: dict[tuple[str, str], Any] = {}
    for template in sorted((CHART / "templates").glob("*.yaml")):
        made = compile_template(template.read_text("utf-8")).render(names)
        assert made.warnings == []
        for document in yaml.safe_load_all(made.text):
            if document:
                found[document["kind"], document["metadata"]["name"]] = document
    return found


def without_labels(value: Any) -> Any:
    """What differs on purpose: labels of the release, its image, and the sum that makes new pods."""
    text = json.dumps(value).replace(', "app.kubernetes.io/instance": "harken"', "")
    plain = json.loads(text)
    plain["spec"]["template"]["metadata"].pop("annotations", None)
    plain["spec"]["template"]["spec"]["containers"][0].pop("image")
    return plain


def manifests() -> dict[tuple[str, str], Any]:
    files = (DEPLOY / "kubernetes").glob("*.yaml")
    documents = [one for file in files for one in yaml.safe_load_all(file.read_text("utf-8")) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in documents if "metadata" in one}


def test_the_deployment_is_that_of_the_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = rendered(monkeypatch)["Deployment", "harken"]
    plain = copy.deepcopy(manifests()["Deployment", "harken"])
    assert without_labels(chart) == without_labels(plain)
    assert chart["spec"]["template"]["spec"]["containers"][0]["image"] == f"harken:{harken.__version__}"


def test_everything_that_the_manifests_have_is_in_the_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(rendered(monkeypatch)) == set(manifests())


def test_what_it_configures_loads_without_a_complaint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = rendered(monkeypatch)
    (tmp_path / "workflows").mkdir()
    for kind, folder in (("harken-settings", tmp_path), ("harken-workflows", tmp_path / "workflows")):
        for name, text in made["ConfigMap", kind]["data"].items():
            (folder / name).write_text(text, "utf-8")
    found = load(tmp_path, plugins=registry(), check_workflow=check_workflow, environ={})
    assert [str(finding) for finding in found.findings] == []
    assert set(found.workflows) == {"minute"}


def test_a_secret_of_ones_own_takes_the_place_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    made = rendered(monkeypatch, existingSecret="mine", env=[{"name": "SLACK_BOT_TOKEN", "value": "x"}])
    container = made["Deployment", "harken"]["spec"]["template"]["spec"]["containers"][0]
    assert ("Secret", "harken") not in made
    assert container["envFrom"] == [{"secretRef": {"name": "mine"}}]
    assert container["env"] == [{"name": "SLACK_BOT_TOKEN", "value": "x"}]
