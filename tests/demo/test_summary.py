"""What `harken demo` says at its end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from harken.demo import _text, program
from harken.demo.lost_and_duplicate_count import Summary

QUIET = Summary(
    seconds=0.2,
    events_at_source=0,
    recorded=0,
    runs=0,
    lost=0,
    duplicate=0,
    unexpected=0,
    rate_limited=0,
    late=0,
    deliveries=0,
    dead_letters=0,
)


@pytest.mark.parametrize(
    ("happened", "said"),
    [
        ({}, "It was stopped before anything happened."),
        ({"events_at_source": 3, "recorded": 3}, "Nothing was lost, doubled or made up."),
        ({"events_at_source": 3, "recorded": 3, "lost": 1}, "This demo did not go well."),
    ],
)
def test_the_last_sentence_is_what_happened(happened: dict[str, int], said: str) -> None:
    *_, sentence, _, _ = _text(msgspec.structs.replace(QUIET, **happened), "").splitlines()
    assert sentence == f"{said} The next step, also without an account:"


@pytest.mark.parametrize(
    ("variables", "installed", "expected"),
    [
        ({"UV": "/bin/uv"}, False, "uvx harken"),
        ({"UV": "/bin/uv"}, True, "harken"),
        ({"UV": "/bin/uv", "VIRTUAL_ENV": sys.prefix}, False, "harken"),
        ({}, False, "harken"),
    ],
    ids=["uvx", "uvx-beside-an-installation", "uv-run", "activated"],
)
def test_the_next_command_can_be_typed_after_uvx_too(
    variables: dict[str, str],
    installed: bool,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    for folder in (own, *([elsewhere] if installed else [])):
        folder.mkdir()
        (folder / "harken").touch(mode=0o755)
    for name in ("UV", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"PATH": os.pathsep.join((str(own), str(elsewhere))), **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    assert program() == expected
