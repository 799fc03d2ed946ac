"""Operations over HTTP, errors as problems, health, metrics and the tail."""

from __future__ import annotations

import asyncio
import inspect
import json
from pathlib import Path

import pytest

from harken import errors
from harken.api.params import BODY_LIMIT
from harken.api.routes import ROUTES
from harken.errors import NotFound, Refused
from harken.operate.operator import CHANGES, OPERATIONS
from tests.api.server import JSON, Served
from tests.operate.operator_world import POLLED


def test_every_operation_has_a_route_with_the_same_parameters() -> None:
    assert set(ROUTES) == set(OPERATIONS)
    for name, operation in OPERATIONS.items():
        taken = set(inspect.signature(operation).parameters) - {"context"}
        assert set(ROUTES[name].params) - {"fields"} == taken, name


def test_no_change_can_be_made_with_a_get() -> None:
    assert {ROUTES[name].method for name in CHANGES} == {"POST", "PUT", "PATCH", "DELETE"}


async def test_lists_come_as_pages(served: Served) -> None:
    await served.office.shows(*(served.office.incident(f"INC-{n}") for n in range(3)))
    page = await served.call("events.list", limit=2)
    rest = await served.call("events.list", limit=2, cursor=page["next"])
    assert [event["key"] for event in page["items"] + rest["items"]] == ["INC-2", "INC-1", "INC-0"]


async def test_of_the_items_of_a_list_only_the_fields_come_that_are_asked_for(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"))
    reply = await served.send("GET", "/api/events?fields=key,id&where=type!=%22other%22")
    assert [list(row) for row in reply.json()["items"]] == [["key", "id"]]
    reply = await served.send("GET", "/api/triggers?fields=name,stats")
    assert (reply.status, reply.json()["detail"]) == (400, "the items of triggers.list have no field stats")
    assert "status" in reply.json()["fix"]


async def test_a_feed_with_slashes_in_its_name_is_found(served: Served) -> None:
    assert (await served.call("feeds.show", name=POLLED.name))["name"] == POLLED.name


async def test_a_trigger_is_paused_tested_explained_and_resumed(served: Served) -> None:
    await served.office.shows(served.office.incident("INC/1 é"))
    assert (await served.call("triggers.pause", name="oncall", reason="x"))["status"] == "paused"
    assert (await served.call("triggers.test", name="oncall", lookback=60.0))["would_fire"] == 1
    assert (await served.call("triggers.explain", name="oncall", key="INC/1 é"))["outcome"] == "fired"
    assert (await served.call("triggers.resume", name="oncall"))["paused"] == ""


async def test_errors_travel_as_problems_and_arrive_as_what_they_were(served: Served) -> None:
    reply = await served.send("GET", "/api/triggers/oncal")
    problem = reply.json()
    assert reply.headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["title"], problem["fix"]) == (404, "Not Found", "Did you mean oncall?")
    with pytest.raises(NotFound) as raised:
        await served.call("triggers.show", name="oncal")
    assert raised.value.fix == "Did you mean oncall?"


async def test_a_parameter_that_does_not_exist_is_refused_with_the_nearest(served: Served) -> None:
    with pytest.raises(Refused) as raised:
        await served.call("events.list", limits=2)
    assert raised.value.fix == "Did you mean limit?"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/triggers/oncall/pause", b'{"reason": 7}'),
        ("/api/triggers/oncall/reset", b'{"cursor": 1}'),
        ("/api/triggers/oncall/pause", b"[]"),
        ("/api/triggers/oncall/pause", b"{"),
        ("/api/triggers/oncall/pause", b"[" * 100_000),
        ("/api/triggers/oncall/pause", b'{"name": "other"}'),
    ],
)
async def test_a_body_of_another_shape_is_refused(served: Served, path: str, body: bytes) -> None:
    assert (await served.send("POST", path, body, JSON)).status == 400


async def test_a_body_that_is_too_large_is_not_read(served: Served) -> None:
    reply = await served.send("POST", "/api/workflows/oncall/run", b" " * (BODY_LIMIT + 1), JSON)
    assert reply.status == 413


@pytest.mark.parametrize("path", ["/api/events/none", "/api/nothing", "/nothing"])
async def test_what_is_not_there_is_a_problem_too(served: Served, path: str) -> None:
    reply = await served.send("GET", path)
    assert (reply.status, reply.json()["code"]) == (404, "not_found")


async def test_health_is_always_200_and_ready_follows_the_subsystems(served: Served) -> None:
    assert [(await served.send("GET", path)).status for path in ("/health", "/health/ready")] == [200, 200]
    served.health = {"status": "degraded", "subsystems": [{"name": "store", "state": "down", "reason": "disk full"}]}
    assert [(await served.send("GET", path)).status for path in ("/health", "/health/ready")] == [200, 503]


