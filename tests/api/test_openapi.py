"""The table of operations, as OpenAPI and as documentation tell it."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from harken.api.openapi import DURATION, PARAMS, document, specification
from harken.api.response_types import ANSWERS
from harken.api.routes import ROUTES, Param
from tests.api.server import Served

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()
SPECIFICATION = json.loads(document())


@pytest.mark.parametrize("operation", [name for name in ROUTES if not ROUTES[name].path.startswith("/admin")])
def test_every_operation_is_in_openapi_with_its_parameters_and_errors(operation: str) -> None:
    route = ROUTES[operation]
    found = SPECIFICATION["paths"][route.template][route.method.lower()]
    body = found.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    beside = {one["name"] for one in found["parameters"] if "name" in one} | set(body.get("properties", {}))
    assert found["operationId"] == operation
    assert beside == set(route.params) - {"match"}
    assert {"400", "404", "429", "503"} <= set(found["responses"])


@pytest.mark.parametrize("operation", list(ROUTES))
def test_every_parameter_of_an_operation_is_on_the_page(operation: str) -> None:
    route = ROUTES[operation]
    [row] = [line for line in REFERENCE.splitlines() if f"`{route.template}` | `{operation}` |" in line]
    said = set(re.findall(r"`([\w-]+)`", row.rpartition(f"`{operation}`")[2]))
    assert said == {"If-Match" if name == "match" else name for name in set(route.params) - route.placed}


def test_there_is_no_shape_of_an_operation_that_does_not_exist() -> None:
    assert set(ANSWERS) <= set(ROUTES)


def test_everything_that_is_named_in_a_path_is_reached_by_a_link() -> None:
    operations = [one for methods in SPECIFICATION["paths"].values() for one in methods.values()]
    answers = [answer for one in operations for answer in one["responses"].values()]
    links = [link for answer in answers for link in answer.get("links", {}).values()]
    named = {name for name, route in ROUTES.items() if route.placed and not route.path.startswith("/admin")}
    assert {link["operationId"] for link in links} == named
    for link in links:
        given = {name.removeprefix("path.") for name in link["parameters"]} - {"header.If-Match"}
        assert given == ROUTES[link["operationId"]].placed


def test_every_kind_of_parameter_has_a_schema_that_is_one() -> None:
    assert set(PARAMS) == set(Param.__args__)  # type: ignore[attr-defined]
    for schema in PARAMS.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_the_pattern_of_durations_takes_what_harken_takes() -> None:
    assert [bool(re.search(DURATION, text)) for text in ("10m", "1h30m", "500ms", "10", "-5m", "")] == [True] * 3 + [
        False
    ] * 3


async def test_it_is_served(served: Served) -> None:
    reply = await served.send("GET", "/api/openapi.json")
    assert reply.json() == SPECIFICATION
    assert reply.json()["openapi"] == "3.1.0"


async def test_it_is_compressed_for_whoever_can_read_that(served: Served) -> None:
    reply = await served.send("GET", "/api/openapi.json", headers={"accept-encoding": "gzip"})
    assert (reply.headers["content-encoding"], reply.headers["vary"]) == ("gzip", "accept-encoding")
    assert len(reply.body) < len(document()) / 4
    assert json.loads(gzip.decompress(reply.body)) == SPECIFICATION


async def test_what_is_answered_is_what_the_shapes_say(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"))
    run = (await served.call("runs.list"))["items"][0]
    asked: dict[str, dict[str, Any]] = {
        "status": {}, "doctor": {}, "triggers.list": {}, "triggers.show": {"name": "oncall"}, "feeds.list": {},
        "feeds.show": {"name": "deploys"}, "events.list": {}, "events.show": {"id": 1}, "runs.list": {},
        "runs.show": {"id": run["id"]}, "dead.list": {}, "workflows.list": {}, "integrations.list": {},
        "webhooks.list": {}, "triggers.explain": {"name": "oncall"},
        "workflows.run": {"name": "oncall"}, "events.replay": {"id": 1}, "triggers.pause": {"name": "oncall"},
    }  # fmt: skip
    for operation, params in asked.items():
        route = ROUTES[operation]
        answers = SPECIFICATION["paths"][route.template][route.method.lower()]["responses"]
        schema = answers["201" if route.creates else "200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": SPECIFICATION["components"]}
        jsonschema.Draft202012Validator(whole).validate(await served.call(operation, **params))


def test_it_is_made_only_when_somebody_asks() -> None:
    program = "import sys, harken.api.app; print('harken.api.openapi' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_the_client_needs_no_library() -> None:
    program = (
        "import sys, harken.client; print(sorted({'aiohttp', 'msgspec', 'starlette', 'pydantic'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_the_specification_is_the_same_each_time() -> None:
    assert json.loads(json.dumps(specification())) == SPECIFICATION
