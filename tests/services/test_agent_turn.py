"""One turn of a model per tick: asked on schedule, answered once, delivered however often that takes, and bounded."""

from __future__ import annotations

from pathlib import Path

from harken.services.agent_turn import plugin
from harken.source import Host
from harken.testing import HandClock, VirtualClock, virtual
from tests.services.whole import running
from tests.system.pollers.world import World, world


def ask(it: World, name: str, every: int, config: str) -> None:
    """A job that asks the model every so many seconds and writes to the chat."""
    deliver = "deliver: {channel: telegram, to: '42'}"
    schedule = f"schedule: {{every_secs: {every}}}"
    it.write(f"{{id: {name}, kind: agent_turn, agent: ana, {schedule}, config: {{{config}, {deliver}}}}}")
    with it.directory.joinpath("harken.yaml").open("a") as main:
        main.write("models: {default: echo}\n")


async def test_every_read_is_a_turn_of_its_own(host: Host, clock: HandClock) -> None:
    assert plugin.source is not None and plugin.query is not None
    source = plugin.source(plugin.query(prompt="?"), None, host)
    first = await source.poll(None, clock.now())
    clock.advance(60)
    second = await source.poll(first.cursor, clock.now())
    assert first.events[0].key != second.events[0].key
    assert second.events[0].data["previous"] == first.events[0].data["at"]


@virtual
async def test_a_turn_is_delivered_at_every_tick_and_asked_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        ask(it, "morning", 600, "prompt: 'Say {{.trigger.event.date}}'")
        async with running(tmp_path, clock) as app:
            await clock.sleep(60)
            it.chat.down = True
            await clock.sleep(1_200)
            it.chat.down = False
            await clock.sleep(1_200)
            runs = (await app.operator.call("runs.list", trigger="morning"))["items"]
            shown = [await app.operator.call("runs.show", id=run["id"]) for run in runs]
        assert [len(it.chat.sent), len(runs)] == [5, 5]
        assert all(text.endswith("Say 2026-01-05") for text in it.chat.texts)
        assert max(run["attempt"] for run in runs) > 1
        asked = [step for run in shown for step in run["steps"] if step["path"] == "answer"]
        # a message that went late was not thought of again: its answer is from the time of the tick
        assert [step["attempt"] for step in asked] == [1] * 5
        assert [step["started_at"][:16] for step in asked] == [run["created_at"][:16] for run in runs]


@virtual
async def test_turns_beyond_the_tokens_of_a_day_wait_for_the_next(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        ask(it, "chatty", 60, "prompt: 'Say hello to everybody', tokens_per_day: 10")
        async with running(tmp_path, clock) as app:
            await clock.sleep(1_800)
            runs = (await app.operator.call("runs.list", trigger="chatty", limit=500))["items"]
        assert 0 < len(it.chat.sent) < 10
        assert {run["status"] for run in runs} == {"done", "held"}
