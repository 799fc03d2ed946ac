"""Who may do what over HTTP: every operation with every role, an owner's own and others' things, on a real server."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import msgspec
import pytest

from harken.api.routes import ROUTES
from harken.config.feeds import internal_feed
from harken.config.loaded import Account
from harken.event import Event
from harken.feed import INTERNAL, Join, Part
from harken.operate.agent_tools import JOB_TOOLS
from harken.operate.operator import CHANGES, OPERATIONS
from harken.operate.permissions import METRICS, PERMISSIONS, RUNS_TAIL, TAIL, Thing
from harken.operate.principal import ROLES, Principal
from harken.runs import Workflow
from harken.store import Definitions
from harken.store import Part as ChangedPart
from tests.api.server import JSON, Reply, Served, serving
from tests.cpu_time import cpu_at_most
from tests.operate.operator_world import FLOW, Office, opened, trigger

LOCAL = "only-files-of-our-own-have-this"
SHARED = Workflow(name="shared", rev="r2", definition={"steps": []}, share_with="operator")
BOBS = Workflow(name="bobs-flow", rev="r3", definition={"steps": []})
TRIGGERS = (
    trigger("oncall"),
    trigger("anas", feed="deploys", owner="ana"),
    trigger("bobs", feed="deploys", owner="bob", workflow="bobs-flow", workflow_rev="r3"),
    trigger("shared", feed="deploys", workflow="shared", workflow_rev="r2"),
)
ABOUT = {name: permission for name, permission in PERMISSIONS.items() if name in ROUTES}
NAMED = {"trigger", "run", "event", "feed", "workflow"}
ANYTHING: dict[str, Any] = {"since": "1h", "duration": "1h", "filter": "true", "cel": "true", "object": {}}
OTHERS = ("bobs", "oncall", "INC-1", "company/incidents")
"""What must not be in anything that ana is told, neither plainly nor in a cursor."""


@dataclass(frozen=True, kw_only=True)
class House:
    """Served with tokens required. `things`: a name of each kind by its owner."""

    served: Served
    tokens: dict[str, str]
    things: dict[tuple[str, str], str]

    async def call(self, operation: str, token: str, **params: Any) -> Reply:
        route = ROUTES[operation]
        path, beside = route.address(params)
        headers = {"Authorization": f"Bearer {self.tokens.get(token, token)}"} if token else {}
        if route.method == "GET":
            query = "&".join(f"{name}={value}" for name, value in beside.items())
            return await self.served.send("GET", f"{path}?{query}" if query else path, headers=headers)
        body = None if route.in_query else json.dumps(beside).encode()
        return await self.served.send(route.method, path, body, {**JSON, **headers})

    async def rows(self, operation: str, token: str) -> list[dict[str, Any]]:
        reply = await self.call(operation, token)
        assert reply.status == 200, reply.body
        found: list[dict[str, Any]] = reply.json()["items"]
        return found


async def settled(office: Office) -> None:
    """Triggers of three owners."""
    workflows = {"oncall": FLOW, "shared": SHARED, "bobs-flow": BOBS}
    office.operator.loaded = replace(office.loaded, triggers=TRIGGERS, workflows=workflows, generation="owned")
    await office.store.open(office.operator.loaded.definitions())


async def runs_of(office: Office, event: str, feed: str) -> dict[str, str]:
    committed = await office.shows(office.incident(event), feed=feed)
    return {verdict.trigger: verdict.run_id for verdict in committed.verdicts[0] if verdict.run_id}


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    # a backup is written to the path that is named
    monkeypatch.chdir(tmp_path)
    async with opened(tmp_path) as office, serving(office, local_token=LOCAL) as served:
        await settled(office)
        uids = {state.name: state.uid for state in await office.store.triggers()}
        runs = await runs_of(office, "INC-1", "company/incidents") | await runs_of(office, "PUSH-1", "deploys")
        tokens = {"local": LOCAL}
        for role in ROLES:
            made = await office.operator.call("tokens.create", name=role, role=role)
            tokens[role] = made["token"]
        for role in ("viewer", "operator"):
            made = await office.operator.call("tokens.create", name=f"ana-{role}", role=role, owner="ana")
            tokens[f"ana-{role}"] = made["token"]
        things = {("event", "operator"): "1", ("event", "ana"): "2", ("event", "shared"): "2"}
        for name, owner in (("oncall", "operator"), ("anas", "ana"), ("bobs", "bob"), ("shared", "shared")):
            things["trigger", owner] = name
            things["run", owner] = next(run for uid, run in runs.items() if uid in (name, uids[name]))
        things |= {("feed", "operator"): "company/incidents", ("feed", "ana"): "deploys", ("feed", "shared"): "deploys"}
        things |= {("workflow", "shared"): "shared", ("workflow", "ana"): "oncall", ("workflow", "bob"): "bobs-flow"}
        yield House(served=served, tokens=tokens, things=things)


def params_of(operation: str, house: House, owner: str) -> dict[str, Any]:
    permission = PERMISSIONS[operation]
    given: dict[str, Any] = {name: "x" for name in ROUTES[operation].placed}
    taken = signature(OPERATIONS[operation]).parameters
    for name, param in ROUTES[operation].params.items():
        # what an operation needs is sent, so that it is refused for whom it belongs to and for nothing else
        if name in taken and taken[name].default is Parameter.empty:
            given.setdefault(name, ANYTHING.get(param, "x"))
    if permission.thing in NAMED and permission.param:
        given[permission.param] = house.things[permission.thing, owner]
    elif operation in ("tokens.create", "triggers.create"):
        given = {"name": "another"}
    if operation == "triggers.replace":
        given["workflow"] = {"steps": []}
    if permission.thing == "event" and permission.changes and owner == "ana":
        # triggers of others had it too
        given["trigger"] = "anas"
    return given


def missing_of(operation: str, house: House, owner: str) -> dict[str, Any]:
    """The same with a thing that nobody has."""
    param = PERMISSIONS[operation].param
    given = params_of(operation, house, owner)
    name = "123456" if PERMISSIONS[operation].thing == "event" else f"{given[param]}0"
    return given | {param: name}


def told(reply: Reply, param: str, params: dict[str, Any]) -> tuple[int, str, str]:
    """What the caller learns; the name that it gave itself is no news."""
    problem = reply.json()
    return reply.status, problem["code"], problem["detail"].replace(params[param], "…")


def test_every_kind_of_thing_is_tried() -> None:
    assert set(get_args(Thing)) == NAMED | {"everything", "list", "new", "job", "self"}


def test_every_operation_has_a_row_and_every_row_an_operation() -> None:
    assert {*OPERATIONS, TAIL, RUNS_TAIL, METRICS} == set(PERMISSIONS)
    assert {tool.operation for tool in JOB_TOOLS.values()} <= set(PERMISSIONS)
    assert set(ROUTES) <= set(PERMISSIONS)


def test_no_change_is_for_viewers() -> None:
    assert [name for name in CHANGES if PERMISSIONS[name].role == "viewer"] == []


def test_every_parameter_that_names_a_thing_is_one_of_the_operation() -> None:
    named = {name: row for name, row in ABOUT.items() if row.thing in NAMED or (row.thing == "job" and row.param)}
    assert [name for name, row in named.items() if row.param not in ROUTES[name].params] == []


async def test_nobody_calls_anything_without_a_token_or_with_a_wrong_one(house: House) -> None:
    wrong = house.tokens["admin"][:-3] + "AAA"
    answers = {
        (operation, token): await house.call(operation, token, **dict.fromkeys(ROUTES[operation].placed, "1"))
        for operation in ABOUT
        for token in ("", wrong, "nonsense")
    }
    assert {asked: reply.status for asked, reply in answers.items() if reply.status != 401} == {}
    assert all(reply.headers["www-authenticate"].startswith("Bearer") for reply in answers.values())


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("operation", ABOUT)
async def test_a_role_may_what_the_table_says(operation: str, role: str, house: House) -> None:
    owner = "ana" if PERMISSIONS[operation].thing == "workflow" else "operator"
    reply = await house.call(operation, role, **params_of(operation, house, owner))
    allowed = ROLES.index(role) >= ROLES.index(PERMISSIONS[operation].role)
    assert (reply.status == 403) == (not allowed), reply.body
    assert reply.status != 401


@pytest.mark.parametrize("token", ["ana-viewer", "ana-operator"])
@pytest.mark.parametrize("operation", ABOUT)
async def test_an_owner_is_kept_to_what_is_theirs(operation: str, token: str, house: House) -> None:
    permission = PERMISSIONS[operation]
    role = token.removeprefix("ana-")
    if ROLES.index(role) < ROLES.index(permission.role) or permission.thing == "everything":
        assert (await house.call(operation, token, **params_of(operation, house, "ana"))).status == 403
        return
    own = await house.call(operation, token, **params_of(operation, house, "ana"))
    assert own.status not in (401, 403), own.body
    if permission.thing in NAMED:
        owners = {"operator", "bob"} & {owner for thing, owner in house.things if thing == permission.thing}
        assert owners, f"nothing of others is tried for {operation}"
        for owner in owners:
            others = await house.call(operation, token, **params_of(operation, house, owner))
            assert others.status == 404, others.body
            assert house.things[permission.thing, owner] not in others.json()["fix"]
            missing = await house.call(operation, token, **missing_of(operation, house, owner))
            assert told(missing, permission.param, missing_of(operation, house, owner)) == told(
                others, permission.param, params_of(operation, house, owner)
            )


async def test_what_is_shared_is_seen_and_started_but_not_changed(house: House) -> None:
    statuses = {
        "sees": (await house.call("triggers.show", "ana-operator", name="shared")).status,
        "starts": (await house.call("workflows.run", "ana-operator", name="shared")).status,
        "pauses": (await house.call("triggers.pause", "ana-operator", name="shared")).status,
        "cancels": (await house.call("runs.cancel", "ana-operator", id=house.things["run", "shared"])).status,
        "a viewer sees": (await house.call("triggers.show", "ana-viewer", name="shared")).status,
    }
    assert statuses == {"sees": 200, "starts": 200, "pauses": 403, "cancels": 403, "a viewer sees": 404}


async def test_lists_have_what_is_theirs_and_nothing_of_others(house: House) -> None:
    names = {row["name"] for row in await house.rows("triggers.list", "ana-operator")}
    runs = {row["trigger"] for row in await house.rows("runs.list", "ana-operator")}
    events = await house.rows("events.list", "ana-viewer")
    verdicts = {verdict["trigger"] for event in events for verdict in event["verdicts"]}
    feeds = {row["name"]: row["triggers"] for row in await house.rows("feeds.list", "ana-viewer")}
    assert (names, runs, verdicts) == ({"anas", "shared"}, {"anas", "shared"}, {"anas"})
    assert [event["key"] for event in events] == ["PUSH-1"]
    assert feeds == {"deploys": ["anas"]}
    assert {row["name"] for row in await house.rows("workflows.list", "ana-operator")} == {"oncall", "shared"}


async def test_the_tail_has_only_what_is_theirs(house: House) -> None:
    headers = {"Authorization": f"Bearer {house.tokens['ana-viewer']}", "Last-Event-ID": "0"}
    reply = await house.served.send("GET", "/api/events/tail", headers=headers)
    data = [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: ")]
    assert [(event["key"], [v["trigger"] for v in event["verdicts"]]) for event in data] == [("PUSH-1", ["anas"])]


async def test_an_event_that_started_triggers_of_others_is_replayed_only_by_naming_ones_own(house: House) -> None:
    statuses = [
        (await house.call("events.replay", "ana-operator", id=2)).status,
        (await house.call("events.replay", "ana-operator", id=2, trigger="bobs")).status,
        (await house.call("events.replay", "ana-operator", id=2, trigger="anas")).status,
        (await house.call("events.replay", "ana-operator", id=1, trigger="anas")).status,
    ]
    assert statuses == [403, 404, 200, 404]


async def test_the_tail_and_the_metrics_need_a_token_and_health_says_little_without(house: House) -> None:
    for path in ("/metrics", "/api/events/tail", "/mcp"):
        assert (await house.served.send("GET", path)).status == 401
    assert (await house.served.send("GET", "/health")).json() == {"status": "up"}
    assert (await house.served.send("GET", "/health/ready")).json() == {"ready": True}
    headers = {"Authorization": f"Bearer {house.tokens['viewer']}"}
    assert "subsystems" in (await house.served.send("GET", "/health", headers=headers)).json()
    ana = {"Authorization": f"Bearer {house.tokens['ana-viewer']}"}
    assert (await house.served.send("GET", "/metrics", headers=ana)).status == 403
    assert (await house.served.send("GET", "/metrics", headers=headers)).status == 200


async def test_a_wrong_host_and_a_foreign_page_are_refused_before_the_token_counts(house: House) -> None:
    token = {"Authorization": f"Bearer {house.tokens['admin']}"}
    rebound = await house.served.send("GET", "/api/status", headers={**token, "Host": "evil.example:80"})
    foreign = await house.served.send("GET", "/api/status", headers={**token, "Origin": "https://evil.example"})
    across = await house.served.send("GET", "/api/status", headers={**token, "Sec-Fetch-Site": "cross-site"})
    assert [reply.status for reply in (rebound, foreign, across)] == [421, 403, 403]


async def test_a_page_gives_a_token_for_a_cookie_that_scripts_cannot_read(house: House) -> None:
    body = json.dumps({"token": house.tokens["viewer"]}).encode()
    begun = await house.served.send("POST", "/api/session", body, JSON)
    cookie = begun.headers["set-cookie"]
    assert begun.status == 204
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/"))
    sent = {"Cookie": cookie.partition(";")[0]}
    assert (await house.served.send("GET", "/api/triggers", headers=sent)).status == 200
    assert (await house.served.send("POST", "/api/triggers/oncall/pause", b"{}", {**JSON, **sent})).status == 403
    ended = await house.served.send("POST", "/api/session/end", b"{}", {**JSON, **sent})
    assert 'harken_token=""' in ended.headers["set-cookie"]
    wrong = await house.served.send("POST", "/api/session", b'{"token": "hkn_x"}', JSON)
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)


async def test_a_token_for_some_operations_or_triggers_does_nothing_else(house: House) -> None:
    make = house.served.office.operator.call
    house.tokens["ci"] = (await make("tokens.create", name="ci", role="operator", operations=["triggers.*"]))["token"]
    house.tokens["one"] = (await make("tokens.create", name="one", role="operator", triggers=["bobs"]))["token"]
    statuses = [
        (await house.call("triggers.pause", "ci", name="oncall")).status,
        (await house.call("runs.list", "ci")).status,
        (await house.call("triggers.pause", "one", name="bobs")).status,
        (await house.call("triggers.pause", "one", name="oncall")).status,
        (await house.call("status", "one")).status,
    ]
    assert statuses == [200, 403, 200, 404, 403]


async def test_the_audit_log_names_the_owner_and_the_token(house: House) -> None:
    await house.call("triggers.pause", "ana-operator", name="anas", reason="lunch")
    await house.call("triggers.pause", "operator", name="oncall")
    await house.call("triggers.resume", "local", name="oncall")
    await house.call("triggers.pause", "ana-viewer", name="anas")
    entries = (await house.call("audit.list", "admin", limit=3)).json()["items"]
    assert [(one["who"], one["did"], one["what"], one["detail"]) for one in entries] == [
        ("operator", "triggers.resume", "oncall", {}),
        ("token operator", "triggers.pause", "oncall", {"by": "token operator"}),
        ("ana", "triggers.pause", "anas", {"by": "token ana-operator", "reason": "lunch"}),
    ]


@pytest.mark.parametrize(
    ("operation", "field"), [("events.list", "id"), ("runs.list", "id"), ("triggers.list", "type")]
)
async def test_an_owner_who_asks_for_few_fields_sees_no_more_items(house: House, operation: str, field: str) -> None:
    whole = await house.rows(operation, "ana-viewer")
    few = (await house.call(operation, "ana-viewer", fields=field)).json()["items"]
    everything = await house.rows(operation, "admin")
    assert few == [{field: row[field]} for row in whole]
    assert 0 < len(few) < len(everything)


async def test_an_owner_makes_triggers_of_their_own_and_manages_them(house: House) -> None:
    steps = {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]}
    given = {"name": "mine", "provider": "schedule", "config": {"every": "1h"}, "enabled": False}
    refused = await house.call("triggers.create", "ana-operator", **given, workflow="oncall2")
    made = await house.call("triggers.create", "ana-operator", **given, workflow=steps)
    assert (refused.status, made.status, made.json()["user_id"]) == (404, 201, "ana")


async def test_everybody_is_told_who_they_are_and_what_they_may_do(house: House) -> None:
    make = house.served.office.operator.call
    house.tokens["ci"] = (await make("tokens.create", name="ci", role="operator", operations=["triggers.*"]))["token"]
    found = {name: (await house.call("me", name)).json() for name in ("local", "admin", "ana-viewer", "ci")}
    assert [(me["name"], me["role"], me["owner"], me["way"]) for me in found.values()] == [
        ("operator", "admin", "", "local"),
        ("token admin", "admin", "", "token"),
        ("token ana-viewer", "viewer", "ana", "token"),
        ("token ci", "operator", "", "token"),
    ]
    assert set(found["admin"]["operations"]) == set(PERMISSIONS)
    assert {"me", "triggers.list", "triggers.show"} <= set(found["ana-viewer"]["operations"])
    assert {"triggers.pause", "status", "tokens.list"}.isdisjoint(found["ana-viewer"]["operations"])
    assert {name.partition(".")[0] for name in found["ci"]["operations"]} == {"me", "triggers"}


async def test_an_answer_is_not_given_again_to_somebody_else(house: House) -> None:
    key = {**JSON, "Idempotency-Key": "k"}
    bearer = {name: {"Authorization": f"Bearer {house.tokens[name]}"} for name in ("operator", "admin", "viewer")}
    path = "/api/workflows/oncall/run"
    first, other = [
        await house.served.send("POST", path, b"{}", {**key, **bearer[name]}) for name in ("operator", "admin")
    ]
    viewer = await house.served.send("POST", path, b"{}", {**key, **bearer["viewer"]})
    assert first.json()["id"] != other.json()["id"]
    assert viewer.status == 403


async def test_the_secret_of_a_token_is_in_no_answer_that_is_kept(house: House) -> None:
    headers = {**JSON, "Idempotency-Key": "k", "Authorization": f"Bearer {house.tokens['admin']}"}
    made = await house.served.send("POST", "/api/tokens", b'{"name": "new"}', headers)
    [kept] = await house.served.office.store.documents("request")
    assert (made.status, kept.value["body"]) == (201, "")


async def test_an_owner_uses_no_secret_but_those_that_their_trigger_brought(house: House) -> None:
    office = house.served.office
    loaded = office.operator.loaded
    assert loaded is not None
    office.operator.loaded = replace(loaded, rows={"anas": "row-7"})
    steps = {"steps": [{"id": "s", "action": "http", "url": "https://ana.example/${secret:OPS}"}]}
    created = await house.call("triggers.create", "ana-operator", name="new", provider="cron", workflow=steps)
    edited = await house.call("triggers.edit", "ana-operator", name="anas", config={"a": ["${ secret:OPS}"]})
    for reply in (created, edited):
        assert (reply.status, reply.json()["detail"]) == (403, "this token may not use the secret OPS")
    own = await house.call("triggers.edit", "ana-operator", name="anas", config={"a": "${secret:trigger-row-7-x}"})
    assert own.status != 403


async def test_a_draft_with_the_name_of_anothers_trigger_gets_none_of_its_secrets(house: House) -> None:
    office = house.served.office
    loaded = office.operator.loaded
    assert loaded is not None
    office.operator.loaded = replace(loaded, rows={"anas": "row-7", "bobs": "row-8"})
    given = {"name": "bobs", "provider": "json", "workflow": {"steps": []}}
    config = {"url": "https://ana.example/${secret:trigger-row-8-x}"}
    for operation in ("triggers.draft", "triggers.create"):
        reply = await house.call(operation, "ana-operator", **given, config=config)
        assert (reply.status, reply.json()["detail"]) == (403, "this token may not use the secret trigger-row-8-x")


STARTING = {"id": "go", "action": "workflow"}
BOBS_FLOW = {**STARTING, "workflow": "bobs-flow"}
STEPS_THAT_START = {
    "one": BOBS_FLOW,
    "one in a loop": {"id": "all", "action": "foreach", "items": [1], "steps": [BOBS_FLOW]},
    "one of a branch": {"id": "if", "if": "true", "then": [], "else": [{**STARTING, "workflow": "nobodys"}]},
    "one that the event names": {**STARTING, "workflow": "{{ .event.name }}"},
}
HOURLY = {"name": "mine", "provider": "schedule", "config": {"every": "1h"}}


@pytest.mark.parametrize("step", STEPS_THAT_START.values(), ids=list(STEPS_THAT_START))
async def test_steps_of_an_owner_start_no_workflow_that_the_owner_may_not(step: dict[str, Any], house: House) -> None:
    for operation in ("triggers.create", "triggers.draft"):
        reply = await house.call(operation, "ana-operator", **HOURLY, workflow={"steps": [step]})
        assert reply.status in (403, 404), reply.body


async def test_steps_of_an_owner_start_workflows_that_are_shared(house: House) -> None:
    steps = [{**STARTING, "workflow": "shared"}, {**STARTING, "id": "own", "workflow": "oncall"}]
    reply = await house.call("triggers.create", "ana-operator", **HOURLY, enabled=False, workflow={"steps": steps})
    assert reply.status == 201, reply.body


SAY = {"steps": [{"id": "say", "action": "transform", "set": {"a": "b"}}]}


async def test_workflows_of_many_owners_are_listed_for_one_of_them_in_no_time(house: House) -> None:
    office = house.served.office
    many = tuple(
        trigger(f"t{n}", owner="ana" if n % 100 == 0 else "bob", workflow=f"w{n}", workflow_rev="r")
        for n in range(5_000)
    )
    flows = {one.workflow: Workflow(name=one.workflow, rev="r", definition={"steps": []}) for one in many}
    office.operator.loaded = replace(office.loaded, triggers=many, workflows=flows, generation="many")
    ana = office.operator.acting_as(Principal(name="ana", role="viewer", owner="ana"))
    with cpu_at_most(0.5):
        found = (await ana.call("workflows.list"))["items"]
    assert [row["name"] for row in found] == sorted(f"w{n}" for n in range(0, 5_000, 100))


async def test_a_workflow_is_seen_as_soon_as_a_row_of_the_owner_starts_it_and_no_longer(house: House) -> None:
    office = house.served.office
    current = office.operator.loaded
    assert current is not None
    ana = office.operator.acting_as(Principal(name="ana", role="operator", owner="ana"))

    async def seen() -> list[str]:
        return [row["name"] for row in (await ana.call("workflows.list"))["items"]]

    def now_starts(workflow: str) -> None:
        part = (trigger("anas", feed="deploys", owner="ana", workflow=workflow),)
        loaded = replace(current, triggers=(TRIGGERS[0], *part, *TRIGGERS[2:]))
        only = ChangedPart(feeds=frozenset(), triggers=frozenset({"anas"}))
        office.operator.use_part(loaded, Definitions(generation="owned", triggers=part, only=only))

    before = await seen()
    now_starts("bobs-flow")
    changed = await seen()
    now_starts("oncall")
    assert (before, changed, await seen()) == (["oncall", "shared"], ["bobs-flow", "shared"], ["oncall", "shared"])


@pytest.mark.parametrize("config", [{"type": ["run.failed"]}, {}, {"workflow": ""}, {"workflow": "bobs-flow"}])
async def test_an_owner_hears_of_no_runs_but_those_of_workflows_that_the_owner_sees(config: Any, house: House) -> None:
    given = {"name": "mine", "provider": "event", "workflow": SAY}
    reply = await house.call("triggers.create", "ana-operator", **given, config=config)
    assert reply.status in (403, 404), reply.body
    made = await house.call("triggers.create", "ana-operator", **given, config={"workflow": "shared"}, enabled=False)
    assert made.status == 201, made.body
    office = house.served.office
    loaded = office.operator.loaded
    assert loaded is not None
    heard = trigger("mine", feed=INTERNAL, owner="ana", workflow="shared", workflow_rev="r2")
    office.operator.loaded = replace(loaded, triggers=(*loaded.triggers, heard))
    edited = await house.call("triggers.edit", "ana-operator", name="mine", config=config)
    assert edited.status in (403, 404), edited.body


async def test_events_of_others_runs_are_not_told_by_a_trigger_that_leaves_them_out(house: House) -> None:
    office = house.served.office
    condition = 'event.workflow == "shared"'
    heard = trigger("mine", feed=INTERNAL, owner="ana", workflow="oncall", condition=condition)
    loaded = office.operator.loaded
    assert loaded is not None
    feeds = (*loaded.feeds, internal_feed())
    office.operator.loaded = replace(loaded, feeds=feeds, triggers=(*loaded.triggers, heard), generation="heard")
    await office.store.open(office.operator.loaded.definitions())
    ended = [
        Event(subject=name, type="run.failed", key=name, data={"workflow": workflow}, occurred_at=office.clock.now())
        for name, workflow in (("run-of-bob", "bobs-flow"), ("run-of-us", "shared"))
    ]
    await office.shows(*ended, feed=INTERNAL)
    ids = {row["key"]: row["id"] for row in await house.rows("events.list", "operator")}
    rows = await house.rows("events.list", "ana-operator")
    assert [row["key"] for row in rows if row["feed_id"] == INTERNAL] == ["run-of-us"]
    statuses = {
        key: (await house.call("events.show", "ana-operator", id=ids[key])).status
        for key in ("run-of-bob", "run-of-us")
    }
    assert statuses == {"run-of-bob": 404, "run-of-us": 200}
    changes: tuple[dict[str, str], ...] = ({}, {"condition": 'event.workflow == "bobs-flow"'})
    for changed in changes:
        tried = await house.call("triggers.backtest", "ana-operator", name="mine", **changed)
        assert (tried.status, b"not counted for an owner" in tried.body) == (403, True), tried.body
        assert (await house.call("triggers.backtest", "operator", name="mine", **changed)).status == 200
    for keys in (("run-of-bob", "xyz"), (f"#{ids['run-of-bob']}", "#123456")):
        told = []
        for key in keys:
            reply = await house.call("triggers.explain", "ana-operator", name="mine", key=quote(key))
            answer = {name: value for name, value in reply.json().items() if name != "request_id"}
            told.append((reply.status, answer.get("stage"), answer.get("detail", "").replace(key, "…")))
        assert told[0] == told[1]
    near = await house.call("triggers.explain", "ana-operator", name="mine", key="run-of-bo")
    assert (near.json()["stage"], b"run-of-bob" in near.body) == ("read", False), near.body
    seen = await house.call("triggers.explain", "ana-operator", name="mine", key="run-of-us")
    assert seen.json()["stage"] not in ("read", "memory"), seen.body
    for operation in ("triggers.bank", "triggers.explain", "triggers.show"):
        told_of = {
            token: (await house.call(operation, token, name="mine")).body for token in ("operator", "ana-operator")
        }
        assert b"run-of-bob" not in told_of["ana-operator"], told_of
        assert (b"run-of-bob" in told_of["operator"]) == (operation != "triggers.show"), told_of
    shown = (await house.call("triggers.show", "ana-operator", name="mine")).json()
    assert [row["failed"] for row in shown["clauses"]] == [0], shown["clauses"]
    draft = {"name": "other", "provider": "event", "config": {"workflow": "shared"}, "workflow": SAY, "hours": 1}
    drafted = (await house.call("triggers.draft", "ana-operator", **draft)).json()
    assert ([row["id"] for row in drafted["dry_run"]["shown"]], drafted["hours"]) == ([ids["run-of-us"]], [])


async def test_an_owner_does_not_have_a_feed_begin_anew_that_triggers_of_others_hear(house: House) -> None:
    store = house.served.office.store
    before = await store.state("deploys")
    for given in ({}, {"yes": True}):
        reply = await house.call("triggers.reset", "ana-operator", name="anas", cursor=True, **given)
        assert (reply.status, "triggers of others" in reply.json()["detail"]) == (409, True)
        assert [name for name in ("bobs", "shared") if name in reply.body.decode()] == []
    after = await store.state("deploys")
    assert (after.memory, after.cursor, after.baselined) == (before.memory, before.cursor, before.baselined)
    assert (await house.call("triggers.reset", "ana-operator", name="anas")).status == 200
    assert (await house.call("triggers.reset", "operator", name="anas", cursor=True, yes=True)).status == 200


async def test_nor_does_the_second_feed_of_a_join_begin_anew(house: House) -> None:
    office = house.served.office
    parts = (Part(name="a", by="event.id"), Part(name="b", by="event.id", feed="deploys"))
    joined = trigger("joins", owner="ana", gather=Join(parts=parts, within=60))
    kept = tuple(one for one in TRIGGERS if one.name not in ("oncall", "anas"))
    office.operator.loaded = replace(office.loaded, triggers=(joined, *kept), generation="joined")
    await office.store.open(office.operator.loaded.definitions())
    for given in ({}, {"yes": True}):
        reply = await house.call("triggers.reset", "ana-operator", name="joins", cursor=True, **given)
        assert (reply.status, "triggers of others" in reply.json()["detail"]) == (409, True), reply.body
    told = (await house.call("triggers.reset", "operator", name="joins", cursor=True)).json()["detail"]
    assert "bobs, shared" in told
    assert (await house.call("triggers.reset", "operator", name="joins", cursor=True, yes=True)).status == 200


async def test_an_event_of_a_feed_of_others_is_not_there_for_whom_explains_it_by_its_id(house: House) -> None:
    office = house.served.office
    parts = (Part(name="a", by="event.id"), Part(name="b", by="event.id", feed="company/incidents"))
    joined = trigger("joins", feed="deploys", owner="bob", gather=Join(parts=parts, within=60))
    office.operator.loaded = replace(office.loaded, triggers=(*TRIGGERS, joined), generation="joined")
    await office.store.open(office.operator.loaded.definitions())
    replies = [await house.call("triggers.explain", "ana-viewer", name="anas", key=f"%23{id}") for id in (1, 7)]
    told = {(one.status, one.json()["detail"][:-1], one.json()["fix"]) for one in replies}
    assert told == {(404, "there is no event #", "See: harken events list")}
    assert (await house.call("triggers.explain", "ana-viewer", name="anas", key="%232")).status == 200
    seen = await house.call("triggers.explain", "viewer", name="anas", key="%231")
    assert (seen.status, "is of feed company/incidents" in seen.json()["detail"]) == (409, True)


async def test_a_feed_that_several_read_is_not_called_like_the_trigger_of_somebody_else(house: House) -> None:
    office = house.served.office
    current = office.operator.loaded
    assert current is not None
    feeds = tuple(
        msgspec.structs.replace(feed, label="bobs" if feed.name == "deploys" else "") for feed in current.feeds
    )
    office.operator.loaded = replace(current, feeds=feeds)
    asked: dict[str, dict[str, Any]] = {
        "triggers.list": {},
        "triggers.show": {"name": "anas"},
        "triggers.explain": {"name": "anas", "key": "nothing"},
        "triggers.bank": {"name": "anas"},
        "events.list": {},
        "events.show": {"id": 2},
        "feeds.list": {},
        "feeds.show": {"name": "anas"},
    }
    for operation, given in asked.items():
        mine, all_of_it = [await house.call(operation, who, **given) for who in ("ana-viewer", "viewer")]
        assert (mine.status, "deploys" in mine.body.decode(), "bobs" in mine.body.decode()) == (200, True, False)
        assert '"bobs"' in all_of_it.body.decode() or "feed bobs" in all_of_it.body.decode(), operation
    ana = office.operator.acting_as(Principal(name="ana", role="viewer", owner="ana"))
    event = await anext(ana.tail(after=1))
    assert event is not None and event["feed"] == "deploys"
    assert (await house.call("feeds.show", "ana-viewer", name="bobs")).status == 404
    assert (await house.call("feeds.show", "viewer", name="bobs")).status == 200


async def test_what_somebody_else_has_starred_stays_starred(house: House) -> None:
    bob = (await house.served.office.operator.call("tokens.create", name="bob", role="operator", owner="bob"))["token"]
    starred = await house.call("events.star", bob, id=2, trigger="bobs", note="for the review")
    others = [
        (await house.call(operation, "ana-operator", id=2, trigger="anas")).status
        for operation in ("events.star", "events.unstar")
    ]
    [kept] = (await house.call("triggers.bank", bob, name="bobs")).json()["starred"]
    again = await house.call("events.star", bob, id=2, trigger="bobs", note="reviewed")
    assert (starred.status, others, kept["star"]["note"], again.status) == (200, [409, 409], "for the review", 200)
    assert (await house.call("events.unstar", bob, id=2, trigger="bobs")).status == 200


async def test_the_steps_of_a_shared_workflow_are_not_edited_by_those_it_is_shared_with(house: House) -> None:
    office = house.served.office
    started = (await house.call("workflows.run", "ana-operator", name="shared")).json()["id"]
    await office.store.cancel(started)
    edit = {"from_step": "x", "step_input": {"url": "https://ana.example"}}
    refused = await house.call("runs.rerun", "ana-operator", id=started, **edit)
    assert (refused.status, "only shared with you" in refused.json()["detail"]) == (403, True)
    plain = await house.call("runs.rerun", "ana-operator", id=started)
    assert plain.status == 200


async def test_the_steps_of_the_operators_workflow_are_not_edited_in_a_run_of_an_owners_trigger(house: House) -> None:
    run = house.things["run", "ana"]
    await house.served.office.store.cancel(run)
    edit = {"from_step": "x", "step_input": {"url": "https://ana.example"}}
    refused = await house.call("runs.rerun", "ana-operator", id=run, **edit)
    assert (refused.status, "its steps stay as they are" in refused.json()["detail"]) == (403, True)
    assert (await house.call("runs.rerun", "operator", id=run, **edit)).status == 404, "it never came to that step"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"channel": "alarm"}, 403),
        ({"steps": [{"id": "a", "action": "notify", "channel": "alarm"}]}, 403),
        ({"workflow": "bobs-flow"}, 404),
        ({"steps": [{"id": "a", "action": "workflow", "workflow": "bobs-flow"}]}, 404),
        ({"workflow": "{{ .event.name }}"}, 403),
    ],
)
async def test_other_parameters_of_a_step_reach_nothing_of_others(given: Any, status: int, house: House) -> None:
    office = house.served.office
    loaded = office.operator.loaded
    assert loaded is not None
    # the workflow of the run is one that a row of hers has brought
    own = (trigger("oncall", owner="ana"), *(one for one in loaded.triggers if one.name != "oncall"))
    alarm = Account(name="alarm", kind="ntfy", credential="ntfy", agents=frozenset({"bob"}))
    office.operator.loaded = replace(loaded, rows={"oncall": "row-7"}, triggers=own, integrations={"alarm": alarm})
    run = house.things["run", "ana"]
    edit = {"id": run, "from_step": "x"}
    refused = await house.call("runs.rerun", "ana-operator", **edit, step_input=given)
    assert (refused.status, refused.json()["code"] in ("forbidden", "not_found")) == (status, True), refused.body
    assert "step x" not in refused.json()["detail"]
    await office.store.cancel(run)
    allowed = await house.call("runs.rerun", "ana-operator", **edit, step_input={"text": "other"})
    assert (allowed.status, "never came to a step x" in allowed.json()["detail"]) == (404, True), allowed.body


FOREIGN_FILTERS = {
    "events.list": 'verdicts.exists(v, v.trigger == "bobs")',
    "runs.list": 'trigger == "bobs"',
    "dead.list": 'trigger == "bobs"',
    "triggers.list": 'name == "bobs"',
}
"""True only for what is bob's: to ana it has to be as if it were true for nothing."""
LISTS = [name for name, permission in ABOUT.items() if permission.thing == "list"]


