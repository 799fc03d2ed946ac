"""The files of examples/deploy: they parse, their commands exist, and they fit what Harken needs."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from harken.cli.root import root
from harken.config.loader import load
from harken.config.settings import Queue
from harken.run.compiled_workflows import check_workflow
from harken.services import registry
from harken.timings import Timings
from tests.downloads import skip_or_fail

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
COMPOSE = sorted((DEPLOY / "compose").glob("docker-compose*.yaml"))
SINGLE = DEPLOY / "single"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
STOPPING = Queue().shutdown_grace_seconds + Timings().agent_grace + 15
"""How long a replica may take: its runs, then listeners, leases and the last writes."""


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


def resources() -> dict[tuple[str, str], dict[str, Any]]:
    found = [document for path in MANIFESTS for document in documents(path) if "metadata" in document]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = resources()["Deployment", "harken"]["spec"]["template"]["spec"]
    return spec


def container() -> dict[str, Any]:
    [found] = pod()["containers"]
    return dict(found)


def replica(path: Path) -> dict[str, Any]:
    service: dict[str, Any] = documents(path)[0]["services"]["harken"]
    return service


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(DEPLOY / "systemd" / "harken.service")
    return parser


def command_lines() -> Iterator[tuple[str, list[str]]]:
    yield "kubernetes", container()["args"]
    yield "systemd", shlex.split(unit()["Service"]["ExecStart"])[1:]
    yield "image", json.loads(dockerfile("CMD"))
    for path in (*COMPOSE, SINGLE / "compose.yaml"):
        yield path.name, replica(path)["command"]


def dockerfile(word: str) -> str:
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    [found] = [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]
    return found


def probes() -> Iterator[tuple[str, list[str]]]:
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        yield name, container()[name]["exec"]["command"]
    for path in COMPOSE:
        kind, *command = replica(path)["healthcheck"]["test"]
        assert kind == "CMD"
        yield path.name, command
    text = (DEPLOY / "Dockerfile").read_text("utf-8").partition("HEALTHCHECK ")[2].partition("CMD ")[2].splitlines()[0]
    yield "image", json.loads(text)


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text[:-1])


# the templates of a chart are no YAML until they are rendered
PLAIN = sorted(path for path in DEPLOY.rglob("*.yaml") if path.parent.name != "templates")


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_yaml_file_parses(path: Path):
    assert documents(path)


@pytest.mark.parametrize(("where", "words"), list(command_lines()), ids=lambda value: str(value)[:30])
def test_the_command_exists_with_its_options(where: str, words: list[str]):
    result = CliRunner().invoke(root, [*words, "--help"])

    assert result.exit_code == 0, f"{where}: {result.output}"
    assert "Run the controller" in result.output


def test_a_command_that_does_not_exist_would_be_noticed():
    assert CliRunner().invoke(root, ["start", "--configuration", "/harken", "--help"]).exit_code != 0


def test_the_image_runs_harken_and_is_built_from_the_project_alone():
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    assert json.loads(dockerfile("ENTRYPOINT")) == ["harken"]
    assert "://" not in text.replace("http://127.0.0.1:9091/health", "")
    assert "index" not in text
    own = [line for line in text.splitlines() if line.startswith("COPY ") and "--from=" not in line]
    copied = {word for line in own for word in line.split()[1:-1]}
    assert {name for name in copied if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_compose_builds_the_image_and_mounts_files_that_exist(path: Path):
    service = replica(path)
    context = (path.parent / service["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / service["build"]["dockerfile"]).is_file()
    assert {volume for volume in service["volumes"] if not (path.parent / volume.split(":")[0]).exists()} == set()


@pytest.mark.parametrize("path", COMPOSE, ids=lambda path: path.name)
def test_compose_runs_three_replicas_on_one_store_that_is_up_before_them(path: Path):
    service = replica(path)
    store = service["environment"].get("HARKEN_STORE") or service["environment"]["REDIS_URL"]
    [name] = service["depends_on"]
    assert service["deploy"]["replicas"] == 3
    assert name in store
    assert "healthcheck" in documents(path)[0]["services"][name]


def test_the_redis_of_compose_keeps_the_whole_promise():
    words = documents(DEPLOY / "compose" / "docker-compose.redis.yaml")[0]["services"]["redis"]["command"]
    assert dict(zip(words[1::2], words[2::2], strict=True)) == {
        "--appendonly": "yes",
        "--appendfsync": "always",
        "--maxmemory-policy": "noeviction",
    }


def test_every_way_to_stop_leaves_time_for_the_runs():
    given = [seconds(replica(path)["stop_grace_period"]) for path in COMPOSE]
    given += [pod()["terminationGracePeriodSeconds"], float(unit()["Service"]["TimeoutStopSec"])]
    assert min(given) >= STOPPING


def test_the_image_has_all_that_the_package_is_built_from():
    copied = (DEPLOY / "Dockerfile").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["path"]
    assert f"COPY {hook} /src/{Path(hook).parent}/" in copied
    assert all(name in copied for name in ("pyproject.toml", "README.md", *project["project"]["license-files"]))


def test_only_what_an_image_is_built_from_is_sent_to_the_builder():
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    kept = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    own = [
        line.split()[1:-1] for line in (DEPLOY / "Dockerfile").read_text("utf-8").splitlines() if line[:5] == "COPY "
    ]
    copied = {name for names in own for name in names if not names[0].startswith("--")}
    assert rules[0] == "*"
    assert kept == copied


@pytest.mark.parametrize("path", [*COMPOSE, SINGLE / "compose.yaml"], ids=lambda path: path.name)
def test_what_compose_demands_is_put_into_a_file_that_it_reads_itself(path: Path):
    text = path.read_text("utf-8")
    demanded = set(re.findall(r"\$\{(\w+):\?", text))
    heading = text.partition("services:")[0]
    assert demanded
    assert {name for name in demanded if name not in heading} == set()
    assert ".env" in heading
    assert "export" not in heading


def test_one_container_keeps_its_store_on_a_volume_and_can_change_nothing_else():
    service = replica(SINGLE / "compose.yaml")
    mounted = {volume.split(":")[1]: volume for volume in service["volumes"]}
    assert Path(service["environment"]["HARKEN_STORE"]).parent == Path("/data")
    assert (mounted["/data"], mounted["/harken"]) == ("data:/data", "./harken:/harken:ro")
    assert service["read_only"] and service["tmpfs"] == ["/tmp"] and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert seconds(service["stop_grace_period"]) >= STOPPING


@pytest.mark.parametrize("folder", ["compose", "single"])
def test_the_configuration_of_compose_loads_without_a_complaint(folder: str):
    assert_it_loads(DEPLOY / folder / "harken")


def test_the_configuration_of_the_config_maps_loads_without_a_complaint(tmp_path: Path):
    (tmp_path / "workflows").mkdir()
    for kind, folder in (("harken-settings", tmp_path), ("harken-workflows", tmp_path / "workflows")):
        for name, text in resources()["ConfigMap", kind]["data"].items():
            (folder / name).write_text(text, "utf-8")

    assert_it_loads(tmp_path)


def assert_it_loads(directory: Path) -> None:
    found = load(directory, plugins=registry(), check_workflow=check_workflow, environ={})
    assert [str(finding) for finding in found.findings] == []
    assert found.triggers
    # a listener on another address than loopback is refused, except that of the webhooks
    assert found.settings.server.host == "127.0.0.1"
    assert (found.settings.server.webhook_host, found.settings.server.webhook_port) == ("0.0.0.0", 9092)
    assert found.settings.agent.queue.shutdown_grace_seconds + Timings().agent_grace + 15 <= STOPPING


def test_whatever_a_pod_refers_to_is_there():
    maps = {volume["configMap"]["name"] for volume in pod()["volumes"] if "configMap" in volume}
    secrets = {source["secretRef"]["name"] for source in container()["envFrom"]}
    mounted = {mount["name"] for mount in container()["volumeMounts"]}
    assert {("ConfigMap", name) for name in maps} | {("Secret", name) for name in secrets} <= set(resources())
    assert mounted == {volume["name"] for volume in pod()["volumes"]}
    listed = yaml.safe_load((DEPLOY / "kubernetes" / "kustomization.yaml").read_text("utf-8"))["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in MANIFESTS}


def test_the_service_and_the_disruption_budget_find_the_pods():
    labels = resources()["Deployment", "harken"]["spec"]["template"]["metadata"]["labels"]
    service, budget = resources()["Service", "harken-webhooks"], resources()["PodDisruptionBudget", "harken"]
    assert service["spec"]["selector"] == labels == budget["spec"]["selector"]["matchLabels"]
    assert service["spec"]["ports"][0]["targetPort"] in {port["name"] for port in container()["ports"]}


def test_the_secret_has_the_store_and_the_key():
    assert set(resources()["Secret", "harken"]["stringData"]) == {"HARKEN_STORE", "HARKEN_ENCRYPTION_KEY"}


def test_a_pod_can_write_where_it_has_to_and_nowhere_else():
    writable = {mount["mountPath"] for mount in container()["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/harken", "/tmp"}
    assert container()["securityContext"]["readOnlyRootFilesystem"]


def test_the_unit_starts_again_reloads_and_keeps_its_keys_out_of_the_file():
    service = unit()["Service"]
    assert (service["Restart"], service["ExecReload"]) == ("always", "/bin/kill -HUP $MAINPID")
    assert service["EnvironmentFile"] == "-/etc/harken/harken.env"
    assert service["User"] != "root"
    assert f"/var/lib/{service['StateDirectory']}" in service["ExecStart"]
    assert unit()["Install"]["WantedBy"] == "multi-user.target"


class Answering(BaseHTTPRequestHandler):
    status = "up"

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"status": type(self).status, "subsystems": []}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@pytest.mark.parametrize(("where", "command"), list(probes()), ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("status", ["up", "degraded", "down"])
def test_a_probe_says_what_the_health_is(where: str, command: list[str], status: str):
    answering = type("Answering", (Answering,), {"status": status})
    judges = where not in ("startupProbe", "livenessProbe")
    with HTTPServer(("127.0.0.1", 0), answering) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        code = asked(command, server.server_port)
        server.shutdown()

    assert code == (1 if status == "down" and judges else 0)


@pytest.mark.parametrize(("where", "command"), list(probes()), ids=lambda value: str(value)[:30])
def test_a_probe_fails_where_nobody_answers(where: str, command: list[str]):
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        port = server.server_port

    assert asked(command, port) == 1


def asked(command: list[str], port: int) -> int:
    """Run a probe against a server on another port than Harken's."""
    program, *words = command
    assert program == "python"
    assert any("127.0.0.1:9091" in word for word in words)
    given = [word.replace("127.0.0.1:9091", f"127.0.0.1:{port}") for word in words]
    return subprocess.run([sys.executable, *given], capture_output=True, timeout=200, check=False).returncode


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    linter = Path(sysconfig.get_path("scripts")) / "hadolint"
    if not linter.exists():
        skip_or_fail("hadolint is not here. Run: make setup")
    done = subprocess.run([linter, DEPLOY / "Dockerfile"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    bad = subprocess.run([linter, "-"], input="FROM debian\nRUN cd /x", capture_output=True, text=True, check=False)
    assert "DL3006" in bad.stdout
