"""Pollers that crash, hang, babble or are killed: said plainly, tried again, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from harken.errors import HarkenError, NeedsAttention, Refused, RetryLater
from harken.services.exec import Query, StdioPoller
from harken.source import Host
from harken.testing import START
from tests.services.processes import open_files, running, zombies
from tests.services.programs import POLLERS, Ledger
from tests.services.reading import page, read, subjects

SECRET = "sesame-open-4711"


@pytest.fixture
def host(host: Host) -> Host:
    return replace(host, allow_programs=True, identity="change", feed="orders")


@pytest.fixture
def tricked(tmp_path: Path, clock: Any, host: Host) -> Any:
    """Make a poller that misbehaves once asked; its command line holds the test's directory, so it can be found."""
    command = [sys.executable, str(POLLERS / "lines_poller.py"), str(tmp_path)]

    def make(trick: str, **config: Any) -> Ledger:
        options = {"timeout": config.pop("timeout", 30.0), "env": config.pop("env", {})}
        return Ledger(tmp_path, clock, host, command=command, config={"trick": trick, **config}, **options)

    return make


async def refused(ledger: Ledger) -> HarkenError:
    with pytest.raises(HarkenError) as caught:
        await read(ledger.source)
    return caught.value


async def hung(tricked: Any, **config: Any) -> tuple[HarkenError, int]:
    """The error after it hung for so many seconds. A busy machine may need longer to start it: then with more time."""
    for seconds in (1, 4, 16):
        error = await refused(tricked("hang", timeout=seconds, **config))
        if "initialize" not in error.message:
            return error, seconds
    return await refused(tricked("hang", timeout=64, **config)), 64


def nothing_left(folder: Path) -> bool:
    return running(str(folder)) == [] and zombies() == []


async def test_a_crash_is_tried_later_and_tells_the_exit_code_and_the_last_words(tricked, tmp_path):
    error = await refused(tricked("crash", env={"SHOP_TOKEN": SECRET}))

    assert type(error) is RetryLater
    said = "no answer from https://shop.example/orders?*** | cannot go on with ***"
    assert error.message == f"lines_poller.py ended with exit code 3: {said}"
    assert nothing_left(tmp_path)


async def test_a_crashed_poller_is_started_again_and_goes_on_from_the_cursor(tricked, tmp_path):
    ledger = tricked("crash", once=str(tmp_path / "once"), page=2)
    await ledger.put(4)
    await refused(ledger)
    batches = await read(ledger.source, 1)
    await ledger.source.aclose()

    assert subjects(batches) == ["i2", "i3", "i4"]


async def test_a_poller_killed_between_two_reads_costs_nothing(tricked, tmp_path):
    ledger = tricked("")
    await ledger.put(1)
    (first,) = await read(ledger.source)
    os.kill(ledger.source._client.child.pid, signal.SIGKILL)
    await ledger.source._client.child.exit_code()
    await ledger.put(1)
    second = await read(ledger.source, first.cursor)
    await ledger.source.aclose()

    assert subjects(second) == ["i2"]
    assert nothing_left(tmp_path)