@pytest.mark.parametrize("operation", LISTS)
async def test_no_list_and_no_cursor_tells_of_others(operation: str, house: House) -> None:
    foreign = {*OTHERS, *(house.things["run", owner] for owner in ("bob", "operator"))} - {"oncall"}
    said: list[str] = []
    cursor = ""
    for _ in range(10):
        given = {"limit": 1, **({"cursor": cursor} if cursor else {})}
        reply = await house.call(operation, "ana-operator", **given)
        assert reply.status == 200, reply.body
        cursor = reply.json()["next"] or ""
        said += [reply.body.decode(), base64.urlsafe_b64decode(f"{cursor}===").decode()]
    assert [name for name in foreign if any(name in text for text in said)] == []


@pytest.mark.parametrize("operation", [name for name in LISTS if "filter" in ROUTES[name].params.values()])
async def test_a_filter_does_not_tell_of_others_not_even_by_how_it_fails(operation: str, house: House) -> None:
    nothing = FOREIGN_FILTERS[operation].replace("bobs", "nobodys")
    for limit in (1, 50):
        asked = [
            {"where": quote(where), "limit": limit}
            for where in (nothing, FOREIGN_FILTERS[operation], f"{FOREIGN_FILTERS[operation]} && 1 / 0 == 1")
        ]
        replies = [await house.call(operation, "ana-operator", **given) for given in asked]
        assert [reply.status for reply in replies] == [200, 200, 200], replies[-1].body
        assert len({reply.body for reply in replies}) == 1, [reply.body for reply in replies]


