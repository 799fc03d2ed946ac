"""Which repository an agent step gets, and where the tracker's token may be sent."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest
from aiohttp import web

from harken.app.agent_host import agent_host
from harken.run.agents.git import GitFailed, Remote, git
from harken.services import registry
from tests.config.trackers.makers import found, read

CONFIG = """
steps: {{allow_agents: true}}
trackers:
  hub: {{type: github, organization: acme, token: "${{GITHUB_TOKEN}}", webhook_secret: "${{GITHUB_WEBHOOK_SECRET}}"}}
projects:
  shop:
    tracker: hub
    source: {{url: {url}, default_branch: develop}}
    pipeline: fix-bug
    resolution: {{repo: acme/shop}}
"""


def test_without_the_setting_there_is_no_host(tmp_path: Path) -> None:
    loaded = read(tmp_path, "log: {level: info}\n")
    assert agent_host(lambda: loaded, registry()) is None


def test_a_project_has_its_repository_and_the_token_of_its_tracker_at_the_same_server(tmp_path: Path) -> None:
    loaded = read(tmp_path, CONFIG.format(url="https://github.com/acme/shop"))
    host = agent_host(lambda: loaded, registry())
    assert host is not None, found(loaded)
    assert host.directory == tmp_path / "harken.db.agents"
    code = host.code_of("hub/shop")
    assert code is not None, found(loaded)
    assert (code.url, code.base) == ("https://github.com/acme/shop", "develop")
    assert b64decode(code.header.split()[-1]) == b"x-access-token:ghp_0123456789abcdef"
    assert code.header not in repr(code)
    assert host.code_of("hub/other") is None
    assert "ghp_0123456789abcdef" in host.tracker_secrets()


async def test_a_credential_goes_to_its_own_address_only(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    async def refuse(request: web.Request) -> web.Response:
        asked.append((request.path.split("/")[1], request.headers.get("Authorization", "")))
        return web.Response(status=404)

    app = web.Application()
    app.add_routes([web.get("/{path:.*}", refuse)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    await git("init", "--quiet", "--bare", at=tmp_path)
    try:
        remote = Remote(url=f"{base}/shop.git", header="Authorization: Basic c2VjcmV0")
        for name in ("shop.git", "other.git"):
            with pytest.raises(GitFailed) as caught:
                await git("ls-remote", "--", f"{base}/{name}", at=tmp_path, remote=remote)
            assert "c2VjcmV0" not in str(caught.value)
    finally:
        await runner.cleanup()
    assert asked == [("shop.git", "Basic c2VjcmV0"), ("other.git", "")]