async def test_a_poller_killed_while_it_is_asked_is_tried_later(tricked, tmp_path):
    ledger = tricked("hang")
    note = ledger.file.with_suffix(".pid")
    os.mkfifo(note)
    asking = asyncio.create_task(page(ledger.source))
    os.kill(int(await asyncio.to_thread(note.read_text)), signal.SIGKILL)
    with pytest.raises(RetryLater, match=r"lines_poller.py was ended by SIGKILL"):
        await asking

    assert nothing_left(tmp_path)


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_poller_that_hangs_is_ended_with_all_that_it_started(
    tricked, tmp_path, stubborn, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("harken.kit.subprocesses.GRACE_SECONDS", 0.2)
    error, seconds = await hung(tricked, stubborn=stubborn)

    assert isinstance(error, RetryLater)
    assert error.reason == "timeout"
    assert error.message == f"lines_poller.py did not answer poll_tick within {seconds} s and was ended"
    assert nothing_left(tmp_path)


async def test_children_of_a_poller_are_ended_with_it(tmp_path, host):
    script = tmp_path / "family.sh"
    # ours alone: another clone may run its tests at the same time
    nap = f"sleep {1_000_000 + os.getpid()}"
    script.write_text(f"#!/bin/sh\n{nap} & {nap} & read line\nread line\nwait\n")
    script.chmod(0o755)
    source = StdioPoller(Query(command=[str(script)], timeout=0.3), host)
    with pytest.raises(RetryLater, match="did not answer initialize"):
        await source.poll(None, START)

    assert running(nap) == []


async def test_text_on_stdout_is_a_failure_and_not_an_empty_answer(tricked, tmp_path):
    error = await refused(tricked("garbage"))

    assert isinstance(error, RetryLater)
    assert "not a JSON-RPC response" in error.message
    assert "belongs on stderr" not in str(error)
    assert nothing_left(tmp_path)


async def test_a_line_of_a_gigabyte_is_cut_off_and_refused(tricked, tmp_path):
    before = open_files()
    error = await refused(tricked("gigabyte"))

    assert isinstance(error, NeedsAttention)
    assert error.message == "lines_poller.py wrote a line of more than 8 MiB"
    assert nothing_left(tmp_path)
    assert open_files() == before


async def test_what_it_says_on_stderr_is_logged_as_far_as_that_is_bearable(tricked):
    ledger = tricked("chatter")
    with structlog.testing.capture_logs() as logs:
        await page(ledger.source)
        await ledger.source.aclose()
    said = [entry for entry in logs if entry["event"] == "program.output"]

    assert [entry["line"] for entry in said[:2]] == ["line 0", "line 1"]
    assert len(said) == 20
    assert {entry["log_level"] for entry in said} == {"debug"}


ERRORS = [
    ({"code": -32001, "message": "busy"}, RetryLater, None),
    ({"code": -32001, "message": "busy", "data": {"retry_after": 90}}, RetryLater, 90.0),
    ({"code": -32001, "message": "busy", "data": {"retry_after": "soon"}}, RetryLater, None),
    ({"code": -32001, "message": "busy", "data": {"retry_after": -5}}, RetryLater, None),
    ({"code": -32603, "message": "oops", "data": {"retry_after": 90}}, RetryLater, None),
    ({"code": -32601, "message": "no such method"}, RetryLater, None),
    ({"code": -32002, "message": "revoked"}, NeedsAttention, None),
    ({"code": -32602, "message": "no shop"}, NeedsAttention, None),
]


@pytest.mark.parametrize(("error", "kind", "after"), ERRORS)
async def test_an_error_is_sorted_by_its_code(tricked, error, kind, after):
    ledger = tricked("", error=error)
    told = await refused(ledger)
    await ledger.source.aclose()

    assert isinstance(told, kind)
    assert getattr(told, "after", None) == after
    assert f"answered poll_tick with error {error['code']}: {error['message']}" in told.message


async def test_an_error_may_say_what_to_do_and_never_holds_a_secret(tricked):
    error = {"code": -32002, "message": f"{SECRET} was revoked", "data": {"fix": f"Replace {SECRET}"}}
    told = await refused(tricked("", error=error, env={"SHOP_TOKEN": SECRET}))

    assert str(told) == "lines_poller.py answered poll_tick with error -32002: *** was revoked. Replace ***"


async def test_a_transient_error_keeps_the_process_and_a_permanent_one_ends_it(tricked, tmp_path):
    transient = tricked("", error={"code": -32001, "message": "busy"})
    await refused(transient)
    assert len(running(str(tmp_path))) == 1
    await transient.source.aclose()

    await refused(tricked("", error={"code": -32002, "message": "revoked"}))
    assert nothing_left(tmp_path)


async def test_a_poller_that_was_not_greeted_is_not_asked(tricked, tmp_path):
    ledger = tricked("crash", during="initialize")
    for _ in range(2):
        assert "exit code 3" in (await refused(ledger)).message
    assert nothing_left(tmp_path)


async def test_another_version_of_the_protocol_needs_a_person(tricked, tmp_path):
    error = await refused(tricked("", protocol=2))

    assert isinstance(error, NeedsAttention)
    assert "speaks version 2" in error.message
    assert nothing_left(tmp_path)


async def test_a_program_that_is_not_there_needs_a_person(host):
    source = StdioPoller(Query(command=["no-such-program-anywhere"]), host)
    with pytest.raises(NeedsAttention, match="there is no program no-such-program-anywhere"):
        await source.poll(None, START)


async def test_a_script_that_no_system_can_run_says_so(tmp_path, host):
    script = tmp_path / "odd"
    script.write_bytes(b"\0\1\2")
    script.chmod(0o755)
    source = StdioPoller(Query(command=[str(script)]), host)
    with pytest.raises(RetryLater, match="exit code 126: it cannot be run"):
        await source.poll(None, START)


async def test_nothing_is_run_unless_the_configuration_allows_it(tmp_path, clock, host):
    ledger = Ledger(tmp_path, clock, replace(host, allow_programs=False))
    with pytest.raises(Refused, match=r"services.allow_programs: true"):
        await ledger.source.poll(None, START)


async def test_our_own_environment_stays_with_us(tricked, monkeypatch: pytest.MonkeyPatch):
    for name in ("HARKEN_ENCRYPTION_KEY", "SLACK_TOKEN", "LD_PRELOAD_NOT", "HTTP_PROXY"):
        monkeypatch.setenv(name, SECRET)
    ledger = tricked("", env={"SHOP_TOKEN": "mine"})
    seen = await ledger.source._client.request("environment", {})
    await ledger.source.aclose()

    assert SECRET not in msgspec.json.encode(seen).decode()
    assert seen["SHOP_TOKEN"] == "mine"
    ours = {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "SHOP_TOKEN"}
    assert set(seen) <= ours


WATCHED = """
import asyncio, sys
from dataclasses import replace
from random import Random
from harken.clock import SystemClock
from harken.services.exec import Query, StdioPoller
from harken.source import Host
from harken.testing import START

async def main():
    host = Host(http=None, clock=SystemClock(), random=Random(1), allow_programs=True)
    source = StdioPoller(Query(command=sys.argv[2:], config={"file": sys.argv[1]}), host)
    await source.poll(None, START)
    print("read", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def ended(process: int) -> None:
    """The kernel makes the descriptor of a process readable when it has ended."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(process, over.set)
    await over.wait()
    asyncio.get_running_loop().remove_reader(process)
    os.close(process)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a poller notices that its input was closed")
async def test_a_poller_dies_with_a_harken_that_was_killed(tmp_path):
    items = tmp_path / "items.jsonl"
    items.touch()
    # it does not look at its input, so that only the kernel can end it; a child of its own would outlive it
    deaf = tmp_path / "deaf.sh"
    deaf.write_text(
        f'#!/bin/sh\necho $$ > {tmp_path}/pid\nread line\necho \'{{"id":1,"result":{{}}}}\'\nread line\n'
        'echo \'{"id":2,"result":{"items":[]}}\'\nexec sleep 600\n'
    )
    deaf.chmod(0o755)
    harken = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WATCHED, str(items), str(deaf), stdout=asyncio.subprocess.PIPE
    )
    assert harken.stdout is not None
    assert await harken.stdout.readline() == b"read\n"
    pid = int((tmp_path / "pid").read_text())
    poller = os.pidfd_open(pid)
    harken.kill()
    await harken.wait()

    async with asyncio.timeout(60):
        await ended(poller)