@pytest.mark.parametrize("operation", [name for name in LISTS if "trigger" in ROUTES[name].params])
async def test_the_trigger_of_another_is_as_unknown_as_one_that_nobody_has(operation: str, house: House) -> None:
    others, missing = [await house.call(operation, "ana-viewer", trigger=name) for name in ("bobs", "bobs0")]
    assert (others.status, missing.status) == (404, 404)
    assert told(others, "n", {"n": "bobs"}) == told(missing, "n", {"n": "bobs0"})


@pytest.mark.parametrize("operation", LISTS)
async def test_a_cursor_that_somebody_else_got_shows_nothing_of_theirs(operation: str, house: House) -> None:
    first = (await house.call(operation, "operator", limit=1)).json()
    reply = await house.call(operation, "ana-operator", cursor=first["next"] or "")
    assert reply.status == 200, reply.body
    assert not {name for name in OTHERS if name != "oncall" and name in reply.body.decode()}


async def test_a_workflow_does_not_tell_whose_triggers_start_it(house: House) -> None:
    shown = (await house.call("workflows.show", "ana-operator", name="oncall")).json()
    listed = {row["name"]: row["triggers"] for row in await house.rows("workflows.list", "ana-operator")}
    assert (shown["triggers"], listed) == (["anas"], {"oncall": ["anas"], "shared": ["shared"]})


