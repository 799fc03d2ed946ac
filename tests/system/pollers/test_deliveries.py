"""Deliveries are runs: retried while the other side is down, never lost with the cursor, and never sent twice."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from harken.app import App
from harken.testing import VirtualClock, virtual
from tests.services.whole import running
from tests.system.pollers.world import CHAT, world
from tests.timings import LONG_NAPS

HOUR = 3_600.0


async def statuses(app: App, job: str = "watch") -> list[str]:
    runs: list[Any] = (await app.operator.call("runs.list", trigger=job, limit=500))["items"]
    return sorted(run["status"] for run in runs)


@virtual
async def test_what_appears_after_the_first_read_is_delivered_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job())
        it.listing.add("old", age=60)
        async with running(tmp_path, clock, timings=LONG_NAPS):
            await clock.sleep(120)
            it.listing.add("a", title="{json} 🚨")
            it.listing.add("b")
            await clock.sleep(10 * 60)
        assert sorted(it.chat.texts) == ["new a", "new b"]


@virtual
async def test_a_message_may_have_templates_beside_fields_and_neither_looks_into_values(
    clock: VirtualClock, tmp_path: Path
) -> None:
    template = '{id}: {{.trigger.event.title}}{{if eq .trigger.event.id "a"}} ({title}){{end}} {none}'
    async with world(clock, tmp_path) as it:
        it.write(it.job().replace("new {id}", template))
        async with running(tmp_path, clock, timings=LONG_NAPS):
            await clock.sleep(120)
            it.listing.add("a", title="{id} {{.run.id}}")
            await clock.sleep(120)
        assert it.chat.texts == ["a: {id} {{.run.id}} ({id} {{.run.id}}) {none}"]


@virtual
async def test_a_field_between_more_braces_stays_a_field(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job().replace("new {id}", "{{id}} {{ id }} {json-free}"))
        async with running(tmp_path, clock, timings=LONG_NAPS):
            await clock.sleep(120)
            it.listing.add("a")
            await clock.sleep(120)
        assert it.chat.texts == ["{a} {{ id }} {json-free}"]


@virtual
async def test_a_secret_in_where_and_what_to_say_is_used_and_kept_nowhere(clock: VirtualClock, tmp_path: Path) -> None:
    word = "w0rd-Zq9x7Lm2Vb4c"
    tmp_path.joinpath("chat.key").write_text(f"{CHAT}")
    tmp_path.joinpath("word.key").write_text(word)
    async with world(clock, tmp_path) as it:
        it.write(it.job().replace(f"to: '{CHAT}'", "to: '${file:chat.key}'").replace("{id}", "{id} ${file:word.key}"))
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(120)
            it.listing.add("a")
            await clock.sleep(120)
            shown = await app.operator.call("pollers.show", id="watch")
        assert it.chat.sent == [(CHAT, f"new a {word}")]
    config = shown["settings"]["config"]
    assert (config["deliver"]["to"], config["message_template"]) == ("${file:chat.key}", "new {id} ${file:word.key}")
    assert [file.name for file in tmp_path.iterdir() if word.encode() in file.read_bytes()] == ["word.key"]


@virtual
async def test_a_delivery_that_is_down_for_an_hour_loses_and_doubles_nothing(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job())
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(120)
            it.chat.down = True
            for number in range(30):
                it.listing.add(f"n{number}")
                await clock.sleep(60)
            await clock.sleep(HOUR / 4)
            assert (it.chat.texts, set(await statuses(app))) == ([], {"ready"})
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(HOUR / 4)
            it.chat.down = False
            await clock.sleep(HOUR / 2)
            assert await statuses(app) == ["done"] * 30
        assert sorted(it.chat.texts) == sorted(f"new n{number}" for number in range(30))


@virtual
async def test_a_delivery_becomes_a_dead_letter_only_after_all_its_tries(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job())
        it.chat.down = True
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(120)
            it.listing.add("a")
            await clock.sleep(3.9 * HOUR)
            assert await statuses(app) == ["ready"]
            await clock.sleep(4 * HOUR)
            assert await statuses(app) == ["dead"]
            it.chat.down = False
            [run] = (await app.operator.call("runs.list", trigger="watch"))["items"]
            await app.operator.call("runs.retry", id=run["id"])
            await clock.sleep(60)
        assert it.chat.texts == ["new a"]


@virtual
async def test_a_refused_message_is_a_dead_letter_at_once_and_the_others_go(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job(), it.job("nobody").replace("'42'", "'7'"))
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(120)
            it.listing.add("a")
            await clock.sleep(120)
            assert (await statuses(app), await statuses(app, "nobody")) == (["done"], ["dead"])


@virtual
async def test_dead_retry_sends_to_the_corrected_chat(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job().replace("'42'", "'7'"))
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(120)
            it.listing.add("a")
            await clock.sleep(120)
            assert await statuses(app) == ["dead"]
            it.write(it.job())
            await app.operator.call("reload")
            answer = await app.operator.call("dead.retry_all", trigger="watch")
            [tried] = answer["items"]
            assert (tried["chosen_because"], tried["workflow_rev"]) == ("cannot_work", tried["current_rev"])
            assert tried["began_with"] != tried["workflow_rev"]
            await clock.sleep(60)
            assert await statuses(app) == ["done"]
        assert it.chat.sent == [(42, "new a")]


@virtual
async def test_max_per_tick_spaces_500_items_and_loses_none(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job(config=", max_per_tick: 20, dispatch_delay_ms: 1000"))
        async with running(tmp_path, clock, timings=LONG_NAPS):
            await clock.sleep(120)
            for number in range(500):
                it.listing.add(f"n{number}")
            await clock.sleep(61)
            assert len(it.chat.sent) <= 41
            await clock.sleep(25 * 60)
        assert sorted(it.chat.texts) == sorted(f"new n{number}" for number in range(500))
        times = sorted(seen.at for seen in it.chat.seen)
        assert min(later - earlier for earlier, later in pairwise(times)) > 0.9


@virtual
async def test_messages_of_different_reads_keep_their_distance_too(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job(schedule="{every_secs: 1}", config=", max_per_tick: 2, dispatch_delay_ms: 5000"))
        async with running(tmp_path, clock, timings=LONG_NAPS):
            await clock.sleep(5)
            for number in range(6):
                it.listing.add(f"n{number}")
                await clock.sleep(2)
            await clock.sleep(60)
            it.listing.add("alone")
            began = clock.time()
            await clock.sleep(3)
        assert it.chat.texts == [*(f"new n{number}" for number in range(6)), "new alone"]
        times = [seen.at for seen in it.chat.seen]
        assert min(later - earlier for earlier, later in pairwise(times)) > 4.9
        assert times[-1] - began < 2.5


@virtual
async def test_an_unknown_placeholder_stays_visible_and_warns(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job().replace("new {id}", "{titel}: {id}"))
        async with running(tmp_path, clock, timings=LONG_NAPS) as app:
            await clock.sleep(120)
            it.listing.add("a")
            await clock.sleep(120)
            [run] = (await app.operator.call("runs.list", trigger="watch"))["items"]
            shown = await app.operator.call("runs.show", id=run["id"])
        assert it.chat.texts == ["{titel}: a"]
        assert "the message has no value for {titel}" in str(shown)


@virtual
async def test_a_first_read_may_deliver_the_newest(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job(config=", first: deliver, max_per_tick: 2"))
        for number in range(5):
            it.listing.add(f"n{number}", age=100 - number)
        async with running(tmp_path, clock, timings=LONG_NAPS):
            await clock.sleep(10 * 60)
        assert sorted(it.chat.texts) == ["new n3", "new n4"]


@virtual
async def test_a_first_read_may_deliver_all(clock: VirtualClock, tmp_path: Path) -> None:
    async with world(clock, tmp_path) as it:
        it.write(it.job(config=", first: all, max_per_tick: 2"))
        for number in range(5):
            it.listing.add(f"n{number}", age=100_000)
        async with running(tmp_path, clock, timings=LONG_NAPS):
            await clock.sleep(10 * 60)
            it.listing.add("late", age=900_000)
            await clock.sleep(10 * 60)
        assert sorted(it.chat.texts) == ["new late", *(f"new n{number}" for number in range(5))]
