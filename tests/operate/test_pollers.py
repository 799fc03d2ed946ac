"""What every door says about a job and does with it, on a whole engine on virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent

import pytest

from harken.errors import CursorExpired, Misconfigured, NotFound, Refused
from harken.testing import START, VirtualClock, virtual
from tests.operate.counting_service import busy, locked, readings
from tests.operate.poller_jobs import at_work, job, metered

FIELDS = [
    "id", "kind", "agent", "paused", "last_run_at_ms", "next_run_at_ms", "last_status", "last_error",
    "consecutive_errors", "items_seen_total", "items_dispatched_total",
]  # fmt: skip
BEGIN = round(START.timestamp() * 1000)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with metered(tmp_path, monkeypatch) as made:
        yield made


@virtual
async def test_a_job_says_when_it_was_and_will_be_read_and_what_came_of_it(
    directory: Path, clock: VirtualClock
) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        assert list((await agency.pollers.list())[0]) == FIELDS
        await clock.sleep(130)
        assert (await agency.rows())["one"] == {
            "id": "one",
            "kind": "meter",
            "agent": "ana",
            "paused": False,
            "last_run_at_ms": pytest.approx(BEGIN + 120_500, abs=10),
            "next_run_at_ms": pytest.approx(BEGIN + 180_000, abs=10),
            "last_status": "ok",
            "last_error": None,
            "consecutive_errors": 0,
            "items_seen_total": 3,
            "items_dispatched_total": 3,
        }


@virtual
async def test_the_totals_outlive_restarts_resets_and_what_retention_deletes(
    directory: Path, clock: VirtualClock
) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        await clock.sleep(130)
        await agency.down()
        await agency.up()
        await clock.sleep(60)
        await agency.pollers.reset("one")
        await clock.sleep(1)
        await agency.app.store.prune(events=0, ticks=0, runs=0, pushed=0, audit=0)
        row = (await agency.rows())["one"]
    # after the reset it shows its first item again, which is new to a feed that has forgotten it
    assert (row["items_seen_total"], row["items_dispatched_total"]) == (5, 5)
    assert sum(readings.delivered.values()) == 5


@virtual
async def test_what_could_not_be_delivered_was_seen_and_not_dispatched(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        readings.shut = locked()
        await clock.sleep(10)
        row = (await agency.rows())["one"]
    assert (row["items_seen_total"], row["items_dispatched_total"]) == (1, 0)


@virtual
async def test_the_page_of_a_job_has_every_setting_with_its_default(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        shown = await agency.pollers.show("one")
    settings = shown["settings"]
    assert (settings["schedule"], settings["failure_to"]) == ({"every_secs": 60.0, "stagger_jitter_ms": 0}, None)
    assert (settings["id"], settings["kind"], settings["agent"]) == ("one", "meter", "ana")
    assert settings["paused_on_boot"] is False
    defaults = {
        "name": "one",
        "every": 1,
        "message_template": "{value}",
        "max_per_tick": 20,
        "dispatch_delay_ms": 0,
        "first": "all",
        "deliver": {"channel": "meter", "to": "me"},
    }
    assert settings["config"].items() >= defaults.items()
    assert (shown["breaker"], shown["feed"], shown["file"]) == ("closed", "poller/one", "pollers.yaml")
    unset = ("paused_reason", "breaker_until_ms", "alert_cooldown_until_ms")
    assert ([shown[name] for name in unset], shown["refused"]) == ([None, None, None], [])


@virtual
async def test_failures_are_transient_until_the_breaker_opens_and_lets_one_through(
    directory: Path, clock: VirtualClock
) -> None:
    readings.down["one"] = busy()
    async with at_work(directory, clock, job("one", schedule="{every_secs: 1}")) as agency:
        await clock.sleep(1)
        row = (await agency.rows())["one"]
        assert (row["last_status"], row["consecutive_errors"]) == ("transient", 1)
        assert (row["last_error"], row["paused"]) == ("meter.example answered 503", False)
        closed = await agency.pollers.show("one")
        assert (closed["breaker"], closed["breaker_until_ms"]) == ("closed", None)
        await clock.sleep(20)
        opened = await agency.pollers.show("one")
        assert (opened["breaker"], opened["consecutive_errors"]) == ("open", 5)
        assert opened["breaker_until_ms"] == opened["next_run_at_ms"] > BEGIN + clock.monotonic() * 1000
        readings.down.clear()
        await clock.sleep(40)
        row = (await agency.rows())["one"]
        assert (row["last_status"], row["last_error"], row["consecutive_errors"]) == ("ok", None, 0)


@virtual
async def test_a_failure_that_needs_a_person_pauses_until_a_reset(directory: Path, clock: VirtualClock) -> None:
    readings.down["one"] = locked()
    told = ", failure_to: {channel: meter, to: me}"
    async with at_work(directory, clock, job("one", more=told)) as agency:
        await clock.sleep(10)
        shown = await agency.pollers.show("one")
        assert (shown["paused"], shown["last_status"], shown["breaker"]) == (True, "permanent", "open")
        # it is looked at again after a quarter of an hour, and a little
        assert 900_000 < shown["next_run_at_ms"] - BEGIN < 1_000_000
        assert shown["breaker_until_ms"] == shown["next_run_at_ms"]
        assert 3_600_000 < shown["alert_cooldown_until_ms"] - BEGIN < 3_610_000
        assert shown["paused_reason"].startswith("meter.example answered 401. Check the token")
        assert "harken pollers resume one. It is tried again by itself in " in shown["paused_reason"]
        readings.down.clear()
        after = await agency.pollers.reset("one")
        assert (after["paused"], after["last_status"], after["last_error"]) == (False, None, None)
        await clock.sleep(5)
        assert (await agency.rows())["one"]["last_status"] == "ok"


@virtual
async def test_an_expired_cursor_names_the_command_that_works_and_run_and_resume_say_why_they_cannot(
    directory: Path, clock: VirtualClock
) -> None:
    readings.down["one"] = CursorExpired("meter.example answered 410", fix="Begin anew")
    told = ", failure_to: {channel: meter, to: me}"
    async with at_work(directory, clock, job("one", more=told)) as agency:
        await clock.sleep(10)
        shown = await agency.pollers.show("one")
        assert shown["paused_reason"].endswith("Begin anew at now: harken pollers reset one --yes")
        assert shown["next_run_at_ms"] is None
        trigger = await agency.ask("triggers.show", name="one")
        assert trigger["advice"] == "Begin anew at now: harken pollers reset one --yes"
        [alert] = (await agency.ask("events.list", feed="harken"))["items"]
        assert alert["data"]["text"].endswith("Begin anew at now: harken pollers reset one --yes")
        for operation in ("pollers.run", "pollers.resume"):
            with pytest.raises(Refused, match=r"job one cannot be .*: meter\.example answered 410") as raised:
                await agency.ask(operation, id="one")
            assert raised.value.fix == "Begin anew at now: harken pollers reset one --yes"
        with pytest.raises(Refused, match="cannot be resumed"):
            await agency.ask("triggers.resume", name="one")
        readings.down.clear()
        await agency.pollers.reset("one")
        await clock.sleep(5)
        assert (await agency.rows())["one"]["last_status"] == "ok"


@virtual
async def test_an_at_that_is_over_says_why_it_cannot_be_resumed(directory: Path, clock: VirtualClock) -> None:
    at = f"{{at: '{START.isoformat()}'}}"
    async with at_work(directory, clock, job("one", schedule=at)) as agency:
        await clock.sleep(10)
        with pytest.raises(Refused, match=r"job one cannot be resumed: its one time, .* is over") as raised:
            await agency.pollers.resume("one")
        assert "harken pollers run one" in raised.value.fix


@virtual
async def test_a_paused_job_is_neither_read_nor_run_until_it_is_resumed(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        await clock.sleep(10)
        assert (await agency.pollers.pause("one"))["paused"]
        with pytest.raises(Refused, match="paused by a person") as raised:
            await agency.pollers.run("one")
        assert "harken pollers resume one" in raised.value.fix
        assert (await agency.app.operator.call("triggers.show", name="one"))["reason"] == "paused by a person"
        await clock.sleep(600)
        row = (await agency.rows())["one"]
        assert (len(readings.reads["one"]), row["next_run_at_ms"]) == (1, None)
        assert not (await agency.pollers.resume("one"))["paused"]
        await clock.sleep(10)
        assert [count for _, count in readings.reads["one"]] == [0, 1]


@virtual
async def test_a_run_by_hand_says_what_it_found_and_moves_the_schedule(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one", every=2)) as agency:
        await clock.sleep(10)
        found = await agency.pollers.run("one")
        assert found == {
            "id": "one",
            "result": "nothing_new",
            "seen": 0,
            "new": 0,
            "error": None,
        }
        assert (await agency.rows())["one"]["last_run_at_ms"] == BEGIN + 10_500
        found = await agency.pollers.run("one")
        assert (found["result"], found["new"]) == ("events", 1)
        readings.down["one"] = busy()
        assert (await agency.pollers.run("one"))["error"] == "meter.example answered 503"


@virtual
async def test_what_is_to_come_once_stays_paused_afterwards(directory: Path, clock: VirtualClock) -> None:
    once = job("one", schedule="{at: '2026-01-05T09:01:00Z'}")
    async with at_work(directory, clock, once) as agency:
        assert (await agency.rows())["one"]["paused"] is False
        await clock.sleep(120)
        shown = await agency.pollers.show("one")
    assert (shown["paused"], shown["next_run_at_ms"], shown["items_dispatched_total"]) == (True, None, 1)
    assert shown["paused_reason"] == "it was to be read once, at 2026-01-05 09:01:00Z, and was"


@virtual
async def test_a_job_that_was_never_read_says_when_it_will_be(directory: Path, clock: VirtualClock) -> None:
    daily = job("daily", schedule="{cron: '0 0 9 * * *', tz: America/New_York}")
    once = job("once", schedule="{at: '2026-03-01T00:00:00Z'}")
    async with at_work(directory, clock, daily, once) as agency:
        await agency.pollers.resume("once")
        rows = await agency.rows()
    due = {id: datetime.fromtimestamp(row["next_run_at_ms"] / 1000, UTC) for id, row in rows.items()}
    assert due == {"daily": datetime(2026, 1, 5, 14, tzinfo=UTC), "once": datetime(2026, 3, 1, tzinfo=UTC)}


@virtual
async def test_an_agent_sees_and_moves_only_its_own(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one"), job("ones", agent="bea"), job("bad", kind="metre")) as agency:
        await clock.sleep(1)
        assert [row["id"] for row in await agency.pollers.list(agent="ana")] == ["one"]
        pollers = agency.pollers
        for act in (pollers.show, pollers.run, pollers.pause, pollers.resume, pollers.reset):
            with pytest.raises(NotFound) as raised:
                await act("ones", agent="ana")
            assert (raised.value.message, raised.value.fix) == ("there is no job ones", "Did you mean one?")
        await pollers.pause("one", agent="ana")
        assert (await pollers.show("one"))["paused_reason"] == "paused by the agent ana"
        [audit] = (await agency.app.store.audits()).items
        assert (audit["who"], audit["did"], audit["what"]) == ("agent ana", "pollers.pause", "one")


@virtual
async def test_a_refused_job_is_listed_with_its_reason_and_can_do_nothing(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one"), job("bad", kind="metre")) as agency:
        row = (await agency.rows())["bad"]
        assert (row["paused"], row["kind"], row["last_status"]) == (True, None, None)
        assert row["last_error"] == (await agency.pollers.show("bad"))["refused"][0]
        assert row["last_error"].startswith("pollers.yaml:5:")
        assert "Did you mean meter?" in row["last_error"]
        with pytest.raises(Misconfigured, match="job bad is refused: there is no kind 'metre'"):
            await agency.pollers.run("bad")


@virtual
async def test_a_warning_is_not_why_a_job_is_refused(directory: Path, clock: VirtualClock) -> None:
    old = """
    gmail_poller:
      jobs: [{name: a, query: x, forward_to_subject: plugin.outbound.nowhere.x, forward_to: '1', message_template: m}]
    """
    directory.joinpath("gmail-poller.yaml").write_text(dedent(old))
    async with at_work(directory, clock, job("one")) as agency:
        error = (await agency.rows())["gmail_legacy_a"]["last_error"]
    assert "warning" not in error


@virtual
async def test_a_job_is_a_trigger_of_its_own_type(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        items = (await agency.ask("triggers.list"))["items"]
        assert [(row["name"], row["type"]) for row in items] == [("one", "poller")]
        assert (await agency.ask("triggers.list", type="poll"))["items"] == []
        assert len((await agency.ask("triggers.list", type="poller"))["items"]) == 1


@virtual
async def test_a_section_that_is_switched_off_is_as_if_it_were_not_there(directory: Path, clock: VirtualClock) -> None:
    async with at_work(directory, clock, job("one")) as agency:
        text = (directory / "pollers.yaml").read_text()
        (directory / "pollers.yaml").write_text(text.replace("pollers:\n", "pollers:\n  enabled: false\n", 1))
        await agency.ask("pollers.reload")
        with pytest.raises(NotFound, match="there is no pollers section"):
            await agency.pollers.list()
