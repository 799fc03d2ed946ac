"""GitHub as an app: signing in with a key, tokens for one repository and an hour, and what goes wrong with them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.operate.load_and_check_configuration import load_directory
from harken.services import github
from harken.services.github import Account, Query, plugin
from harken.services.github.app import App, parse_private_key, repository_in
from harken.services.github.tracker import GitHubTracker
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes.github import GitHub
from harken.testing.fakes.github_app import InstalledApp
from harken.testing.fakes.server import Answer
from harken.ticket import PullRequest
from tests.services.github import SHOP
from tests.services.test_github_tracker import HubBoard
from tests.services.ticket_tracker_contract import ASKS, TicketTrackerContract, read

ODD = ("area/ui", "größe 🔥")


def app_account(hub: GitHub, **changes: Any) -> Account:
    assert hub.app is not None
    fields = {"app_id": 1234, "private_key": hub.app.private_key, "base_url": f"{hub.url}/"}
    return Account.model_validate(fields | changes)


def tracker(hub: GitHub, host: Host, project: str = SHOP, **changes: Any) -> GitHubTracker:
    return GitHubTracker(project, app_account(hub, **changes), host)


def asked(hub: GitHub, path: str) -> list[Any]:
    return [seen for seen in hub.seen if seen.path.endswith(path)]


@pytest.fixture
def app(hub: GitHub) -> InstalledApp:
    hub.app = InstalledApp(SHOP, "acme/search")
    hub.add_repo("acme/search")
    return hub.app


class AppBoard(HubBoard):
    def __init__(self, hub: GitHub, host: Host) -> None:
        super().__init__(hub, host)
        self.tracker = tracker(hub, host)


class TestGitHubAppTickets(TicketTrackerContract):
    page_size, odd_labels = 100, ODD

    @pytest.fixture
    def board(self, hub: GitHub, host: Host, app: InstalledApp) -> AppBoard:
        return AppBoard(hub, host)

    @pytest.mark.parametrize("ask", ASKS)
    async def test_trouble_is_raised_and_never_an_empty_answer(self, board: Any, ask: str):
        ticket = await read(board, board.open("bug"))
        for status in (500, 401):
            # a token that is refused so soon after it was made is not known everywhere yet
            board.answer_next_with(status)
            with pytest.raises(RetryLater if status == 500 or ask != "own_account" else NeedsAttention):
                await ASKS[ask](board.tracker, ticket)


async def test_the_app_proves_itself_as_other_libraries_check_it(
    hub: GitHub, host: Host, app: InstalledApp, clock: HandClock
):
    await tracker(hub, host).list_changed(clock.now())
    sent = asked(hub, "/installation")[0].headers["authorization"].removeprefix("Bearer ")
    public = parse_private_key(app.private_key).public_key()
    claims = jwt.decode(sent, public, algorithms=["RS256"], options={"verify_exp": False, "verify_iat": False})
    now = int(clock.time())
    assert claims == {"iss": "1234", "iat": now - 60, "exp": now + 540}


async def test_a_token_may_do_no_more_than_is_needed_in_one_repository(hub: GitHub, host: Host, app: InstalledApp):
    app.permissions |= {"contents": "write", "administration": "write"}
    issue = hub.open("bug")
    here = tracker(hub, host)
    assert (await here.get(str(issue.number))) is not None
    (made,) = asked(hub, "/access_tokens")
    assert json.loads(made.body) == {
        "repositories": ["shop"],
        "permissions": {"issues": "write", "pull_requests": "write", "metadata": "read"},
    }
    (given,) = app.tokens.values()
    assert given.repositories == {hub.repos[SHOP].id}


async def test_what_the_installation_does_not_grant_is_not_asked_for(hub: GitHub, host: Host, app: InstalledApp):
    app.permissions = {"issues": "read", "metadata": "read"}
    ticket = await tracker(hub, host).get(str(hub.open("bug").number))
    assert ticket is not None
    assert json.loads(asked(hub, "/access_tokens")[0].body)["permissions"] == {"issues": "read", "metadata": "read"}
    with pytest.raises(NeedsAttention, match="403"):
        await tracker(hub, host).comment(ticket, "hello")


async def test_all_users_of_the_credential_share_one_token_per_repository(hub: GitHub, host: Host, app: InstalledApp):
    issue = hub.open("bug")
    trackers = [tracker(hub, host), tracker(hub, host), tracker(hub, host, "acme/search")]
    await asyncio.gather(*(one.get(str(issue.number)) for one in trackers for _ in range(5)))
    assert len(app.tokens) == 2
    source = github.source(Query.model_validate({"repos": [SHOP]}), app_account(hub), host)
    await source.poll(None, host.clock.now())
    assert len(app.tokens) == 2


async def test_a_token_is_replaced_before_it_ends(hub: GitHub, host: Host, app: InstalledApp, clock: HandClock):
    here, number = tracker(hub, host), str(hub.open("bug").number)
    for minutes in (0, 54, 2, 54, 2):
        clock.advance(minutes * 60)
        assert await here.get(number) is not None
    assert len(app.tokens) == 3
    assert not [seen for seen in hub.seen if seen.status == 401]


@pytest.mark.parametrize("skew", [-55.0, 0.0, 55.0])
async def test_our_clock_may_be_a_minute_off(host: Host, clock: HandClock, skew: float):
    hub = GitHub(clock, skew=skew)
    hub.app = InstalledApp(SHOP)
    async with hub.serve():
        number = str(hub.open("bug").number)
        here = tracker(hub, host)
        assert await here.get(number) is not None
        clock.advance(3500)
        assert await here.get(number) is not None
    assert len(hub.app.tokens) == 2


async def test_a_clock_that_is_wrong_is_named(host: Host, clock: HandClock):
    hub = GitHub(clock, skew=-900.0)
    hub.app = InstalledApp(SHOP)
    async with hub.serve():
        with pytest.raises(NeedsAttention) as refused:
            await tracker(hub, host).get("1")
    assert "900 seconds off" in refused.value.fix


async def test_a_token_that_was_revoked_is_replaced(hub: GitHub, host: Host, app: InstalledApp, clock: HandClock):
    here, number = tracker(hub, host), str(hub.open("bug").number)
    await here.get(number)
    clock.advance(600)
    for token in app.tokens:
        del hub.tokens[token]
    assert await here.get(number) is not None
    assert len(app.tokens) == 2


async def test_a_token_that_is_not_known_yet_is_tried_again_later(
    hub: GitHub, host: Host, app: InstalledApp, clock: HandClock
):
    app.late = 3.0
    here, number = tracker(hub, host), str(hub.open("bug").number)
    with pytest.raises(RetryLater) as early:
        await here.get(number)
    assert early.value.after == 5.0
    clock.advance(5)
    assert await here.get(number) is not None
    assert len(app.tokens) == 1


async def test_an_app_that_is_not_installed_says_where_to(hub: GitHub, host: Host, app: InstalledApp):
    hub.add_repo("acme/secret")
    for name in ("acme/secret", "acme/nowhere"):
        with pytest.raises(NeedsAttention, match=f"not installed for {name}") as refused:
            await tracker(hub, host, name).get("1")
        assert "Install App" in refused.value.fix


async def test_a_wrong_key_a_wrong_id_and_a_suspended_app_say_what_to_do(hub: GitHub, host: Host, app: InstalledApp):
    with pytest.raises(NeedsAttention) as refused:
        await tracker(hub, host, app_id="Iv1.0123abc").get("1")
    assert "app_id" in refused.value.fix
    app.suspended = True
    with pytest.raises(NeedsAttention, match="suspended") as refused:
        await tracker(hub, host).get("1")
    assert "allow it again" in refused.value.fix
    assert "PRIVATE KEY" not in f"{refused.value} {refused.value.fix}"


async def test_a_failure_is_shared_by_all_who_wait_and_tried_again_by_the_next(
    hub: GitHub, host: Host, app: InstalledApp
):
    here, number = tracker(hub, host), str(hub.open("bug").number)
    hub.answers = [Answer(status=500, body=b"{}")]
    results = await asyncio.gather(*(here.get(number) for _ in range(6)), return_exceptions=True)
    assert all(isinstance(result, RetryLater) for result in results)
    assert len(hub.seen) == 1
    assert await here.get(number) is not None


async def test_a_repository_that_was_renamed_is_still_found(hub: GitHub, host: Host, app: InstalledApp):
    hub.add_repo("acme/store")
    hub.repos[SHOP].moved_to = "acme/store"
    app.repositories.add("acme/store")
    issue = hub.open("bug", repo="acme/store")
    ticket = await tracker(hub, host).get(str(issue.number))
    assert ticket is not None
    body = json.loads(asked(hub, "/access_tokens")[0].body)
    assert body["repository_ids"] == [hub.repos["acme/store"].id]
    await tracker(hub, host).comment(ticket, "hello")
    assert len(issue.comments) == 1


async def test_the_next_page_may_name_the_repository_by_its_number(hub: GitHub, host: Host, app: InstalledApp):
    hub.open("bug")
    api = github.api.Api(app_account(hub), host)
    reply = await api.get(f"{hub.url}/repositories/{hub.repos[SHOP].id}/issues?sort=updated&direction=asc&page=1")
    assert len(api.expect_list(reply)) == 1
    assert json.loads(asked(hub, "/access_tokens")[0].body)["repository_ids"] == [hub.repos[SHOP].id]


async def test_our_own_account_is_the_bot_of_the_app(hub: GitHub, host: Host, app: InstalledApp):
    here = tracker(hub, host)
    ours = await here.own_account()
    assert (ours.login, ours.bot) == ("harken-acme[bot]", True)
    ticket = await here.get(str(hub.open("bug").number))
    assert ticket is not None
    written = await here.comment(ticket, "hello")
    assert written.author is not None
    assert (written.author.id, written.author.bot) == (ours.id, True)


async def test_pull_requests_are_opened_by_the_app(hub: GitHub, host: Host, app: InstalledApp):
    hub.repos[SHOP].branches.append("harken/1")
    wanted = PullRequest(repo=SHOP, head="harken/1", base="main", title="Fix")
    assert (await tracker(hub, host).ensure_pull_request(wanted)).startswith("https://github.com/acme/shop/pull/")


async def test_whoami_and_check_know_the_app(hub: GitHub, host: Host, app: InstalledApp):
    assert plugin.whoami is not None
    assert plugin.check is not None
    told = await plugin.whoami(app_account(hub), host)
    assert told["login"] == "harken-acme[bot]"
    assert told["scopes"] == "issues: write, metadata: read, pull_requests: write"
    query = Query.model_validate({"repos": [SHOP, "acme/nowhere"], "author": ["leo"]})
    checked = await plugin.check(query, app_account(hub), host)
    assert set(checked.found) == {SHOP, "leo"}
    assert checked.unknown == ["the app is not installed for acme/nowhere, or there is no such repository"]


def test_an_account_has_a_token_or_an_app(hub: GitHub, app: InstalledApp):
    key = app.private_key
    assert app_account(hub, private_key=key.replace("\n", "\\n")).app_id == "1234"
    assert Account.model_validate(app_account(hub).model_dump()) == app_account(hub)
    elliptic = ec.generate_private_key(ec.SECP256R1())
    other = elliptic.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    wrong: list[dict[str, Any]] = [
        {},
        {"app_id": "1234"},
        {"private_key": key},
        {"app_id": "1234", "private_key": key, "token": "classic"},
        {"app_id": "1/../2", "private_key": key},
        {"app_id": "1234", "private_key": "app.pem"},
        {"app_id": "1234", "private_key": key[:-200]},
        {"app_id": "1234", "private_key": other},
    ]
    for fields in wrong:
        with pytest.raises(ValidationError) as refused:
            Account.model_validate(fields)
        assert key[100:140] not in str(refused.value)


def test_the_key_is_read_from_its_file(app: InstalledApp, tmp_path: Path):
    (tmp_path / "app.pem").write_text(app.private_key)
    integration = "{kind: github, app_id: 1234, private_key: '${file:app.pem}'}"
    (tmp_path / "harken.yaml").write_text(f"integrations:\n  github: {integration}\n")
    loaded = load_directory(tmp_path, {})
    assert [str(finding) for finding in loaded.findings] == []
    account = loaded.integrations["github"].model
    assert isinstance(account, Account)
    assert account.private_key is not None
    assert account.private_key.get_secret_value().strip() == app.private_key.strip()


def test_the_key_and_tokens_show_nowhere(hub: GitHub, app: InstalledApp):
    account = app_account(hub)
    app_itself = App("1234", app.private_key, hub.url)
    assert app.private_key[100:140] not in f"{account!r} {account} {app_itself!r}"


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("/repos/acme/shop/issues?labels=repos/x/y", "repos/acme/shop"),
        ("/repos/acme/shop", "repos/acme/shop"),
        ("/repositories/42/issues", "repositories/42"),
        ("/users/repos", ""),
        ("/graphql", ""),
        ("/user", ""),
    ],
)
def test_the_repository_of_an_address(url: str, found: str):
    assert repository_in(url) == found
