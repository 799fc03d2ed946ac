"""`harken demo streams` as a process: a stream that breaks off in the middle, and a message that nobody can read."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.demo.test_demo import Terminal, rows_below

pytestmark = [pytest.mark.process, pytest.mark.worker_group("demo")]

COMMAND = [sys.executable, "-m", "harken.cli", "demo", "streams", "--port", "0"]
EACH_ORDER, NONE = ("events at source", "recorded", "runs", "deliveries"), ("lost", "duplicate", "unexpected")
COUNTED = re.compile(rf"^  ({'|'.join((*EACH_ORDER, *NONE, 'dead letters'))}) +(\d+) ", re.M)


@pytest.fixture(scope="module")
def finished() -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, "--seconds", "14"], capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def lines(finished: subprocess.CompletedProcess[str]) -> list[str]:
    return finished.stdout.splitlines()


def place_of(lines: list[str], words: str) -> int:
    """Where the line with these words is; there is exactly one."""
    (place,) = (at for at, line in enumerate(lines) if words in line)
    return place


def garbled(lines: list[str]) -> int:
    """The number of the message that is garbled: four orders of the time away are before it, one behind it."""
    return int(re.findall(r"message (\d+) is garbled", lines[place_of(lines, " is garbled")])[0])


def test_nothing_is_lost_doubled_or_made_up_and_there_is_one_dead_letter(finished):
    assert (finished.returncode, finished.stderr) == (0, ""), finished.stdout
    counted = {name: int(number) for name, number in COUNTED.findall(finished.stdout)}
    orders = counted["events at source"]
    assert orders > 8
    assert counted == {**dict.fromkeys(EACH_ORDER, orders), **dict.fromkeys(NONE, 0), "dead letters": 1}


def test_the_orders_of_the_time_away_come_after_it_each_of_them_once(lines):
    fired = [int(number) for line in lines for number in re.findall(r" order-(\d+) .*: pack-orders fired$", line)]
    assert fired == list(range(1, len(fired) + 1))
    away = place_of(lines, "the shop restarts: it drops every connection")
    back = place_of(lines, "the shop comes back, with 5 orders that nobody was told of")
    again = place_of(lines, "Harken connects again after message ")
    assert away < back < again
    last = int(re.findall(r"after message (\d+); the shop repeats the last 2", lines[again])[0])
    assert last <= garbled(lines) - 5


def test_the_garbled_message_is_named_as_the_dead_letter(lines):
    letter = lines[place_of(lines, " dead letter event-")]
    assert re.search(rf"it is not JSON; .* \(127\.0\.0\.1:\d+/orders@{garbled(lines)}\)$", letter)


def test_it_ends_with_what_to_read_next(lines):
    summary = lines[lines.index("demo summary") :]
    assert any("docs/how-to/follow-a-stream.md" in line for line in summary)
    assert max(map(len, summary)) <= 80
    assert lines[-2].endswith(" init my-automations")


def test_in_80x24_events_runs_and_the_dead_letter_are_visible_and_there_is_a_page():
    with Terminal(COMMAND) as terminal:
        display = terminal.wait_until(lambda lines: any(" dead letter event-" in line for line in lines))
        page = urllib.request.urlopen(re.findall(r"http://127\.0\.0\.1:\d+", display[0])[0], timeout=200)
        body = page.read().decode()
        terminal.process.send_signal(signal.SIGINT)
        end = terminal.rest()

    assert "dead letters 1" in display[1]
    assert rows_below(display, "events, the newest first", "runs, the newest first")
    assert rows_below(display, "runs, the newest first", "at the shop, the newest first")
    assert any("dead list" in line for line in display)
    assert "<title>Harken</title>" in body
    assert "demo summary" in end
