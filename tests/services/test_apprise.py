"""Apprise: which URL a message goes to, what is done about addresses, and what its silence means."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from harken.errors import NeedsAttention, RetryLater
from harken.services.apprise import Account, AppriseDestination, plugin
from harken.source import Host, Message
from harken.testing import HandClock
from harken.testing.fakes import Answer
from tests.services.outlets import APPRISE, FakeHook

TOKENS = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general"


@pytest.fixture
async def hook(clock: HandClock) -> AsyncIterator[FakeHook]:
    fake = FakeHook(clock)
    async with fake.serve():
        yield fake


def url(hook: FakeHook, scheme: str = "json", path: str = "hook") -> str:
    return f"{scheme}://ana:{APPRISE}@{hook.url.removeprefix('http://')}/{path}"


def services(host: Host, **fields: Any) -> AppriseDestination:
    return AppriseDestination(Account.model_validate(fields), host)


def message(to: str = "default", text: str = "the disk is full") -> Message:
    return Message(to=to, text=text, idempotency_key="run-1")


class TestNames:
    async def test_a_url_without_a_name_is_the_default(self, hook: FakeHook, host: Host):
        said = await services(host, url=url(hook)).deliver(message())
        assert (said, len(hook.sent)) == ({"service": "JSON"}, 1)

    async def test_an_unknown_name_is_told_those_that_there_are(self, hook: FakeHook, host: Host):
        with pytest.raises(NeedsAttention) as caught:
            await services(host, url=url(hook), urls={"phone": url(hook)}).deliver(message("tablet"))
        assert caught.value.fix == "Write one of: default, phone"

    async def test_a_url_in_place_of_a_name_goes_nowhere(self, hook: FakeHook, host: Host):
        with pytest.raises(NeedsAttention):
            await services(host, urls={"phone": url(hook)}).deliver(message(url(hook)))
        assert hook.sent == []

    @pytest.mark.parametrize("wrong", ["no such thing", "nope://x", "json://", "file:///etc/passwd", ""])
    async def test_a_url_that_is_none_needs_a_person_and_is_not_told(self, host: Host, wrong: str):
        with pytest.raises(NeedsAttention, match="does not understand") as caught:
            await services(host, url=wrong).deliver(message())
        assert "passwd" not in str(caught.value)

    @pytest.mark.parametrize("wrong", [{}, {"url": "json://x", "urls": {"default": "json://y"}}, {"token": "x"}])
    def test_a_wrong_account_is_refused(self, wrong: Any):
        with pytest.raises(ValidationError):
            Account.model_validate(wrong)

    def test_no_url_is_in_the_words_of_an_account(self):
        assert APPRISE not in repr(Account.model_validate({"urls": {"x": f"json://ana:{APPRISE}@x.example"}}))


class TestAddresses:
    async def test_a_private_address_needs_permission(self, hook: FakeHook, host: Host):
        guarded = Host(http=host.http, clock=host.clock, random=host.random)
        with pytest.raises(NeedsAttention, match="a private address"):
            await services(guarded, url=url(hook)).deliver(message())
        assert hook.sent == []

    async def test_the_metadata_service_is_never_reached(self, host: Host):
        with pytest.raises(NeedsAttention, match="never allowed"):
            await services(host, url="json://169.254.169.254/latest").deliver(message())

    async def test_a_token_in_place_of_a_host_is_not_asked_of_a_name_server(
        self, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        asked: list[Any] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lambda *args, **more: asked.append(args))
        from apprise import Apprise

        service: Any = Apprise.instantiate(TOKENS)
        await services(host, url=TOKENS)._guard(service)
        assert (service.host, asked) == ("T1JJ3T3L2", [])

    async def test_apprises_own_connections_pass_the_guard_also_when_a_name_leads_elsewhere_later(
        self, hook: FakeHook, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        public = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 0))]

        async def first_answer(*args: Any, **more: Any) -> Any:
            return public

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", first_answer)
        guarded = Host(http=host.http, clock=host.clock, random=host.random)
        rebound = url(hook).replace("127.0.0.1", "localhost")
        with pytest.raises(NeedsAttention, match=r"a server that Apprise connects to is at .*, a private address"):
            await services(guarded, url=rebound).deliver(message())
        assert hook.sent == []

    async def test_a_host_in_another_part_of_a_url_passes_the_guard_too(self, hook: FakeHook, host: Host):
        guarded = Host(http=host.http, clock=host.clock, random=host.random)
        port = hook.url.rpartition(":")[2]
        mail = f"mailto://ana:{APPRISE}@93.184.216.34:{port}?smtp=127.0.0.1&to=bo@example.com"
        with pytest.raises(NeedsAttention, match=r"a server that Apprise connects to is at 127\.0\.0\.1"):
            await services(guarded, url=mail).deliver(message())

    async def test_a_proxy_of_the_environment_may_be_in_a_private_network(
        self, hook: FakeHook, host: Host, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("http_proxy", hook.url)
        guarded = Host(http=host.http, clock=host.clock, random=host.random)
        hook.answers = [Answer(status=403)]
        with pytest.raises(NeedsAttention, match="answered 403"):
            await services(guarded, url=f"json://ana:{APPRISE}@93.184.216.34/hook").deliver(message())

    async def test_connections_of_others_are_not_checked(self, hook: FakeHook, host: Host):
        await services(host, url=url(hook)).deliver(message())
        with socket.create_connection(("127.0.0.1", int(hook.url.rpartition(":")[2]))) as ours:
            assert ours.fileno() > 0

    async def test_a_redirect_is_not_followed(self, hook: FakeHook, host: Host):
        hook.answers = [Answer(status=307, headers={"Location": f"{hook.url}/hook"})]
        with pytest.raises(RetryLater):
            await services(host, url=url(hook)).deliver(message())
        assert hook.sent == []


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names.append(record.name)


class TestRefusals:
    async def test_nobody_there_may_pass(self, host: Host):
        with pytest.raises(RetryLater, match="does not say why"):
            await services(host, url="json://127.0.0.1:9/x").deliver(message())

    async def test_two_messages_at_once_do_not_mix_up_their_refusals(self, hook: FakeHook, host: Host):
        both = services(host, urls={"lost": url(hook, path="lost"), "fine": url(hook)})
        sent: list[Any] = await asyncio.gather(
            both.deliver(message("lost")), both.deliver(message("fine")), return_exceptions=True
        )
        assert [type(said) for said in sent] == [NeedsAttention, dict]

    async def test_other_services_may_tell_their_status_too(self, hook: FakeHook, host: Host):
        hook.answers = [Answer(status=403)]
        with pytest.raises(NeedsAttention, match="answered 403"):
            await services(host, url=url(hook, "xml")).deliver(message())

    async def test_what_apprise_logs_is_not_in_our_logs(self, hook: FakeHook, host: Host):
        ours = Records()
        logging.getLogger().addHandler(ours)
        hook.answers = [Answer(status=401)]
        with pytest.raises(NeedsAttention):
            await services(host, url=url(hook)).deliver(message())
        logging.getLogger().removeHandler(ours)
        assert [name for name in ours.names if name.startswith("apprise")] == []

    async def test_the_loop_goes_on_while_a_service_hangs(self, hook: FakeHook, host: Host):
        hook.answers = [Answer(hang=True)]
        sending = asyncio.create_task(services(host, url=f"{url(hook)}?rto=1").deliver(message()))
        turns = 0
        while not sending.done():
            await asyncio.wait([sending], timeout=0.05)
            turns += 1
        assert isinstance(sending.exception(), RetryLater)
        assert turns > 10

    async def test_a_missing_package_says_how_to_install_it(self, host: Host, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setitem(sys.modules, "apprise", None)
        with pytest.raises(NeedsAttention, match=r"pip install 'harken\[apprise\]'"):
            await services(host, url="json://x.example").deliver(message())


def test_the_environment_can_hold_the_url():
    assert plugin.environment == {"APPRISE_URL": "url"}
