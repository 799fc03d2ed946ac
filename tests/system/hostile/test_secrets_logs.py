"""Log lines of ours and of libraries, with tracebacks, in a process of their own."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

SECRET = "tok3n-5ecret-abcdef"
ENCODED = base64.b64encode(f"ada:{SECRET}".encode()).decode()
NOISY = """
import base64, logging, warnings
import structlog
from harken.app.logs import set_up_logs

secret = "tok3n-" + "5ecret-abcdef"
set_up_logs("debug", FORM, lambda: {secret})
log = structlog.get_logger("x")
log.info("plain", reason=f"bad {secret}")
warnings.warn(f"do not use {secret}")
log.info("nested", detail={"list": [secret, (secret,)]}, odd=Exception(secret), number=7, key="PRJ-1")
try:
    raise ValueError(f"Basic {base64.b64encode(b'ada:' + secret.encode()).decode()}")
except ValueError as error:
    log.error("failed", exc_info=error)
    logging.getLogger("aiohttp").error("while asking %s", secret, exc_info=error)
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_log_line_holds_a_secret(form: str) -> None:
    code = NOISY.replace("FORM", repr(form))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr
    assert SECRET not in said
    assert "5ecret" not in said
    assert said.count("***") >= 6
    assert ENCODED[8:24] not in said
    assert "while asking ***" in said
    assert "PRJ-1" in said
    assert "ValueError" in said


OBEYED = """
import logging
import structlog
from harken.app.logs import set_up_logs

set_up_logs("debug", FORM, set)
for text in ("\\x1b]0;title\\x07", "\\x1b[2Jcleared", "a\\n2026-01-01T00:00 [error] forged", "\\x9b31m \\u202e"):
    structlog.get_logger("x").warning("plain", ticket=text, reason=f"the label {text} is gone", all=[text])
    logging.getLogger("aiohttp").error("while asking %s", text)
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_log_line_holds_what_a_terminal_obeys(form: str) -> None:
    code = OBEYED.replace("FORM", repr(form))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr
    assert [char for char in said if char != "\n" and not char.isprintable()] == []
    assert said.count("plain") == 4
    assert not any(line.startswith("2026-01-01") for line in said.splitlines())
