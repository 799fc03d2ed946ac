"""`harken tokens` and `harken audit`, and commands that ask a controller elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Desk


async def test_a_token_is_printed_alone_and_the_list_does_not_have_it(desk: Desk) -> None:
    code, out, err = await desk.types("tokens", "create", "laptop", "--role", "operator", "--owner", "ana")
    assert (code, out.startswith("hkn_"), out.count("\n")) == (0, True, 1)
    assert "it is not shown again" in err
    _, listed, _ = await desk.types("tokens", "list")
    assert out.strip() not in listed
    assert "laptop  operator  ana" in listed
    assert (await desk.types("tokens", "revoke", "laptop"))[1] == "The token laptop is revoked.\n"


async def test_whoami_says_what_a_call_from_here_may_do(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await desk.json("tokens", "whoami"))["way"] == "local"
    token = (await desk.json("tokens", "create", "ci", "--owner", "ana", "--triggers", "oncall"))["token"]
    monkeypatch.setenv("HARKEN_TOKEN", token)
    monkeypatch.setenv("HARKEN_URL", desk.served.controller.url)
    code, out, _ = await desk.types("tokens", "whoami")
    assert code == 0
    assert out.startswith("token ci: viewer, for the things of ana, for the triggers oncall.\nIt may: me, trig")


async def test_the_audit_names_what_commands_changed(desk: Desk) -> None:
    await desk.types("triggers", "pause", "oncall", "--reason", "lunch")
    code, out, _ = await desk.types("audit", "--did", "triggers.pause")
    assert code == 0
    assert 'operator  triggers.pause  oncall  {"reason": "lunch"}' in out
    assert (await desk.types("audit", "--who", "ana"))[1] == "Nothing fits the filter.\n"


async def test_a_controller_elsewhere_is_asked_with_the_token_of_the_environment(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = (await desk.json("tokens", "create", "ci", "--role", "viewer"))["token"]
    monkeypatch.setenv("HARKEN_TOKEN", token)
    monkeypatch.setenv("HARKEN_URL", desk.served.controller.url)
    (tmp_path / "harken.db.run.json").unlink()
    assert len(await desk.json("triggers", "list")) == 3
    code, _, err = await desk.types("triggers", "pause", "oncall")
    assert (code, err) == (1, "harken: triggers.pause needs the role operator; this token has viewer\n")
    assert "only where the controller runs" in (await desk.types("stop"))[2]


async def test_the_token_of_a_file_that_others_can_read_is_not_used(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = (await desk.json("tokens", "create", "ci"))["token"]
    file = tmp_path / "token"
    file.write_text(token + "\n")
    monkeypatch.setenv("HARKEN_TOKEN_FILE", str(file))
    asked = ("--url", desk.served.controller.url, "triggers", "list")
    file.chmod(0o644)
    assert "others may read" in (await desk.types(*asked))[2]
    file.chmod(0o600)
    assert (await desk.types(*asked))[0] == 0


async def test_a_token_that_was_copied_from_a_page_with_its_dots_is_refused(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARKEN_TOKEN", "hkn_…")
    code, _, err = await desk.types("--url", desk.served.controller.url, "status")
    assert (code, "has characters that no token has" in err) == (1, True)


async def test_a_url_that_nobody_answers_at_is_said_and_the_store_is_not_opened(desk: Desk) -> None:
    code, _, err = await desk.types("--url", "http://127.0.0.1:1", "triggers", "list")
    assert (code, "nobody answers at http://127.0.0.1:1" in err) == (1, True)
    assert "not the URL of a controller" in (await desk.types("--url", "ftp://x", "triggers", "list"))[2]
