"""Python that pages show is run: what a receiver of webhooks verifies, and what the page on the test kit begins with.

The rest is run elsewhere: see ELSEWHERE.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harken.errors import RetryLater
from harken.services.webhook import signature
from harken.testing import START, VirtualClock, run_virtual
from harken.testing.destination import DestinationContract
from harken.testing.source import SourceContract
from harken.testing.stream import StreamContract
from tests.docs.blocks import ROOT, blocks, pages

RECEIVER = ROOT / "docs" / "reference" / "services" / "webhook.md"
TEST_KIT = ROOT / "docs" / "reference" / "testing.md"
ELSEWHERE: Mapping[str, str] = {
    "docs/how-to/exec.md": "tests/docs/test_exec_example.py",
    "docs/how-to/use-the-api.md": "tests/api/test_how_to.py",
    "docs/how-to/write-a-service.md": "tests/docs/test_service_example.py",
    "docs/tutorial/first-service.md": "tests/docs/test_service_tutorial.py",
}
BODY, NOW = b'{"text": "disk full"}', 1_800_000_000
# what the author of a service has: the fake behind it, and the class that puts items there
THEIRS = {name: object for name in ("TicketService", "OrdersBroker", "PigeonOutlet")}


def programs(page: Path) -> list[str]:
    return [block.text for block in blocks(page) if block.language == "python"]


def run(program: str, **names: Any) -> dict[str, Any]:
    """The names that a program of our own page makes, with those that its reader has already."""
    exec(compile(program, "page", "exec", dont_inherit=True), names)
    return names


@pytest.mark.parametrize(
    ("keys", "body", "at", "expected"),
    [
        ([b"a-secret"], BODY, NOW, True),
        ([b"the-next", b"a-secret"], BODY, NOW, True),
        ([b"another"], BODY, NOW, False),
        ([b"a-secret"], BODY + b" ", NOW, False),
        ([b"a-secret"], BODY, NOW - 301, False),
    ],
)
def test_a_receiver_accepts_what_we_sign_and_nothing_else(
    keys: list[bytes], body: bytes, at: int, expected: bool
) -> None:
    [program] = programs(RECEIVER)
    assert run(program)["verify"](signature(keys, at, BODY), body, "a-secret", float(NOW)) is expected


def test_a_week_passes_at_once(tmp_path: Path) -> None:
    [program] = [text for text in programs(TEST_KIT) if "@virtual" in text]
    run(program)["test_a_poll_an_hour_for_a_week"](tmp_path=tmp_path)


def test_a_scripted_service_is_read_and_fails_as_its_script_says() -> None:
    [program] = [text for text in programs(TEST_KIT) if "WorldSource(" in text]

    async def polled(clock: VirtualClock) -> list[list[str]]:
        source = run(program, clock=clock)["source"]
        now = await source.poll(None, START - timedelta(hours=1))
        await clock.sleep(90)
        later = await source.poll(now.cursor, START - timedelta(hours=1))
        await clock.sleep(220)
        with pytest.raises(RetryLater) as refused:
            await source.poll(later.cursor, START)
        assert refused.value.after == 45
        return [[f"{event.subject} {event.state}" for event in batch.events] for batch in (now, later)]

    assert run_virtual(polled) == [["ticket-2 open", "ticket-1 open"], ["ticket-2 open", "ticket-1 closed"]]


@pytest.mark.parametrize(
    ("contract", "fixture"),
    [(SourceContract, "service"), (StreamContract, "broker"), (DestinationContract, "outlet")],
)
def test_a_contract_is_subclassed_as_the_page_has_it(contract: type, fixture: str) -> None:
    [program] = [text for text in programs(TEST_KIT) if f"({contract.__name__})" in text]
    [made] = [one for name, one in run(program, **THEIRS).items() if name.startswith("Test")]
    tests = [test for name, test in inspect.getmembers(made, inspect.isfunction) if name.startswith("test_")]
    asked = {name for test in tests for name in inspect.signature(test).parameters}
    assert issubclass(made, contract)
    assert hasattr(made, fixture)
    assert fixture in asked


def test_every_python_block_of_a_page_is_run_by_some_test() -> None:
    with_python = {str(page.relative_to(ROOT)) for page in pages() if programs(page)}
    assert with_python == {*ELSEWHERE, *(str(page.relative_to(ROOT)) for page in (RECEIVER, TEST_KIT))}
    assert [test for test in ELSEWHERE.values() if not (ROOT / test).is_file()] == []
