"""`harken integrations google configure`, as a process with a browser beside it, against a Google on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from harken.clock import SystemClock
from harken.testing.fakes.google_oauth_base import CLIENT_ID, REFRESH_TOKEN, GoogleServer
from tests.forked_harken import ForkedHarken

pytestmark = [pytest.mark.process, pytest.mark.worker_group("cli-consent")]

BROWSER = f"{sys.executable} {Path(__file__).with_name('browser.py')} %s"


class Shell:
    """Types commands into a shell whose browser is `browser`."""

    def __init__(self, directory: Path, google: GoogleServer) -> None:
        self.directory = directory / "site"
        self.directory.mkdir()
        self.google = google
        self._secret = directory / "secret"
        self._secret.write_text(google.client_secret)
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory / "home"),
            "HARKEN_KEYRING": "off",
            "NO_COLOR": "1",
        }

    async def starts(self, *args: str) -> Process:
        command = [sys.executable, "-m", "harken.cli", *self._words(args)]
        return await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=self._environ)

    def _words(self, args: Sequence[str]) -> list[str]:
        return ["--config", str(self.directory), "integrations", "google", *args]

    async def types(self, *args: str, **environ: str) -> tuple[int | None, str, str]:
        process = await ForkedHarken.start(self._words(args), {**self._environ, **environ})
        out, err = await asyncio.wait_for(process.communicate(), 200)
        return process.returncode, out.decode(), err.decode()

    def client(self) -> tuple[str, ...]:
        where = ("--base-url", self.google.url, "--allow-private-networks")
        return ("--client-id", CLIENT_ID, "--client-secret", f"@{self._secret}", *where)

    async def whoami(self) -> Any:
        code, out, err = await self.types("whoami", "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    google = GoogleServer(SystemClock())
    async with google.serve():
        yield Shell(tmp_path, google)


async def test_the_browser_opens_and_the_consent_is_stored(shell: Shell) -> None:
    code, out, err = await shell.types("configure", *shell.client(), BROWSER=BROWSER)
    assert (code, err) == (0, "")
    assert "google knows us: email ana@example.com" in out
    assert "Stored in " in out
    assert len(list(shell.directory.rglob("sealed.json"))) == 1
    (token,) = set(shell.google.refresh_tokens) - {REFRESH_TOKEN}
    assert token not in out
    assert (await shell.whoami())["email"] == "ana@example.com"


async def test_a_consent_that_was_withdrawn_is_given_again_with_one_command(shell: Shell) -> None:
    await shell.types("configure", *shell.client(), BROWSER=BROWSER)
    shell.google.revoke()
    code, _, err = await shell.types("whoami")
    assert (code, "harken integrations google configure" in err) == (1, True)
    code, out, err = await shell.types("configure", "--yes", BROWSER=BROWSER)
    assert (code, err) == (0, "")
    assert "Sign in and agree in a browser on this machine:" in out
    assert (await shell.whoami())["email"] == "ana@example.com"


async def test_without_a_browser_the_address_is_printed_and_another_is_pasted(shell: Shell) -> None:
    process = await shell.starts("configure", "--manual", *shell.client())
    assert process.stdout is not None
    assert process.stdin is not None
    said = [(await asyncio.wait_for(process.stdout.readline(), 200)).decode().strip() for _ in range(3)]
    async with aiohttp.ClientSession() as web, web.get(said[1], allow_redirects=False) as page:
        landed = page.headers["Location"]
    out, err = await asyncio.wait_for(process.communicate(landed.encode() + b"\n"), 200)
    assert (process.returncode, err) == (0, b"")
    assert b"google knows us: email ana@example.com" in out


async def test_a_consent_that_is_refused_stores_nothing(shell: Shell) -> None:
    shell.google.denies = True
    code, out, err = await shell.types("configure", *shell.client(), BROWSER=BROWSER)
    assert (code, "did not agree" in err, "Stored" in out) == (1, True, False)
    assert list(shell.directory.rglob("sealed.json")) == []
    code, _, _ = await shell.types("whoami")
    assert code == 1


async def test_nobody_who_agrees_is_not_waited_for_for_ever(shell: Shell) -> None:
    code, _, err = await shell.types("configure", "--wait", "0.1", *shell.client())
    assert (code, "nobody agreed within 0 s" in err) == (1, True)


async def test_a_refresh_token_that_is_given_needs_no_browser(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(REFRESH_TOKEN)
    code, out, err = await shell.types("configure", "--refresh-token", f"@{tmp_path}/token", *shell.client())
    assert (code, err) == (0, "")
    assert "Sign in" not in out


async def test_gmail_with_a_code_is_refused_with_the_reason(shell: Shell) -> None:
    code, _, err = await shell.types("configure", "--device", *shell.client())
    assert (code, "Google does not give access to Gmail with a code" in err) == (1, True)


async def test_an_unknown_access_is_told_before_anything_is_asked(shell: Shell) -> None:
    code, _, err = await shell.types("configure", "--access", "drive", *shell.client())
    assert (code, "Use: gmail, gmail-readonly, calendar" in err) == (1, True)
    assert shell.google.seen == []


async def test_a_client_that_is_missing_is_told_before_anything_is_asked(shell: Shell) -> None:
    code, out, err = await shell.types("configure")
    assert (code, "client_id: is missing. Give --client-id" in err, "Sign in" in out) == (1, True, False)


async def test_what_harken_yaml_says_of_the_client_is_not_asked_for_again(shell: Shell) -> None:
    where = f"base_url: '{shell.google.url}', allow_private_networks: true"
    written = f"integrations: {{google: {{kind: google, client_id: {CLIENT_ID}, {where}}}}}\n"
    (shell.directory / "harken.yaml").write_text(written)
    code, _, err = await shell.types("configure", "--client-secret", shell.client()[3], BROWSER=BROWSER)
    assert (code, err) == (0, "")
    assert (await shell.whoami())["email"] == "ana@example.com"


async def test_a_secret_in_harken_yaml_would_make_the_consent_useless(shell: Shell) -> None:
    (shell.directory / "harken.yaml").write_text("integrations: {google: {kind: google, client_secret: x}}\n")
    code, _, err = await shell.types("configure", *shell.client(), BROWSER=BROWSER)
    assert (code, "what is stored is not used beside it" in err) == (1, True)
    assert shell.google.seen == []
