"""What an agent writes is kept whole up to a limit, and its end is shown."""

from __future__ import annotations

from pathlib import Path

from harken.clock import SystemClock
from harken.run.agents import output_capture as module
from harken.run.agents.output_capture import AgentOutput

USAGE = b'{"session_id": "s-1", "total_cost_usd": 0.5}'


def outputs(tmp_path: Path) -> AgentOutput:
    return AgentOutput(tmp_path / "outputs" / "fix-1.log", SystemClock())


def test_the_file_is_private_and_ends_at_its_limit(tmp_path: Path) -> None:
    output = outputs(tmp_path)
    for _ in range(25):
        output.add(b"x" * 1_000_000, True)
    output.add(b"the end", False)
    output.close()

    assert output.artifact.stat().st_mode & 0o777 == 0o600
    assert module.LARGEST_ARTIFACT < output.artifact.stat().st_size < module.LARGEST_ARTIFACT + 100
    assert output.artifact.read_bytes().endswith(b"[the rest is not kept]\n")
    assert output.tail.endswith("xthe end")
    assert len(output.tail) == module.KEPT_TAIL


def test_lines_are_read_whole_however_they_come(tmp_path: Path) -> None:
    output = outputs(tmp_path)
    for byte in USAGE + b"\n":
        output.add(bytes([byte]), True)
    assert (output.usage.session, output.usage.usd) == ("s-1", 0.5)


def test_the_last_line_needs_no_end_and_a_line_without_end_no_memory(tmp_path: Path) -> None:
    output = outputs(tmp_path)
    for _ in range(3):
        output.add(b"{" * 800_000, True)
    output.add(b"\n" + USAGE, True)
    output.close()
    assert output.usage.session == "s-1"


def test_errors_tell_nothing_of_the_session(tmp_path: Path) -> None:
    output = outputs(tmp_path)
    output.add(USAGE + b"\n", False)
    assert output.usage.session == ""


def test_the_end_is_text_that_harms_no_terminal(tmp_path: Path) -> None:
    output = outputs(tmp_path)
    output.add("\x1b[31mred\x1b[0m \x1b]0;title\x07 \u202eback\u202c \x00 caf\xe9\n".encode() + b"\xff\xfe", True)
    assert output.tail == "red  back  caf\xe9\n\ufffd\ufffd"
