"""What lists and pages about triggers say: stable names, and enough to know what to do next."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import structlog.testing

from harken.config.findings import Finding
from harken.event import Span
from harken.ingest.feed_runtime_state import Late
from harken.operate.output_rows import gaps, plain, shorten
from harken.runs import Again, Dead
from harken.schedule import Cron
from harken.source import Lag
from harken.store import Settlement
from harken.testing import START
from tests.operate.operator_world import POLLED, Office, trigger

LISTED = {
    "name", "type", "status", "reason", "advice", "feed", "integration", "workflow", "interval_seconds", "failures",
    "fired", "last_fired_at", "last_tick_at", "last_read_at", "next_read_at", "paused", "start_line",
}  # fmt: skip
SHOWN = LISTED | {
    "uid", "epoch", "created_at", "schedule", "query", "condition", "mapping", "overlap", "source", "held",
    "held_more", "recent", "identity", "lookback", "cursor", "watermark", "memory", "reads", "last_error",
    "last_error_at", "blocked_until", "calls_left", "coverage", "gaps", "ticks",
}  # fmt: skip


def span(start: int, end: int) -> Span:
    return Span(START + timedelta(hours=start), START + timedelta(hours=end))


async def test_the_names_in_a_list_and_a_page_stay(office: Office) -> None:
    listed = (await office.ask("triggers.list", type="poll"))["items"]
    assert set(listed[0]) >= LISTED
    assert {row["type"] for row in listed} == {"poll"}
    assert set(await office.ask("triggers.show", name="oncall")) >= SHOWN


async def test_a_polled_trigger_says_when_it_was_and_will_be_read(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    row = next(row for row in (await office.ask("triggers.list"))["items"] if row["name"] == "oncall")
    assert (row["status"], row["failures"], row["interval_seconds"]) == ("healthy", 0, 60)
    assert row["last_tick_at"] == row["last_read_at"] < row["next_read_at"]


async def test_a_page_shows_how_far_the_feed_has_come(office: Office) -> None:
    await office.shows(office.incident("INC-1"), office.incident("INC-2"))
    office.clock.advance(7200)
    await office.shows(office.incident("INC-3"))
    shown = await office.ask("triggers.show", name="oncall")
    assert (shown["memory"], shown["reads"], len(shown["coverage"]), len(shown["gaps"])) == (3, 2, 2, 1)
    assert shown["gaps"][0]["start"] == shown["coverage"][0]["end"]
    assert [(tick["result"], tick["new"], "feed" in tick) for tick in shown["ticks"]] == [
        ("events", 1, False),
        ("events", 2, False),
    ]


async def test_the_last_error_stays_on_the_page_with_what_to_do(office: Office) -> None:
    await office.fails("api.example answered 401. Check the token", state="paused", code="attention")
    shown = await office.ask("triggers.show", name="oncall")
    assert (shown["status"], shown["failures"]) == ("paused", 3)
    assert shown["advice"].endswith("It is tried again by itself in 60 s")
    assert shown["next_read_at"] == plain(office.clock.now() + timedelta(seconds=60))
    assert shown["last_error"] == "api.example answered 401. Check the token"
    assert "harken triggers resume oncall" in shown["advice"]
    await office.ask("triggers.reset", name="oncall")
    await office.shows(office.incident("INC-1"))
    after = await office.ask("triggers.show", name="oncall")
    assert (after["status"], after["failures"], after["last_error"]) == ("healthy", 0, shown["last_error"])


async def test_a_failing_trigger_says_how_to_look(office: Office) -> None:
    await office.fails("api.example answered 503")
    assert "harken triggers test oncall" in (await office.ask("triggers.show", name="oncall"))["advice"]


def test_gaps_lie_between_the_spans_whatever_their_order() -> None:
    assert gaps([]) == gaps([span(0, 2)]) == gaps([span(2, 3), span(0, 2)]) == []
    found = gaps([span(4, 5), span(0, 1), span(2, 3)])
    assert [(gap["start"][11:13], gap["end"][11:13]) for gap in found] == [("10", "11"), ("12", "13")]


def test_a_long_cursor_is_shortened_and_says_so() -> None:
    assert shorten(None) == ""
    assert shorten({"tag": 7}) == '{"tag":7}'
    assert shorten("x" * 500) == '"' + "x" * 119 + "… (502 characters)"


def listed(answer: dict[str, Any], name: str = "oncall") -> dict[str, Any]:
    return next(row for row in answer["items"] if row["name"] == name)


async def dies(office: Office, *names: str, reason: str = "chat not found") -> None:
    """Runs of `oncall` that die."""
    for name in names:
        await office.fires(name)
        [claimed] = await office.store.claim("w", 1, 60)
        await office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=Dead(error=reason))])


async def test_a_read_that_waits_for_a_slot_shows_how_late_it_is_and_why(office: Office) -> None:
    await office.shows(office.incident("INC-1"))
    row = next(row for row in (await office.ask("triggers.list"))["items"] if row["name"] == "oncall")
    office.engine.late = {row["feed"]: Late(seconds=30.04, reason="waits for a slot, 4 reads of api.example.org hang")}
    for shown in (
        next(row for row in (await office.ask("triggers.list"))["items"] if row["name"] == "oncall"),
        await office.ask("triggers.show", name="oncall"),
        next(row for row in (await office.ask("status"))["attention"] if row["name"] == "oncall"),
    ):
        assert shown["status"] == "degraded"
        assert shown["reason"] == "its read is 30 s late: it waits for a slot, 4 reads of api.example.org hang"
    assert (await office.ask("triggers.show", name="oncall"))["late_seconds"] == 30.0
    assert row["late_seconds"] == 0.0


async def test_held_runs_are_never_silent(office: Office) -> None:
    await office.shows(*(office.incident(f"INC-{number}") for number in range(120)), first=True)
    row = listed(await office.ask("triggers.list"))
    assert (row["status"], row["held"], row["needs_person"]) == ("degraded", 120, True)
    assert row["reason"] == "120 runs held by the flood guard"
    assert "harken triggers release oncall" in row["advice"]
    shown = await office.ask("triggers.show", name="oncall")
    assert (shown["held"], shown["held_by"]) == (120, {"flood": 120})
    status = await office.ask("status")
    [attention] = [one for one in status["attention"] if one["name"] == "oncall"]
    assert (status["needs_person"], attention["advice"]) == (True, row["advice"])
    [runs] = [check for check in (await office.ask("doctor"))["items"] if check["name"] == "runs"]
    assert (runs["state"], "harken triggers release oncall" in runs["fix"]) == ("warn", True)
    await office.ask("triggers.release", name="oncall")
    assert listed(await office.ask("triggers.list"))["status"] == "healthy"


async def test_a_paused_trigger_says_how_many_runs_it_holds_and_how_to_let_them_go(office: Office) -> None:
    await office.ask("triggers.pause", name="oncall", reason="holiday")
    await office.shows(office.incident("INC-1"), office.incident("INC-2"))
    row = listed(await office.ask("triggers.list"))
    assert (row["status"], row["held"], row["needs_person"]) == ("paused", 2, False)
    assert row["reason"] == "paused by a person: holiday; 2 runs held by the pause"
    assert "harken triggers resume oncall" in row["advice"]
    assert "harken triggers release oncall" in row["advice"]
    assert not (await office.ask("status"))["needs_person"]


async def test_dead_runs_degrade_their_trigger(office: Office) -> None:
    await dies(office, "INC-1", "INC-2")
    row = listed(await office.ask("triggers.list"))
    assert (row["status"], row["dead"]) == ("degraded", 2)
    assert row["reason"] == "2 dead runs, the last with: chat not found"
    assert "harken dead retry --trigger oncall" in row["advice"]
    assert (await office.ask("status"))["needs_person"]
    assert "degraded: 2 dead runs" in (await office.ask("triggers.explain", name="oncall"))["sentence"]
    [runs] = [check for check in (await office.ask("doctor"))["items"] if check["name"] == "runs"]
    assert (runs["state"], runs["message"]) == ("warn", f"oncall: {row['reason']}")


async def test_runs_that_failed_and_wait_for_another_try_degrade_their_trigger(office: Office) -> None:
    await office.fires("INC-1")
    [claimed] = await office.store.claim("w", 1, 60)
    later = office.clock.now() + timedelta(hours=1)
    again = Again(at=later, error="503")
    await office.store.settle([Settlement(id=claimed.id, token=claimed.token, outcome=again)])
    row = listed(await office.ask("triggers.list"))
    assert (row["status"], row["reason"]) == ("degraded", "1 run failed and will be tried again")
    assert not (await office.ask("status"))["needs_person"]


async def test_the_last_refused_webhooks_of_a_path_are_shown_and_explained(office: Office) -> None:
    with structlog.testing.capture_logs():
        office.engine.refusals.note("webhook/deploys", "203.0.113.7", "signature", "the signature is wrong")
    [row] = (await office.ask("triggers.show", name="deploys"))["refused_webhooks"]
    assert set(row) == {"at", "sender", "reason", "message"}
    assert (row["sender"], row["reason"], row["message"]) == ("203.0.113.7", "signature", "the signature is wrong")
    lines = (await office.ask("triggers.explain", name="deploys"))["lines"]
    assert f"    {row['at']} from 203.0.113.7: signature, the signature is wrong" in lines
    assert (await office.ask("triggers.show", name="oncall"))["refused_webhooks"] == []


def wrong(name: str, line: int = 3) -> Finding:
    return Finding(file=f"workflows/{name}.yaml", line=line, column=5, message="there is no action 'trransform'")


async def test_a_workflow_that_is_refused_stays_in_the_list_with_its_place(office: Office) -> None:
    refused = {"workflow:audit": (wrong("audit"),), "file:workflows/torn.yaml": (wrong("torn", 1),)}
    office.operator.loaded = replace(office.loaded, refused=refused)
    answer = await office.ask("triggers.list")
    assert [row["name"] for row in answer["items"]] == ["audit", "deploys", "digest", "oncall", "workflows/torn.yaml"]
    row = listed(answer, "audit")
    assert (row["status"], row["needs_person"]) == ("refused", True)
    assert row["reason"] == "workflows/audit.yaml:3:5: there is no action 'trransform'"
    assert "harken config check" in row["advice"]
    assert listed(answer, "workflows/torn.yaml")["reason"].startswith("workflows/torn.yaml:1:5: ")
    assert set(row) >= LISTED
    assert (await office.ask("status"))["triggers"]["refused"] == 2


async def test_a_trigger_whose_old_version_runs_says_where_the_new_one_is_wrong(office: Office) -> None:
    refused = {"workflow:oncall": (wrong("oncall"),), "file:workflows/deploys.yaml": (wrong("deploys"),)}
    kept = tuple(msgspec.structs.replace(one, source=f"workflows/{one.name}.yaml") for one in office.loaded.triggers)
    office.operator.loaded = replace(office.loaded, refused=refused, triggers=kept)
    answer = await office.ask("triggers.list")
    assert [row["name"] for row in answer["items"]] == ["deploys", "digest", "oncall"]
    for name in ("oncall", "deploys"):
        row = listed(answer, name)
        assert (row["status"], row["needs_person"]) == ("degraded", True)
        assert f"the old version runs, as what is written now is refused: workflows/{name}.yaml:3:5:" in row["reason"]


async def test_what_waits_at_the_broker_is_on_the_page_of_a_trigger(office: Office) -> None:
    shown = await office.ask("triggers.show", name="oncall")
    assert (shown["lag_messages"], shown["lag_seconds"]) == (None, None)
    office.engine.lags[POLLED.name] = Lag(messages=12, seconds=3.0)
    shown = await office.ask("triggers.show", name="oncall")
    assert (shown["lag_messages"], shown["lag_seconds"]) == (12, 3.0)


async def test_a_schedule_says_when_it_fires_first(office: Office) -> None:
    daily = msgspec.structs.replace(POLLED, kind="cron", schedule=Cron(expression="0 6 * * *"))
    office.operator.loaded = replace(office.loaded, feeds=(daily, *office.loaded.feeds[1:]))
    row = listed(await office.ask("triggers.list"))

    assert (row["type"], row["status"]) == ("schedule", "new")
    assert row["next_read_at"].endswith("T06:00:00Z")


async def test_a_page_of_the_list_asks_the_store_only_for_its_own_triggers(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = tuple(trigger(f"t{n:03}") for n in range(40))
    office.operator.loaded = office.loaded = replace(office.loaded, triggers=many)
    await office.store.open(office.loaded.definitions())
    read: list[int] = []
    ask = office.store.triggers

    async def count(**given: Any) -> Any:
        found = await ask(**given)
        read.append(len(found))
        return found

    monkeypatch.setattr(office.store, "triggers", count)
    names, cursor = [], ""
    while True:
        page = await office.ask("triggers.list", limit=7, cursor=cursor)
        names += [row["name"] for row in page["items"]]
        if not page["next"]:
            break
        cursor = page["next"]
    assert names == [one.name for one in many]
    assert max(read) <= 8
    await office.ask("triggers.show", name="t007")
    assert max(read) <= 8


async def test_a_filtered_list_goes_on_until_its_page_is_full(office: Office) -> None:
    many = tuple(trigger(f"t{n:03}", condition="" if n % 10 else "event.a") for n in range(60))
    refused = (Finding(file="w.yaml", line=1, column=1, message="no", fix="", severity="error"),)
    broken = {"workflow:t0345": refused, "workflow:zz": refused}
    office.operator.loaded = office.loaded = replace(office.loaded, triggers=many[::2], refused=broken)
    await office.store.open(office.loaded.definitions())
    office.operator.loaded = replace(office.loaded, triggers=many)
    first = await office.ask("triggers.list", where='status == "refused" || name.endsWith("5")', limit=4)
    second = await office.ask(
        "triggers.list", where='status == "refused" || name.endsWith("5")', limit=9, cursor=first["next"]
    )
    assert [row["name"] for row in first["items"]] == ["t005", "t015", "t025", "t0345"]
    assert [row["name"] for row in second["items"]] == ["t035", "t045", "t055", "zz"]
    assert {row["status"] for row in second["items"]} == {"new", "refused"}