async def test_metrics_are_served_as_prometheus_reads_them(served: Served) -> None:
    reply = await served.send("GET", "/metrics")
    assert reply.body == b"harken_up 1\n"
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_the_tail_streams_events_with_their_ids_and_goes_on_after_the_last(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"), served.office.incident("INC-2"))
    reply = await served.send("GET", "/api/events/tail", headers={"Last-Event-ID": "1"})
    assert reply.headers["content-type"].startswith("text/event-stream")
    frames = reply.body.decode().split("\n\n")
    assert frames[0] == ": harken"
    assert frames[1].startswith("id: 2\nevent: event\ndata: ")
    assert json.loads(frames[1].split("data: ")[1])["key"] == "INC-2"


async def test_the_tail_of_runs_goes_on_after_a_position(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"))
    reply = await served.send("GET", "/api/runs/tail?after=0")
    frames = [frame for frame in reply.body.decode().split("\n\n") if frame.startswith("id: ")]
    runs = [json.loads(frame.split("data: ")[1]) for frame in frames]
    later = str(runs[-1]["position"] + 1)
    again = await served.send("GET", "/api/runs/tail", headers={"Last-Event-ID": later})
    assert {run["trigger"] for run in runs} == {"oncall", "digest"}
    assert "id: " not in again.body.decode()
    assert b": still here" in reply.body


async def test_events_and_runs_come_in_one_stream_which_goes_on_at_its_position(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"), served.office.incident("INC-2"))
    reply = await served.send("GET", "/api/live?after=0-0")
    frames = [frame for frame in reply.body.decode().split("\n\n") if frame.startswith("id: ")]
    kinds = [frame.split("\n")[1] for frame in frames]
    events = [json.loads(frame.split("data: ")[1]) for frame in frames if "\nevent: event\n" in frame]
    last = frames[-1].split("\n")[0].removeprefix("id: ")
    again = await served.send("GET", "/api/live", headers={"Last-Event-ID": f"{last.split('-')[0]}-{10**17}"})

    assert (frames[0], set(kinds[1:])) == ("id: 0-0\nevent: position\ndata: {}", {"event: event", "event: run"})
    assert [event["key"] for event in events] == ["INC-1", "INC-2"]
    assert all("data" not in event for event in events), "pages ask for the one that somebody looks at"
    assert "event: event" not in again.body.decode() and "event: run" not in again.body.decode()
    assert (await served.send("GET", "/api/live?after=7")).status == 400


async def test_a_service_shows_what_its_settings_take(served: Served) -> None:
    shown = await served.call("services.show", kind="rss")
    listed = [row["kind"] for row in (await served.call("services.list"))["items"]]
    assert "feed_url" in shown["poll"]["properties"]
    assert {"rss", "webhook", "slack"} <= set(listed)
    assert listed == sorted(listed)
    with pytest.raises(NotFound, match="rs"):
        await served.call("services.show", kind="rs")


async def test_a_workflow_is_shown_as_json_and_as_yaml(served: Served) -> None:
    shown = await served.call("workflows.show", name="oncall")
    assert shown["definition"]["steps"][0]["id"] == "page"
    assert shown["yaml"].startswith("name: oncall\nsteps:\n")
    assert shown["triggers"] == ["deploys", "digest", "oncall"]


async def test_types_of_events_are_those_that_came(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"), served.office.incident("INC-2"))
    [row] = (await served.call("event_types.list"))["items"]
    assert (row["type"], row["count"]) == ("json.item", 2)


async def test_a_last_event_id_that_is_none_is_refused(served: Served) -> None:
    assert (await served.send("GET", "/api/events/tail", headers={"Last-Event-ID": "x"})).status == 400


async def test_the_remote_client_follows_the_tail(served: Served) -> None:
    await served.office.shows(served.office.incident("INC-1"))
    stream = served.controller.follow(0)
    first = await asyncio.to_thread(next, stream)
    await asyncio.to_thread(stream.close)  # type: ignore[attr-defined]
    assert first["key"] == "INC-1"


def test_every_route_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()
    missing = [route.path for route in ROUTES.values() if f"`{route.template}` | `{route.operation}`" not in text]
    assert missing == []


def test_every_error_code_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()
    codes = {
        kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.HarkenError)
    }
    assert [code for code in sorted(codes) if f"`{code}`" not in text] == []


async def test_a_parameter_that_is_needed_and_missing_is_named(served: Served) -> None:
    reply = await served.send("POST", "/api/store/backup", b"{}", JSON)
    assert (reply.status, reply.json()["detail"]) == (400, "store.backup needs target")
