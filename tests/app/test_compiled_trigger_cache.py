"""What rows compile to is kept beside them: a start compiles only what changed, or what other code has made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harken.config import stored_trigger_compiler
from harken.config.compiled_trigger_cache import code_mark
from harken.config.stored_trigger_compiler import RowCompiler
from harken.operate.load_and_check_configuration import credentials_of
from harken.store import DocumentChange
from harken.store.document_kinds import CHANGES, TRIGGER_FORM, TRIGGER_LOG, TRIGGER_NAME, TRIGGER_ROW
from harken.testing import VirtualClock, virtual
from tests.system.hostile.world import House

FLOW = """\
name: hello
trigger: {schedule: {every: 1h}}
steps:
  - {id: say, action: transform, set: {text: hello}}
"""
MAIN = "feeds: {ticks: {integration: json, query: {url: 'https://news.example/all'}, interval: 24h}}\n"
WITH_ACCOUNT = f"{MAIN}integrations: {{news: {{kind: json}}}}\n"
STEPS = {"steps": [{"id": "say", "action": "transform", "set": {"text": "hi"}}]}
LONG_AGO = "2026-01-01T00:00:00Z"
KINDS: tuple[dict[str, Any], ...] = (
    {"provider": "schedule", "config": {"every": "1h"}, "workflow": STEPS},
    {"provider": "webhook", "config": {"secret": "${secret:hook}"}, "workflow": "hello"},
    {"provider": "feed", "config": "ticks", "condition": "event.n > 1", "workflow": "hello"},
    {"provider": "poll", "config": {"integration": "json", "query": {"url": "https://a.example"}}, "workflow": STEPS},
    {"provider": "api", "config": None, "workflow": STEPS},
    {
        "provider": "feed",
        "config": "ticks",
        "workflow": "hello",
        "options": {
            "gather": {"digest": {"window": "5m", "by": "event.key"}},
            "quiet_hours": {"start": "22:00", "end": "07:00"},
        },
    },
)


def begin(directory: Path, clock: VirtualClock, main: str = MAIN) -> House:
    directory.joinpath("harken.yaml").write_text(main)
    directory.joinpath("workflows").mkdir(exist_ok=True)
    directory.joinpath("workflows/hello.yaml").write_text(FLOW)
    return House(directory, clock)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the rows that are compiled from now on."""
    names: list[str] = []
    compile = RowCompiler.compile

    def count(self: RowCompiler, row: stored_trigger_compiler.TriggerRow, **given: Any) -> Any:
        names.append(row.name)
        return compile(self, row, **given)

    monkeypatch.setattr(RowCompiler, "compile", count)
    yield names


async def put_rows(house: House, rows: dict[str, dict[str, Any]]) -> None:
    """Rows as an older Harken has left them: without forms."""
    changes = []
    for name, given in rows.items():
        value = {"id": f"id-of-{name}", "name": name, "created_at": LONG_AGO, "updated_at": LONG_AGO, **given}
        changes.append(DocumentChange(kind=TRIGGER_ROW, name=value["id"], value=value))
        changes.append(DocumentChange(kind=TRIGGER_NAME, name=name, value=value["id"]))
    changes.append(DocumentChange(kind=TRIGGER_LOG, name=CHANGES, value={"recent": []}))
    await house.app.store.change(changes)


async def forms(house: House) -> dict[str, Any]:
    return {found.name: found.value for found in await house.app.store.documents(TRIGGER_FORM)}


def definitions(house: House) -> dict[str, Any]:
    loaded = house.app.loaded
    return {
        "triggers": {trigger.name: trigger for trigger in loaded.triggers},
        "feeds": {feed.name: feed for feed in loaded.feeds},
        "workflows": dict(loaded.workflows),
        "rows": dict(loaded.rows),
        "secrets": loaded.secrets,
        "references": dict(loaded.references),
        "accounts": {name: account.kind for name, account in loaded.integrations.items()},
    }


