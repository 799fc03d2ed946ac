"""What each kind of step does, on the real store and virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harken.errors import RetryLater
from harken.feed import INTERNAL
from harken.runs import Run
from harken.testing.clock import VirtualClock, virtual
from tests.run.world import do, running_world, steps


def paths(run: Run) -> dict[str, str]:
    return {record.path: record.status for record in run.journal}


def note(text: str, **more: Any) -> dict[str, Any]:
    return do(text, text=text, **more)


@virtual
async def test_a_workflow_without_steps_is_done_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, {}) as world:
        run = await world.end()
        assert (run.status, run.journal, run.output) == ("done", (), None)


@virtual
async def test_steps_see_what_earlier_steps_said(clock: VirtualClock, tmp_path: Path) -> None:
    chain = steps(do("a", n=1), do("b", n="{{.steps.a.response.said}}"), outputs={"last": "{{.steps.b.output.said}}"})
    async with running_world(clock, tmp_path, chain) as world:
        run = await world.end()
        assert world.service.got == [{"n": 1}, {"n": 1}]
        assert run.output == {"last": 2}


@virtual
async def test_a_step_gets_the_same_key_each_time(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a"))) as world:
        world.service.says = [RetryLater("busy")]
        run = await world.end()
        assert world.service.keys == [f"{run.id}:a"] * 2


@virtual
async def test_inputs_are_names_of_their_own(clock: VirtualClock, tmp_path: Path) -> None:
    workflow = steps(do(a="{{.title}}", b="{{.inputs.count}}"), inputs={"title": {"type": "string"}, "count": 7})
    async with running_world(clock, tmp_path, workflow) as world:
        await world.end(title="héllo")
        assert world.service.got == [{"a": "héllo", "b": 7}]


@virtual
async def test_a_missing_required_input_is_a_dead_letter_with_its_name(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do(), inputs=["title"])) as world:
        run = await world.end()
        assert (run.status, "'title' is required" in run.error) == ("dead", True)
        assert world.service.got == []


@virtual
async def test_a_filter_that_says_no_ends_the_run_well(clock: VirtualClock, tmp_path: Path) -> None:
    workflow = steps({"action": "filter", "id": "f", "condition": "inputs.n > 5"}, note("after"))
    async with running_world(clock, tmp_path, workflow) as world:
        run = await world.end(n=3)
        assert (run.status, paths(run), world.service.got) == ("done", {"f": "ok"}, [])
        assert run.journal[0].output["passed"] is False
        assert world.observed == ["started", "filtered"]


@virtual
async def test_a_condition_that_fails_is_not_a_no(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "filter", "condition": "inputs.nothing > 5"})) as world:
        run = await world.end(n=3)
        assert (run.status, "nothing" in run.error) == ("dead", True)


@virtual
async def test_a_step_whose_if_is_false_is_skipped(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(note("a", **{"if": "inputs.go"}), note("b"))) as world:
        run = await world.end(go=False)
        assert paths(run) == {"a": "skipped", "b": "ok"}


@virtual
async def test_if_takes_one_branch_and_later_steps_see_into_it(clock: VirtualClock, tmp_path: Path) -> None:
    choose = {"action": "if", "id": "c", "condition": "inputs.go", "then": [note("yes")], "else": [note("no")]}
    workflow = steps(choose, do("after", saw="{{.steps.no.response.said}}"))
    async with running_world(clock, tmp_path, workflow) as world:
        run = await world.end(go=False)
        assert paths(run) == {"c.else.no": "ok", "c": "ok", "after": "ok"}
        assert world.service.got[1] == {"saw": 1}


@virtual
async def test_if_then_else_may_be_written_short(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"if": "inputs.go", "then": [note("yes")]})) as world:
        await world.end(go=True)
        assert world.service.got == [{"text": "yes"}]


@virtual
async def test_switch_compares_a_value_with_its_cases(clock: VirtualClock, tmp_path: Path) -> None:
    cases = {"low": [note("low")], "2": [note("two")], "true": [note("true")]}
    switch = {"action": "switch", "on": "{{.inputs.level}}", "cases": cases, "default": [note("other")]}
    async with running_world(clock, tmp_path, steps(switch)) as world:
        for level in ("low", 2, True, "high"):
            await world.end(level=level)
        assert [got["text"] for got in world.service.got] == ["low", "two", "true", "other"]


@virtual
async def test_switch_takes_the_first_case_that_holds(clock: VirtualClock, tmp_path: Path) -> None:
    cases = [{"when": "inputs.n > 5", "steps": [note("much")]}, {"when": "inputs.n > 1", "steps": [note("some")]}]
    async with running_world(clock, tmp_path, steps({"action": "switch", "id": "s", "cases": cases})) as world:
        run = await world.end(n=3)
        assert paths(run) == {"s.cases[1].some": "ok", "s": "ok"}


@virtual
async def test_transform_keeps_types(clock: VirtualClock, tmp_path: Path) -> None:
    values = {"n": "{{.inputs.n}}", "tags": ["{{.inputs.tag}}", 1], "text": "<{{.inputs.n}}>"}
    workflow = steps({"action": "transform", "id": "t", "set": values}, outputs={"all": "{{.steps.t.response}}"})
    async with running_world(clock, tmp_path, workflow) as world:
        run = await world.end(n=4, tag="x")
        assert run.output == {"all": {"n": 4, "tags": ["x", 1], "text": "<4>"}}


@virtual
async def test_a_missing_field_in_a_value_is_an_error(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps(do("a", x="{{.inputs.nothing}}"))) as world:
        run = await world.end()
        assert (run.status, run.journal[0].status, world.service.got) == ("dead", "failed", [])


@virtual
async def test_a_missing_field_in_prose_stays_visible_and_warns(clock: VirtualClock, tmp_path: Path) -> None:
    notify = {"action": "notify", "channel": "desk", "to": "me", "text": "Hi {{.inputs.nobody}}"}
    async with running_world(clock, tmp_path, steps(notify)) as world:
        run = await world.end()
        assert world.service.got[0].text == "Hi <no value>"
        assert "nobody" in run.journal[0].warnings[0]


@virtual
async def test_notify_to_an_unknown_channel_is_dead_with_its_name(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "notify", "channel": "pigeon", "text": "x"})) as world:
        run = await world.end()
        assert (run.status, "pigeon" in run.error) == ("dead", True)


@virtual
async def test_foreach_runs_its_steps_for_each_item(clock: VirtualClock, tmp_path: Path) -> None:
    loop = {
        "action": "foreach",
        "id": "each",
        "items": "{{.inputs.names}}",
        "steps": [do("do", x="{{.item}}{{.index}}")],
    }
    async with running_world(clock, tmp_path, steps(loop, outputs={"all": "{{.steps.each.response}}"})) as world:
        run = await world.end(names=["a", "b"])
        assert world.service.got == [{"x": "a0"}, {"x": "b1"}]
        assert paths(run) == {"each[0].do": "ok", "each[1].do": "ok", "each": "ok"}
        assert run.output == {"all": [{"said": 1}, {"said": 2}]}


@virtual
async def test_foreach_works_at_most_so_many_items_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    loop = {"action": "foreach", "items": list(range(7)), "parallel": 3, "steps": [do("do", x="{{.item}}")]}
    async with running_world(clock, tmp_path, steps(loop)) as world:
        world.service.seconds = 1
        run = await world.end()
        assert (run.status, len(world.service.got), world.service.most_at_once) == ("done", 7, 3)


@virtual
async def test_foreach_refuses_more_items_than_allowed(clock: VirtualClock, tmp_path: Path) -> None:
    loop = {"action": "foreach", "items": [1, 2, 3], "max_items": 2, "steps": [do()]}
    async with running_world(clock, tmp_path, steps(loop)) as world:
        run = await world.end()
        assert (run.status, "3 items" in run.error, world.service.got) == ("dead", True, [])


@virtual
async def test_a_filter_in_a_loop_ends_one_round_only(clock: VirtualClock, tmp_path: Path) -> None:
    inner = [{"action": "filter", "condition": "inputs.go"}, do("do")]
    loop = {"action": "foreach", "items": [1, 2], "steps": inner}
    async with running_world(clock, tmp_path, steps(loop, note("after"))) as world:
        await world.end(go=False)
        assert world.service.got == [{"text": "after"}]


@virtual
async def test_branches_run_at_the_same_time(clock: VirtualClock, tmp_path: Path) -> None:
    both = {"action": "parallel", "id": "p", "branches": {"left": [note("a")], "right": [note("b")]}}
    async with running_world(clock, tmp_path, steps(both, outputs={"p": "{{.steps.p.response}}"})) as world:
        world.service.seconds = 2
        run = await world.end()
        assert world.service.most_at_once == 2
        assert paths(run) == {"p.left.a": "ok", "p.right.b": "ok", "p": "ok"}
        assert set(run.output["p"]) == {"left", "right"}


@virtual
async def test_a_failing_branch_lets_the_others_finish(clock: VirtualClock, tmp_path: Path) -> None:
    both = {"action": "parallel", "id": "p", "branches": [[do("a", x="{{.inputs.no}}")], [note("b"), note("c")]]}
    async with running_world(clock, tmp_path, steps(both)) as world:
        world.service.seconds = 1
        run = await world.end()
        assert run.status == "dead"
        assert paths(run) == {"p.0.a": "failed", "p.1.b": "ok", "p.1.c": "ok", "p": "failed"}
        assert run.error.startswith("step p.0.a: ")


@virtual
async def test_emit_commits_an_internal_event_with_the_run(clock: VirtualClock, tmp_path: Path) -> None:
    emit = {"action": "emit", "id": "e", "type": "order.late", "data": {"n": "{{.inputs.n}}"}}
    async with running_world(clock, tmp_path, steps(emit)) as world:
        run = await world.end(n=3)
        page = await world.sqlite.events(feed=INTERNAL)
        assert [(event.type, event.data, event.key) for event in page.items] == [
            ("order.late", {"n": 3}, f"{run.id}:e")
        ]


@virtual
async def test_emit_before_other_steps_is_committed_once(clock: VirtualClock, tmp_path: Path) -> None:
    emit = {"action": "emit", "type": "order.late", "data": {}}
    async with running_world(clock, tmp_path, steps(emit, do("a"), do("b"))) as world:
        world.service.says = [RetryLater("busy")]
        await world.end()
        assert len((await world.sqlite.events(feed=INTERNAL)).items) == 1
        assert len(world.emitted) == 1


@virtual
async def test_the_event_is_there_for_templates(clock: VirtualClock, tmp_path: Path) -> None:
    step = do(a="{{.trigger.event.title}}", b="{{.trigger.name}}", c="{{.trigger.feed}}", d="{{.event.title}}")
    async with running_world(clock, tmp_path, steps(step)) as world:
        answer = await world.push({"title": "🎉"})
        world.worker.nudge()
        await world.until(answer.verdicts[0][0].run_id)
        assert world.service.got == [{"a": "🎉", "b": "main", "c": "inbox", "d": "🎉"}]


@virtual
async def test_echo_returns_the_prompt_and_says_what_it_is(clock: VirtualClock, tmp_path: Path) -> None:
    llm = {"action": "llm", "id": "ask", "prompt": "Sum up {{.inputs.x}}"}
    async with running_world(clock, tmp_path, steps(llm, outputs={"text": "{{.steps.ask.response}}"})) as world:
        run = await world.end(x="this")
        assert run.output["text"].endswith("\nSum up this")
        assert "not a model" in run.output["text"]
        assert run.journal[0].tokens == sum(run.journal[0].output["usage"].values()) > 0


@virtual
async def test_shell_is_off_until_it_is_allowed(clock: VirtualClock, tmp_path: Path) -> None:
    async with running_world(clock, tmp_path, steps({"action": "shell", "command": ["true"]})) as world:
        run = await world.end()
        assert (run.status, "allow_shell" in run.error) == ("dead", True)
