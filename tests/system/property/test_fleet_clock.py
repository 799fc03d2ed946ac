"""Virtual time with a real server: it passes between two answers, and stands still until one has come."""

from __future__ import annotations

import asyncio
import socket
from threading import Thread

import pytest

from harken.testing import Deadlock, VirtualClock
from harken.testing.virtual_clock_with_servers import Unanswered, WaitingLoop, run_waiting


def answers(server: socket.socket) -> None:
    """Send back, in a thread of its own, whatever comes."""
    with server.accept()[0] as peer:
        while said := peer.recv(100):
            peer.sendall(said)


async def asked(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello\n")
    answer = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return answer


def test_no_timeout_runs_out_while_an_answer_is_under_way() -> None:
    async def main(clock: VirtualClock) -> tuple[bytes, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        await clock.sleep(3_600.0)
        with loop.waiting():
            async with asyncio.timeout(0.000_001):
                answer = await asked(port)
        return answer, clock.monotonic()

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = Thread(target=answers, args=(server,))
        thread.start()
        assert run_waiting(main) == (b"hello\n", 3_600.0)
        thread.join()


def test_an_answer_that_never_comes_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harken.testing.virtual_clock_with_servers.PATIENCE", 0.001)

    async def main(clock: VirtualClock) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        with loop.waiting():
            await clock.sleep(1.0)

    with pytest.raises(Unanswered):
        run_waiting(main)


def test_whoever_waits_for_nothing_is_told() -> None:
    async def main(clock: VirtualClock) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        run_waiting(main)


def test_timers_of_one_instant_go_off_in_the_order_in_which_they_were_set() -> None:
    async def main(clock: VirtualClock) -> list[int]:
        loop = asyncio.get_running_loop()
        heard: list[int] = []
        others = [loop.call_later(30.0, heard.append, -1) for _ in range(200)]
        for number in range(50):
            loop.call_later(50.0, heard.append, number)
            # a driver sets a timer for an answer, and cancels it when that has come
            loop.call_later(15.0 + number, heard.append, -1).cancel()
            others[4 * number].cancel()
        for other in others:
            other.cancel()
        await clock.sleep(60.0)
        return heard

    assert run_waiting(main) == list(range(50))


def test_whoever_rests_goes_on_when_nobody_else_can_and_before_time_passes() -> None:
    async def main(clock: VirtualClock) -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        done: list[str] = []

        async def busy() -> None:
            for _ in range(10):
                await asyncio.sleep(0)
            done.append("busy")

        async def late() -> None:
            await clock.sleep(0.001)
            done.append("late")

        async def resting() -> None:
            await loop.rest()
            done.append("rested")

        await asyncio.gather(resting(), late(), busy())
        return done

    assert run_waiting(main) == ["busy", "rested", "late"]
