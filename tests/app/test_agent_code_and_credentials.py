"""Which repository an agent step gets, and where the tracker's token may be sent."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from aiohttp import web

from harken.app.agent_code_and_credentials import agent_host
from harken.errors import NeedsAttention
from harken.http import Client, Reply
from harken.run.agents.git_command import GitFailed, Remote, git
from harken.services import registry
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.github_app import InstalledApp
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


APP = """
steps: {{allow_agents: true}}
integrations:
  github: {{kind: github, app_id: 1234, private_key: "${{file:app.pem}}"}}
trackers:
  hub: {{type: github, organization: acme, integration: github, webhook_secret: "${{GITHUB_WEBHOOK_SECRET}}"}}
projects:
  shop:
    tracker: hub
    source: {{url: {url}}}
    pipeline: fix-bug
    resolution: {{repo: acme/shop}}
"""


class Rerouted:
    """A client that reaches the fake at the address of GitHub's API."""

    def __init__(self, client: Client, hub: GitHub) -> None:
        self._client, self._hub = client, hub

    async def request(self, method: str, url: str, **options: Any) -> Reply:
        there = url.replace("https://api.github.com", self._hub.url)
        return await self._client.request(method, there, **{**options, "allow_private": True})


async def test_an_app_gets_a_token_for_the_code_each_time_it_is_needed(tmp_path: Path) -> None:
    clock = HandClock()
    hub, client = GitHub(clock), Client(clock)
    hub.app = app = InstalledApp("acme/shop", permissions={"issues": "write", "contents": "write", "metadata": "read"})
    loaded = read(tmp_path, APP.format(url="https://github.com/acme/shop"), files={"app.pem": app.private_key})
    host = Host(http=cast(Client, Rerouted(client, hub)), clock=clock, random=Random(1))
    async with hub.serve():
        agents = agent_host(lambda: loaded, registry(), lambda account, who: host)
        assert agents is not None, found(loaded)
        code = agents.code_of("hub/shop")
        assert code is not None
        assert (code.header, code.sign_in is not None) == ("", True)
        assert code.sign_in is not None
        headers = [await code.sign_in(), await code.sign_in()]
        app.permissions = {"issues": "write", "metadata": "read"}
        with pytest.raises(NeedsAttention) as refused:
            await code.sign_in()
    await client.close()
    assert [b64decode(one.split()[-1]) for one in headers] == [b"x-access-token:ghs_1", b"x-access-token:ghs_2"]
    assert app.tokens["ghs_1"].permissions == {"contents": "write", "metadata": "read"}
    assert "Contents" in refused.value.fix


def test_the_key_of_an_app_is_no_password_for_code_elsewhere(tmp_path: Path) -> None:
    key = InstalledApp().private_key
    loaded = read(tmp_path, APP.format(url="https://git.example.org/acme/shop"), files={"app.pem": key})
    host = agent_host(lambda: loaded, registry(), lambda account, who: pytest.fail("there is nothing to ask for"))
    assert host is not None, found(loaded)
    code = host.code_of("hub/shop")
    assert code is not None, found(loaded)
    assert (code.header, code.sign_in) == ("", None)
    assert any("PRIVATE KEY" in secret for secret in host.tracker_secrets())
