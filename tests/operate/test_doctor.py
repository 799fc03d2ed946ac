"""Each check says ok, warn or fail, with the fix."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

import pytest

from harken.circuit_breaker import Health
from harken.feed import FeedState
from harken.operate.doctor import (
    check_clock,
    check_config,
    check_connections,
    check_feeds,
    check_file_system,
    check_network,
    check_permissions,
    check_port,
    check_service_clocks,
    check_space,
    check_store,
)
from harken.operate.load_and_check_configuration import Site
from harken.operate.output_rows import plain
from harken.store import Space
from harken.store.document_kinds import START_MOVED
from harken.testing import START
from tests.operate.operator_world import POLLED, Office


def place(tmp_path: Path, port: int = 0) -> Site:
    return Site(directory=tmp_path, store_path=tmp_path / "harken.db", port=port)


async def test_a_healthy_office_has_only_the_models_to_warn_about(office: Office) -> None:
    answer = await office.ask("doctor")
    states = {check["name"]: check["state"] for check in answer["items"]}
    assert answer["ok"]
    assert states["models"] == "warn"
    assert {"config", "store", "file system", "clock", "port", "permissions", "feeds", "space"} <= set(states)


def test_errors_in_the_configuration_fail_with_the_first_of_them() -> None:
    check = check_config([{"severity": "error", "text": "harken.yaml:1:1: no"}])
    assert (check.state, check.message) == ("fail", "1 error; the first: harken.yaml:1:1: no")


def test_a_store_in_trouble_fails(tmp_path: Path) -> None:
    assert check_store("the disk is full", place(tmp_path)).state == "fail"


@pytest.mark.parametrize(("kind", "state"), [("ext4", "ok"), ("nfs4", "fail"), ("fuse.sshfs", "fail")])
def test_a_store_on_a_network_file_system_fails(tmp_path: Path, kind: str, state: str) -> None:
    mounts = [("/", "overlay"), (str(tmp_path.resolve()), kind)]
    assert check_file_system(place(tmp_path), mounts).state == state


def test_a_store_that_keeps_its_unused_space_is_a_warning_with_the_command_that_helps() -> None:
    advice = "Once: harken store compact"
    assert check_space(Space(bytes=9 << 20, unused=5 << 20, advice=advice)).fix == advice
    assert check_space(Space(bytes=9 << 20, unused=5 << 20, advice=advice)).state == "warn"
    # what is used is most of it, or it is given back by itself
    assert check_space(Space(bytes=9 << 20, unused=4 << 20, advice=advice)).state == "ok"
    given_back = check_space(Space(bytes=9 << 20, unused=5 << 20))
    assert (given_back.state, given_back.message) == ("ok", "the store takes 9 MB, 5 MB of it unused")


def test_a_store_that_others_may_read_is_a_warning_with_the_command_that_mends_it(tmp_path: Path) -> None:
    path = tmp_path / "harken.db"
    path.touch(mode=0o644)
    path.chmod(0o644)
    check = check_permissions(place(tmp_path))
    assert (check.state, check.fix) == ("warn", f"chmod 600 {path}")


def test_a_clock_before_this_program_fails_and_one_behind_the_store_warns() -> None:
    assert check_clock(START.replace(year=1970), None).state == "fail"
    assert check_clock(START, START + timedelta(hours=1)).state == "warn"
    assert check_clock(START, START).state == "ok"


@pytest.mark.parametrize(
    ("skews", "state", "words"),
    [
        ({}, "ok", "none is known to differ from ours"),
        ({"oncall": -300.4}, "warn", "the service of oncall is 5m behind our clock"),
        ({"oncall": 60.0}, "warn", "the service of oncall is 1m ahead of our clock"),
        ({"a": -5.0, "b": 90.0}, "warn", "the service of b is 1m30s ahead of our clock, 1 other less"),
        ({"oncall": -7200.0}, "warn", "too far to allow for"),
        ({"a": 0.0, "b": 0.0}, "ok", "2 services agree with ours"),
        ({"a": 0.0, "b": 0.0, "c": -60.0}, "warn", "the service of c is 1m behind our clock"),
        ({"a": -3600.0, "b": -3602.0, "c": 0.0}, "fail", "our clock is 1h ahead: 2 of 3 services say so"),
        ({"a": 90.0, "b": 90.0}, "fail", "our clock is 1m30s behind: 2 of 2 services say so"),
        ({"a": -90.0, "b": 90.0}, "warn", "1m30s"),
    ],
)
def test_a_service_whose_clock_differs_is_named_with_how_much(skews: dict[str, float], state: str, words: str) -> None:
    check = check_service_clocks(skews)
    assert check.state == state
    assert words in check.message


def test_start_lines_in_the_future_are_a_warning_that_names_the_triggers() -> None:
    check = check_clock(START, START, ["a", "b", "c", "d", "e"])
    assert check.state == "warn"
    assert "the start line of a, b, c and 2 more is in the future" in check.message


async def test_doctor_compares_our_clock_with_the_services_each_counted_once(office: Office) -> None:
    office.engine.skews = {POLLED.name: -3600.0, "elsewhere": -3601.0, "unknown": 0.0}
    [check] = [one for one in (await office.ask("doctor"))["items"] if one["name"] == "service clocks"]
    assert (check["state"], check["message"]) == ("fail", "our clock is 1h ahead: 2 of 3 services say so")


async def test_a_trigger_whose_start_line_is_in_the_future_says_so_everywhere(office: Office) -> None:
    office.clock.jump(-86_400)
    [check] = [one for one in (await office.ask("doctor"))["items"] if one["name"] == "clock"]
    assert check["state"] == "warn"
    shown = await office.ask("triggers.show", name="oncall")
    assert (shown["status"], shown["start_line_moved"]) == ("degraded", "")
    assert "is in the future, as the clock was ahead" in shown["reason"]
    moved = {"was": "2026-01-06T09:00:00+00:00", "at": "2026-01-05T09:00:00+00:00"}
    await office.store.put(START_MOVED, "oncall", moved)
    shown = await office.ask("triggers.show", name="oncall")
    assert shown["start_line_moved"].startswith("back from 2026-01-06")
    assert shown["start_line_moved_at"] == "2026-01-05T09:00:00Z"


def test_a_port_that_somebody_else_has_is_a_warning(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert check_port(place(tmp_path, port), ours="").state == "warn"
        assert check_port(place(tmp_path, port), ours="http://127.0.0.1:1").state == "ok"


def test_a_paused_feed_fails_and_a_failing_one_warns() -> None:
    failing = FeedState(name="a", revision=1, created_at=START, health=Health(failures=1, message="503"))
    paused = FeedState(name="b", revision=1, created_at=START, health=Health(failures=1, state="paused", message="401"))
    assert check_feeds([failing]).state == "warn"
    assert check_feeds([failing, paused]).state == "fail"


@pytest.mark.parametrize(
    ("refused", "state", "message"),
    [
        ({}, "ok", "1 connection open, none was refused"),
        ({"malformed": 2, "head_timeout": 1}, "ok", "refused since the start: 2 malformed, 1 head_timeout"),
        ({"head_timeout": 1, "address": 9}, "warn", "9 address"),
        ({"connections": 9}, "warn", "9 connections"),
    ],
)
def test_senders_who_found_no_place_are_a_warning_and_strangers_are_not(
    refused: dict[str, int], state: str, message: str
) -> None:
    check = check_connections({"connections": 1, "connections_refused": refused})
    assert (check.state, message in check.message) == (state, True)
    assert ("server.proxies" in check.fix) is (state == "warn")


def test_being_offline_is_a_check_of_its_own_and_no_failing_feed() -> None:
    since = START - timedelta(hours=1)
    health = Health(
        offline_since=since.timestamp(), code="offline", message="offline: could not connect to api.example"
    )
    away = FeedState(name="a", revision=1, created_at=START, health=health)
    found = check_network([away])
    assert (found.state, check_feeds([away]).state) == ("warn", "ok")
    assert found.message.startswith("offline since 2026-01-05 08:00:00Z; 1 feed waiting; ")
    assert "goes on by itself" in found.fix
    assert check_network([]).state == "ok"


async def test_status_and_the_trigger_say_since_when_we_are_offline(office: Office) -> None:
    assert (await office.ask("status"))["offline_since"] is None
    since = office.clock.now() - timedelta(minutes=20)
    message = "offline: could not connect to api.example"
    await office.fails(message, failures=0, code="offline", offline_since=since.timestamp())
    found = await office.ask("status")
    assert (found["offline_since"], found["needs_person"]) == (plain(since), False)
    shown = await office.ask("triggers.show", name="oncall")
    assert shown["status"] == "degraded"
    assert shown["reason"].startswith("offline since ")
    assert shown["reason"].endswith("(20 min ago): could not connect to api.example")
    assert "The next try is in 60 s; nothing is lost meanwhile" in shown["advice"]