@virtual
async def test_a_start_takes_what_was_compiled_before_and_it_is_the_same(
    clock: VirtualClock, tmp_path: Path, compiled: list[str]
) -> None:
    house = begin(tmp_path, clock)
    credentials_of(tmp_path).store_secret("hook", "the-secret-of-the-hook")
    await house.up()
    await put_rows(house, {f"row{number}": given for number, given in enumerate(KINDS)})
    await house.down()
    await house.up()
    assert sorted(compiled) == [f"row{number}" for number in range(len(KINDS))]
    before = definitions(house)
    await house.down()
    compiled.clear()
    await house.up()
    assert compiled == []
    assert definitions(house) == before
    assert "the-secret-of-the-hook" not in f"{await forms(house)}"
    queries = house.app.loaded.queries
    assert {"webhook/generic/row1", "ticks"} <= set(queries)
    # the first use of a source compiles its row, with the secret
    assert queries["webhook/generic/row1"].secret.get_secret_value() == "the-secret-of-the-hook"  # type: ignore[attr-defined]
    assert compiled == ["row1"]
    await house.down()


@virtual
async def test_what_many_forms_have_in_common_is_in_memory_once(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    credentials_of(tmp_path).store_secret("hook", "the-secret-of-the-hook")
    await house.up()
    await put_rows(house, {f"row{number}": KINDS[1] for number in range(2)})
    await put_rows(house, {"own": KINDS[0]})
    await house.down()
    await house.up()
    before = definitions(house)
    await house.down()
    await house.up()
    assert definitions(house) == before
    triggers, feeds = before["triggers"], definitions(house)["feeds"]
    restored = {trigger.name: trigger for trigger in house.app.loaded.triggers}
    assert feeds["webhook/generic/row0"].query is feeds["webhook/generic/row1"].query
    assert restored["row0"].workflow_rev is restored["row1"].workflow_rev
    assert restored["row0"].feed is feeds["webhook/generic/row0"].name
    assert restored["own"].workflow is restored["own"].name
    assert (triggers["own"].workflow_rev, triggers["own"].routes) == (restored["own"].workflow_rev, {})
    await house.down()


@virtual
async def test_a_change_compiles_one_row_however_many_there_are(
    clock: VirtualClock, tmp_path: Path, compiled: list[str]
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await put_rows(house, {f"row{number}": KINDS[number % 2 * 2] for number in range(50)})
    await house.down()
    await house.up()
    compiled.clear()
    await house.ask("triggers.edit", name="row7", condition="event.n == 7", match="*")
    await house.ask("triggers.create", name="new", **KINDS[0])
    assert set(compiled) == {"row7", "new"}
    compiled.clear()
    await house.down()
    await house.up()
    assert compiled == []
    triggers = {trigger.name: trigger for trigger in house.app.loaded.triggers}
    assert (triggers["row7"].condition, len(triggers)) == ("event.n == 7", 52)
    await house.down()


@virtual
async def test_what_other_code_has_compiled_is_compiled_again(
    clock: VirtualClock, tmp_path: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await put_rows(house, {"one": KINDS[0], "two": KINDS[2]})
    await house.down()
    await house.up()
    old = await forms(house)
    await house.down()
    compiled.clear()
    monkeypatch.setattr("harken.config.compiled_trigger_cache.code_mark", lambda: "another")
    await house.up()
    assert sorted(compiled) == ["one", "two"]
    marks = {value["mark"].split("-")[0] for value in (await forms(house)).values()}
    assert marks == {"another"} != {value["mark"].split("-")[0] for value in old.values()} == {code_mark()}
    await house.down()


@pytest.mark.parametrize(
    ("main", "again"),
    [
        (WITH_ACCOUNT.replace("24h", "12h"), {"listens"}),
        (WITH_ACCOUNT.replace("{kind: json}", "{kind: json, rate_limit: 3}"), {"reads"}),
        (WITH_ACCOUNT.replace("{news:", "{other: {kind: json}, news:"), set()),
    ],
)
@virtual
async def test_a_row_is_compiled_again_when_what_it_names_in_the_files_has_changed(
    clock: VirtualClock, tmp_path: Path, compiled: list[str], main: str, again: set[str]
) -> None:
    house = begin(tmp_path, clock, WITH_ACCOUNT)
    await house.up()
    reads = {**KINDS[3], "config": {"integration": "news", "query": {"url": "https://a.example"}}}
    await put_rows(house, {"listens": KINDS[2], "reads": reads, "alone": KINDS[0]})
    await house.down()
    await house.up()
    await house.down()
    compiled.clear()
    tmp_path.joinpath("harken.yaml").write_text(main)
    await house.up()
    assert set(compiled) == again
    assert {"listens", "reads", "alone"} <= {trigger.name for trigger in house.app.loaded.triggers}
    await house.down()


@virtual
async def test_one_bad_row_is_told_and_the_others_work(
    clock: VirtualClock, tmp_path: Path, compiled: list[str]
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    bad = {**KINDS[0], "config": {"every": "1h", "tzz": "UTC"}}
    gone = {**KINDS[1], "config": {"secret": "${secret:nobody}"}}
    await put_rows(house, {"bad": bad, "gone": gone, "good": KINDS[0]})
    await house.down()
    for _ in range(2):
        await house.up()
        refused = house.app.loaded.refused
        assert set(refused) == {"row:bad", "row:gone"}
        assert [found.line for found in refused["row:bad"]] == [5]
        assert "good" in {trigger.name for trigger in house.app.loaded.triggers}
        assert set(await forms(house)) == {"id-of-good"}
        await house.down()


@virtual
async def test_a_form_that_says_nonsense_is_compiled_again(
    clock: VirtualClock, tmp_path: Path, compiled: list[str]
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await put_rows(house, {"one": KINDS[0]})
    await house.down()
    await house.up()
    [(id, value)] = (await forms(house)).items()
    await house.app.store.put(TRIGGER_FORM, id, {**value, "trigger": 7})
    await house.app.store.put(TRIGGER_FORM, "of-nobody", value)
    await house.down()
    compiled.clear()
    await house.up()
    assert compiled == ["one"]
    assert await forms(house) == {id: value}
    await house.down()


@virtual
async def test_a_secret_that_is_written_openly_into_a_row_is_not_copied(clock: VirtualClock, tmp_path: Path) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await put_rows(house, {"hook": {**KINDS[1], "config": {"secret": "openly-written-7"}}})
    await house.down()
    await house.up()
    assert await forms(house) == {}
    assert "openly-written-7" in house.app.loaded.secrets
    await house.down()


@virtual
async def test_the_source_of_a_row_is_built_when_it_is_needed(
    clock: VirtualClock, tmp_path: Path, compiled: list[str]
) -> None:
    house = begin(tmp_path, clock)
    await house.up()
    await put_rows(house, {f"hourly{number}": KINDS[0] for number in range(5)})
    await house.down()
    await house.up()
    compiled.clear()
    await house.down()
    await house.up()
    # the first of a kind shows what sources of this kind can do
    assert len(compiled) <= 1
    await asyncio.sleep(2 * 3600)
    assert len(compiled) >= 5
    done = (await house.ask("runs.list", status="done", limit=200))["items"]
    assert {row["workflow"] for row in done} >= {f"hourly{number}" for number in range(5)}
    await house.down()


def test_everything_of_a_form_survives_the_store() -> None:
    from harken.config.compiled_trigger_cache import RowForm, read_form, to_document
    from harken.feed import Debounce, Feed, Trigger
    from harken.schedule import Cron

    form = RowForm(
        mark="m",
        depends="d",
        trigger=Trigger(name="a", feed="f", workflow="w", workflow_rev="r", gather=Debounce(window=3.0), types=("x",)),
        feed=Feed(name="f", kind="cron", integration="cron", schedule=Cron(expression="* * * * *"), backoff=(1.0, 2.0)),
    )
    stored = msgspec.json.encode(to_document(form))
    assert read_form(stored, "m") == form
    assert read_form(stored, "other") is None
    assert read_form(b'{"mark": "m"}', "m") is None
    assert b"overlap" not in stored
