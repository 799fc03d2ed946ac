"""A rerun that begins with a later step: what was done before is taken from the old run, on a real worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.config.loaded import Loaded
from harken.config.settings import Settings
from harken.errors import Forbidden, HarkenError, Malformed, NotFound, Refused
from harken.feed import Trigger
from harken.operate.operator import Operator
from harken.operate.principal import Principal
from harken.runs import Run, Workflow
from harken.store.document_kinds import WORKFLOW
from harken.testing.clock import VirtualClock, virtual
from tests.run.world import World, do, running_world, steps

FLOW = steps(
    do("look", what="{{ event.id }}"),
    {"id": "choose", "if": "steps.look.response.said > 0", "then": [do("page", n=1), do("call", n=2)]},
    do("post", text="{{ steps.look.response.said }} for {{ event.id }}"),
    do("tell", text="{{ steps.post.response.said }}"),
)


def desk(world: World, path: Path, current: Mapping[str, Any] | None = None) -> Operator:
    """The operations beside the worker; `current` is what the workflow is by now, as revision main@2."""
    flow = Workflow(name="main", rev="main@2" if current else "main@1", definition=current or FLOW)
    loaded = Loaded(directory=path, settings=Settings(), store="", workflows={"main": flow})
    return Operator(world.sqlite, None, loaded, world.clock)


async def first_run(world: World) -> Run:
    await world.push({"id": "A"})
    world.worker.nudge()
    return await world.until((await world.sqlite.runs(limit=1)).items[0].id)


async def again(world: World, operator: Operator, run: Run, **params: Any) -> tuple[Any, Run]:
    answer = await operator.call("runs.rerun", id=run.id, **params)
    world.worker.nudge()
    return answer, await world.until(answer["id"])


def origins(run: Run) -> dict[str, str]:
    return {record.path: record.from_run for record in run.journal}


@virtual
async def test_steps_before_are_not_done_again_and_keep_their_origin(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, FLOW) as world:
        old = await first_run(world)
        assert len(world.service.got) == 5
        answer, new = await again(world, desk(world, tmp_path), old, from_step="post")
        assert [what["text"] for what in world.service.got[5:]] == ["1 for A", 6]
        assert answer["taken"] == ["look", "choose.then.page", "choose.then.call", "choose"]
        assert (answer["from_step"], answer["replay_of"], answer["workflow_rev"]) == ("post", old.id, "main@1")
        taken = dict.fromkeys(answer["taken"], old.id)
        assert origins(new) == {**taken, "post": "", "tell": ""}
        assert (new.status, old.id != new.id) == ("done", True)
        once_more, third = await again(world, desk(world, tmp_path), new, from_step="tell")
        assert origins(third) == {**taken, "post": new.id, "tell": ""}
        assert world.service.got[7:] == [{"text": 6}]
        shown = await desk(world, tmp_path).call("runs.show", id=third.id)
        assert [step["from_run"] for step in shown["steps"]] == [*[old.id] * 4, new.id, ""]
        assert once_more["replay_of"] == new.id


@virtual
async def test_a_step_inside_another_one_may_be_the_first(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, FLOW) as world:
        old = await first_run(world)
        answer, new = await again(
            world, desk(world, tmp_path), old, from_step="choose.then.call", step_input={"n": 7, "more": ["x"]}
        )
        assert answer["taken"] == ["look", "choose.then.page"]
        assert world.service.got[5:7] == [{"n": 7, "more": ["x"]}, {"text": "1 for A"}]
        assert new.status == "done"


@virtual
async def test_an_edited_step_gets_exactly_what_was_given(clock: VirtualClock, tmp_path: Path) -> None:
    text = 'say {{ event.id }} and ${secret:OPS} "now"\\ {\n}'
    async with running_world(clock, tmp_path, FLOW) as world:
        old = await first_run(world)
        operator = desk(world, tmp_path)
        answer, new = await again(world, operator, old, from_step="post", step_input={"text": text, "n": [1, None]})
        assert world.service.got[5] == {"text": text, "n": [1, None]}
        assert answer["workflow_rev"] not in ("main@1", "main@2")
        assert (answer["began_with"], answer["current_rev"]) == ("main@1", "main@1")
        same, _ = await again(world, operator, old, from_step="post", step_input={"text": text, "n": [1, None]})
        assert same["workflow_rev"] == new.workflow_rev
        assert len(await world.sqlite.documents(WORKFLOW)) == 2
        assert await world.sqlite.check() == []


@virtual
async def test_the_current_revision_is_used_where_what_came_before_is_the_same(
    clock: VirtualClock, tmp_path: Path
) -> None:
    changed = msgspec.json.decode(msgspec.json.encode(FLOW))
    changed["steps"][2]["text"] = "corrected"
    async with running_world(clock, tmp_path, FLOW) as world:
        old = await first_run(world)
        value = {"name": "main", "definition": changed}
        await world.sqlite.put(WORKFLOW, "main@2", value)
        answer, _ = await again(world, desk(world, tmp_path, changed), old, from_step="post", latest=True)
        assert (answer["workflow_rev"], answer["began_with"], answer["current_rev"]) == ("main@2", "main@1", "main@2")
        assert world.service.got[5] == {"text": "corrected"}
        _, same = await again(world, desk(world, tmp_path, changed), old, from_step="post")
        assert (same.workflow_rev, world.service.got[7]) == ("main@1", {"text": "1 for A"})


@virtual
async def test_what_would_do_earlier_steps_now_is_refused(clock: VirtualClock, tmp_path: Path) -> None:
    renamed, inside = (msgspec.json.decode(msgspec.json.encode(FLOW)) for _ in range(2))
    renamed["steps"][0]["id"] = "see"
    inside["steps"][1]["then"].append(do("third"))
    each = steps({"id": "each", "action": "foreach", "items": [1, 2], "steps": [do("one", n="{{ item }}")]})
    async with running_world(clock, tmp_path, FLOW, workflows={"each": each}) as world:
        old = await first_run(world)
        loop = await world.end("each")
        calls: dict[str, tuple[type[HarkenError], Any, str, dict[str, Any]]] = {
            "the run has not done it": (Refused, renamed, old.id, {"from_step": "post", "latest": True}),
            "other steps inside": (Refused, inside, old.id, {"from_step": "post", "latest": True}),
            "is another one in revision": (Refused, inside, old.id, {"from_step": "choose.then.call", "latest": True}),
            "never came to a step nope": (NotFound, None, old.id, {"from_step": "nope"}),
            "needs from_step": (Malformed, None, old.id, {"step_input": {"text": "x"}}),
            "with the input as it was": (Malformed, None, old.id, {"from_step": "post", "input": {"a": 1}}),
            "on_error is not an input": (Refused, None, old.id, {"from_step": "post", "step_input": {"on_error": "x"}}),
            "done for each item": (Refused, None, loop.id, {"from_step": "each[1].one", "step_input": {"n": 3}}),
        }
        before = len(world.service.got)
        for message, (kind, current, id, params) in calls.items():
            with pytest.raises(kind, match=message):
                await desk(world, tmp_path, current).call("runs.rerun", id=id, **params)
        assert len((await world.sqlite.runs()).items) == 2
        assert len(world.service.got) == before


@virtual
async def test_a_loop_goes_on_with_the_item_that_is_named(clock: VirtualClock, tmp_path: Path) -> None:
    loop = steps({"id": "each", "action": "foreach", "items": [1, 2, 3], "steps": [do("one", n="{{ item }}")]})
    async with running_world(clock, tmp_path, loop) as world:
        world.service.seconds = 1.0
        old = await world.end()
        answer, new = await again(world, desk(world, tmp_path, loop), old, from_step="each[1].one")
        assert answer["taken"] == ["each[0].one"]
        assert [what["n"] for what in world.service.got] == [1, 2, 3, 2, 3]
        assert new.status == "done"


@virtual
async def test_a_run_that_failed_goes_on_at_the_step_that_failed(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, FLOW) as world:
        world.service.says = [{"said": 1}, {}, {}, Refused("no such room")]
        old = await first_run(world)
        assert (old.status, old.journal[-1].path) == ("dead", "post")
        _, new = await again(world, desk(world, tmp_path), old, from_step="post", step_input={"text": "mended"})
        assert (new.status, world.service.got[4]) == ("done", {"text": "mended"})


def desk_of_ana(world: World, path: Path, current: Mapping[str, Any] | None = None) -> Operator:
    """The same for the token of Ana, whose row has brought the workflow."""
    operator = desk(world, path, current)
    assert operator.loaded is not None
    main = Trigger(name="main", feed="inbox", workflow="main", workflow_rev="main@1", owner="ana")
    operator.loaded = replace(operator.loaded, rows={"main": "row-1"}, triggers=(main,))
    return operator.acting_as(Principal(name="ana", role="operator", owner="ana"))


NOTIFY = {"id": "say", "action": "notify", "channel": "desk", "text": "hi"}


@pytest.mark.parametrize(
    "edit",
    [
        {"then": [NOTIFY]},
        {"otherwise": [{"action": "alarm.post"}]},
        {"then": [{"action": "workflow", "name": "bobs-flow"}]},
        {"else": [{"type": "foreach", "items": [1], "steps": [{"type": "workflow", "workflow": "bobs-flow"}]}]},
    ],
)
@virtual
async def test_steps_inside_of_an_edited_one_reach_nothing_of_others(
    clock: VirtualClock, tmp_path: Path, edit: dict[str, Any]
) -> None:
    async with running_world(clock, tmp_path, FLOW) as world:
        old = await first_run(world)
        ana = desk_of_ana(world, tmp_path)
        with pytest.raises((Forbidden, NotFound)) as refused:
            await ana.call("runs.rerun", id=old.id, from_step="choose", step_input=edit)
        assert "never came" not in refused.value.message
        assert len(await world.sqlite.documents(WORKFLOW)) == 1
        await again(world, desk(world, tmp_path), old, from_step="choose", step_input=edit)
        _, new = await again(world, ana, old, from_step="choose", step_input={"then": [do("page", n=3)]})
        assert new.status == "done"


@virtual
async def test_an_owner_edits_no_steps_that_have_a_secret_of_the_operators(clock: VirtualClock, tmp_path: Path) -> None:
    secret, own = (
        steps(*FLOW["steps"][:3], do("tell", text=f"${{secret:{name}}}")) for name in ("OPS", "trigger-row-1-x")
    )
    edit: dict[str, Any] = {"from_step": "tell", "step_input": {"to": "mine"}, "latest": True}
    async with running_world(clock, tmp_path, FLOW) as world:
        old = await first_run(world)
        with pytest.raises(Forbidden, match="may not use the secret OPS"):
            await desk_of_ana(world, tmp_path, secret).call("runs.rerun", id=old.id, **edit)
        await desk_of_ana(world, tmp_path, own).call("runs.rerun", id=old.id, **edit)


@virtual
async def test_an_owner_edits_no_steps_but_those_that_the_trigger_has_now(clock: VirtualClock, tmp_path: Path) -> None:
    current = {"steps": [*FLOW["steps"][:3], do("tell", text="other")]}
    async with running_world(clock, tmp_path, FLOW) as world:
        old = await first_run(world)
        ana = desk_of_ana(world, tmp_path, current)
        edit = {"from_step": "tell", "step_input": {"text": "mine"}}
        with pytest.raises(Forbidden, match="not those that your trigger has now"):
            await ana.call("runs.rerun", id=old.id, **edit)
        _, new = await again(world, ana, old, **edit, latest=True)
        assert (new.status, world.service.got[-1]) == ("done", {"text": "mine"})
        await again(world, desk(world, tmp_path, current), old, **edit)
