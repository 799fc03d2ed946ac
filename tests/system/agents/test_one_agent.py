"""Two agents never work on one ticket, whatever happens to the Harken that started the first."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harken.run.agents.process_tree_supervisor import boot_seconds
from tests.system.agents.machines import Machine, Writers, machines, processes_of, until
from tests.system.fleet.network import Proxy
from tests.system.fleet.stores import POSTGRES, running

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")]

LEASE = 18.0
"""Long enough that a busy machine ends an agent in time: everything is dead a twelfth of it before its end."""


async def working(machine: Machine, writers: Writers) -> None:
    """Start the machine, bring it the ticket, and wait until its agent writes."""
    await machine.start()
    await machine.bring_ticket()
    await until(lambda: writers.starts == 1, machine.said)


async def test_after_kill_9_the_old_agent_is_gone_before_the_next_begins(tmp_path: Path) -> None:
    async with machines(tmp_path, ["harken.db"], claim_seconds=LEASE) as ([machine], writers):
        await working(machine, writers)
        await machine.kill()
        killed = boot_seconds()
        await machine.start()
        await until(lambda: writers.starts == 2, machine.said)

        writers.assert_one_at_a_time()
        # it ignores SIGTERM, and has its grace of two seconds
        assert writers.last(1) < killed + LEASE
        writers.stop()
        await until(lambda: _is_done(machine), machine.said)
        assert await _starts(machine) == 2


async def test_a_deploy_stops_the_agent_cleanly_and_goes_on_with_the_next_process(tmp_path: Path) -> None:
    async with machines(tmp_path, ["harken.db"], claim_seconds=LEASE, stubborn=False) as ([machine], writers):
        await working(machine, writers)
        machine.send(signal.SIGTERM)
        await machine.process.wait()
        assert processes_of(machine.directory) == []
        await machine.start()
        await until(lambda: writers.starts == 2, machine.said)
        writers.stop()
        await until(lambda: _is_done(machine), machine.said)

        writers.assert_one_at_a_time()
        assert await _starts(machine) == writers.starts == 2
        assert (await machine.run())["attempt"] == 1


@POSTGRES
async def test_a_frozen_harken_loses_its_agent_before_another_machine_begins(kind: str, tmp_path: Path) -> None:
    with running(kind) as (_, url):
        async with machines(tmp_path, [url, url], claim_seconds=LEASE) as ([first, second], writers):
            await working(first, writers)
            first.send(signal.SIGSTOP)
            frozen = boot_seconds()
            await second.start()
            await until(lambda: writers.starts == 2, second.said)
            writers.assert_one_at_a_time()
            assert writers.last(1) < frozen + LEASE
            assert processes_of(first.directory) == []

            first.send(signal.SIGCONT)
            await asyncio.sleep(2)
            writers.assert_one_at_a_time()
            assert writers.starts == 2
            writers.stop()
            await until(lambda: _is_done(second), second.said)


@POSTGRES
async def test_a_harken_that_is_cut_off_loses_its_agent_before_another_machine_begins(
    kind: str, tmp_path: Path
) -> None:
    with running(kind) as (_, url):
        parts = urlsplit(url)
        wire = Proxy(str(parts.hostname), int(parts.port or 0))
        async with wire.serve():
            far = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{wire.port}")
            async with machines(tmp_path, [far, url], claim_seconds=LEASE) as ([first, second], writers):
                await working(first, writers)
                wire.cut()
                cut = boot_seconds()
                await second.start()
                await until(lambda: writers.starts == 2, second.said)
                writers.assert_one_at_a_time()
                assert writers.last(1) < cut + LEASE

                wire.mend()
                await asyncio.sleep(2)
                writers.assert_one_at_a_time()
                assert writers.starts == 2
                writers.stop()
                await until(lambda: _is_done(second), second.said)


async def _is_done(machine: Machine) -> bool:
    return bool((await machine.run())["status"] == "done")


async def _starts(machine: Machine) -> int:
    """How often the agent was started, as the journal says."""
    steps = (await machine.run())["steps"]
    return max(int(step["output"]["starts"]) for step in steps if step["output"])