async def test_a_key_of_another_owner_whose_token_had_the_same_name_is_a_new_one(house: House) -> None:
    make = house.served.office.operator.call
    answers = []
    for owner, name in (("bob", "bobs"), ("ana", "anas")):
        token = (await make("tokens.create", name="laptop", role="operator", owner=owner))["token"]
        headers = {**JSON, "Idempotency-Key": "k", "Authorization": f"Bearer {token}"}
        answers.append(await house.served.send("POST", "/api/dead/retry", f'{{"trigger": "{name}"}}'.encode(), headers))
        await make("tokens.revoke", id="laptop")
    assert [reply.status for reply in answers] == [200, 200]
    assert "idempotency-replayed" not in answers[1].headers


REBOUND = {"Host": "evil.example", "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}
FOREIGN = {
    "another host": ({"Host": "evil.example"}, 421),
    "a page of a rebound name": (REBOUND, 421),
    "a page elsewhere": ({"Origin": "https://evil.example"}, 403),
    "a page without an origin": ({"Origin": "null"}, 403),
    "a page of another port": ({"Origin": "http://localhost:3000"}, 403),
    "a request of another site": ({"Sec-Fetch-Site": "cross-site"}, 403),
}


@pytest.mark.parametrize("kind", FOREIGN)
async def test_a_foreign_page_reaches_no_operation_whatever_token_it_has(kind: str, house: House) -> None:
    headers, status = FOREIGN[kind]
    bearer = {"Authorization": f"Bearer {house.tokens['admin']}"}
    found = {}
    for route in ROUTES.values():
        path, _ = route.address(dict.fromkeys(route.placed, "1"))
        body = None if route.in_query else b"{}"
        reply = await house.served.send(route.method, path, body, {**JSON, **bearer, **headers})
        found[route.operation] = reply.status
    for path in ("/api/events/tail", "/api/runs/tail", "/api/openapi.json", "/metrics", "/health", "/api/session"):
        method = "POST" if path == "/api/session" else "GET"
        found[path] = (await house.served.send(method, path, b"{}", {**JSON, **bearer, **headers})).status
    assert {name: answered for name, answered in found.items() if answered != status} == {}
