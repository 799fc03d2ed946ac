"""A user's consent: given on this machine, pasted, or with a code; refused, late, or meant for somebody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiohttp
import pytest
from yarl import URL

from harken.errors import NeedsAttention, Refused
from harken.http import Client
from harken.services.google import GoogleAccount, whoami
from harken.services.google.api import CALENDAR, GMAIL, GMAIL_READONLY
from harken.services.google.consent import obtain
from harken.source import Asking, Host
from harken.testing import HandClock
from harken.testing.fakes.google_oauth_base import CLIENT_ID, GoogleServer


@pytest.fixture
async def google(clock: HandClock) -> AsyncIterator[GoogleServer]:
    served = GoogleServer(clock)
    async with served.serve():
        yield served


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@dataclass
class User:
    """A person with a browser, who does `acts` when shown the page of the consent, and `pastes` what is asked for."""

    web: aiohttp.ClientSession
    acts: Callable[[str], Any] | None = None
    pastes: Callable[[], str] | None = None
    said: list[str] = field(default_factory=list)
    doing: list[asyncio.Task[Any]] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)

    async def agrees(self, address: str) -> None:
        """Open the page; the browser follows to wherever it is sent."""
        async with self.web.get(address) as page:
            self.pages.append(page.status)

    async def sent_to(self, address: str) -> URL:
        """Open the page, and look where the browser is sent."""
        async with self.web.get(address, allow_redirects=False) as page:
            return URL(page.headers["Location"], encoded=True)

    def browse(self, address: str) -> None:
        self.doing.append(asyncio.create_task((self.acts or self.agrees)(address)))

    def asking(self, **options: Any) -> Asking:
        answer = self.pastes or (lambda: "")
        return Asking(say=self.said.append, browse=self.browse, answer=lambda question: answer(), **options)


@pytest.fixture
def user(web: aiohttp.ClientSession) -> User:
    return User(web)


def client(google: GoogleServer) -> dict[str, Any]:
    return {name: value for name, value in google.account().items() if name != "refresh_token"}


async def signed_in(google: GoogleServer, host: Host, found: Any) -> str:
    account = GoogleAccount.model_validate({**client(google), **found})
    return str((await whoami(account, host))["email"])


class TestInABrowser:
    async def test_the_consent_gives_a_token_that_works(self, google: GoogleServer, host: Host, user: User):
        found = await obtain(client(google), user.asking(), host)
        assert await signed_in(google, host, found) == "ana@example.com"
        assert google.refresh_tokens[found["refresh_token"]] == {"openid", "email", GMAIL, CALENDAR}
        await asyncio.gather(*user.doing)
        assert user.pages == [200]

    async def test_the_address_is_printed_for_whoever_has_no_browser_that_opens(
        self, google: GoogleServer, host: Host, user: User
    ):
        user.acts = lambda address: user.agrees(user.said[-1])
        await obtain(client(google), user.asking(), host)

    async def test_less_may_be_asked_for(self, google: GoogleServer, host: Host, user: User):
        found = await obtain(client(google), user.asking(access=("gmail-readonly",)), host)
        assert google.refresh_tokens[found["refresh_token"]] == {"openid", "email", GMAIL_READONLY}

    async def test_a_consent_to_a_part_is_not_taken_for_the_whole(self, google: GoogleServer, host: Host, user: User):
        async def unticks(address: str) -> None:
            asked = URL(address)
            await user.agrees(str(asked.update_query(scope=f"openid email {CALENDAR}")))

        user.acts = unticks
        with pytest.raises(Refused, match="the user did not agree to gmail"):
            await obtain(client(google), user.asking(), host)

    async def test_an_answer_with_another_state_is_refused_and_the_waiting_goes_on(
        self, google: GoogleServer, host: Host, user: User
    ):
        async def is_attacked(address: str) -> None:
            landed = await user.sent_to(address)
            await user.agrees(str(landed.update_query(state="forged", code="4/of-the-attacker")))
            await user.agrees(str(landed.without_query_params("state")))
            await user.agrees(str(landed))

        user.acts = is_attacked
        found = await obtain(client(google), user.asking(), host)
        await asyncio.gather(*user.doing)
        assert user.pages == [400, 400, 200]
        assert await signed_in(google, host, found) == "ana@example.com"
        assert not any(b"attacker" in seen.body for seen in google.seen)

    async def test_a_user_who_says_no_is_heard(self, google: GoogleServer, host: Host, user: User):
        google.denies = True
        with pytest.raises(Refused, match="did not agree"):
            await obtain(client(google), user.asking(), host)

    async def test_a_no_with_another_state_is_not_a_no(self, google: GoogleServer, host: Host, user: User):
        async def is_attacked(address: str) -> None:
            landed = await user.sent_to(address)
            await user.agrees(str(landed.with_query(state="forged", error="access_denied")))
            await user.agrees(str(landed))

        user.acts = is_attacked
        assert await obtain(client(google), user.asking(), host)

    async def test_nobody_who_agrees_is_not_waited_for_for_ever(self, google: GoogleServer, host: Host, user: User):
        async def sleeps(address: str) -> None:
            await asyncio.sleep(0)

        user.acts = sleeps
        with pytest.raises(Refused, match=r"nobody agreed within 0 s.*--manual"):
            await obtain(client(google), user.asking(seconds=0.01), host)

    async def test_nobody_listens_any_more_once_it_is_over(self, google: GoogleServer, host: Host, user: User):
        await obtain(client(google), user.asking(), host)
        await asyncio.gather(*user.doing)
        with pytest.raises(aiohttp.ClientConnectorError):
            await user.agrees(URL(user.said[-1]).query["redirect_uri"])

    async def test_a_code_that_was_overheard_is_worth_nothing(self, google: GoogleServer, host: Host, user: User):
        async def is_overheard(address: str) -> None:
            landed = await user.sent_to(address)
            theirs = {**client(google), "grant_type": "authorization_code", "code": landed.query["code"]}
            redirect = URL(address).query["redirect_uri"]
            async with user.web.post(f"{google.url}/token", data={**theirs, "redirect_uri": redirect}) as reply:
                user.pages.append(reply.status)
            await user.agrees(str(landed))

        user.acts = is_overheard
        with pytest.raises(Refused, match="wrong, too old or used"):
            await obtain(client(google), user.asking(), host)
        assert user.pages[0] == 400, "without the verifier of this request"

    async def test_a_wrong_client_secret_is_said_to_be_wrong(self, google: GoogleServer, host: Host, user: User):
        wrong = {**client(google), "client_secret": "another"}
        with pytest.raises(NeedsAttention, match="The client's id or secret is wrong"):
            await obtain(wrong, user.asking(), host)

    async def test_no_code_and_no_secret_is_printed(self, google: GoogleServer, host: Host, user: User):
        found = await obtain(client(google), user.asking(), host)
        assert not any(secret in "".join(user.said) for secret in (found["refresh_token"], google.client_secret, "4/"))


class TestByHand:
    async def pasted(self, google: GoogleServer, host: Host, user: User, paste: Callable[[URL], str]) -> Any:
        """Ask by hand. The paste is made of the address that the user's browser is sent to."""
        loop = asyncio.get_running_loop()

        def from_the_browser() -> str:
            return paste(asyncio.run_coroutine_threadsafe(user.sent_to(user.said[1]), loop).result(10))

        user.pastes = from_the_browser
        # the question blocks, as it does at a terminal: so it has a thread and a loop of its own
        return await asyncio.to_thread(lambda: asyncio.run(_obtained(google, user.asking(way="manual"), host)))

    async def test_the_address_of_the_page_is_pasted(self, google: GoogleServer, host: Host, user: User):
        found = await self.pasted(google, host, user, str)
        assert await signed_in(google, host, found) == "ana@example.com"

    async def test_the_code_alone_is_enough(self, google: GoogleServer, host: Host, user: User):
        found = await self.pasted(google, host, user, lambda landed: f" {landed.query['code']}\n")
        assert await signed_in(google, host, found) == "ana@example.com"

    async def test_the_code_may_be_copied_as_the_address_bar_shows_it(
        self, google: GoogleServer, host: Host, user: User
    ):
        found = await self.pasted(google, host, user, lambda landed: landed.query["code"].replace("/", "%2F"))
        assert await signed_in(google, host, found) == "ana@example.com"

    async def test_the_address_of_another_request_is_refused(self, google: GoogleServer, host: Host, user: User):
        with pytest.raises(Refused, match="the answer to another request"):
            await self.pasted(google, host, user, lambda landed: str(landed.update_query(state="older")))

    async def test_a_user_who_says_no_is_heard(self, google: GoogleServer, host: Host, user: User):
        google.denies = True
        with pytest.raises(Refused, match="did not agree"):
            await self.pasted(google, host, user, str)

    @pytest.mark.parametrize("text", ["", "I do not know"])
    async def test_something_else_is_refused(self, google: GoogleServer, host: Host, user: User, text: str):
        with pytest.raises(Refused, match="neither an address nor a code"):
            await self.pasted(google, host, user, lambda landed: text)


async def _obtained(google: GoogleServer, asking: Asking, host: Host) -> Any:
    http = Client(host.clock)
    try:
        lent = Host(http=http, clock=host.clock, random=Random(1), allow_private=True)
        return await obtain(client(google), asking, lent)
    finally:
        await http.close()


class TestOnADevice:
    ACCESS = ("calendar",)

    def answered(self, google: GoogleServer, after: int, answer: Any) -> None:
        """The user acts once the device has asked so often."""

        def decide() -> None:
            (grant,) = google.grants.values()
            grant.answer = answer

        google.after = {1 + after: decide}

    async def test_the_code_is_entered_elsewhere(self, google: GoogleServer, host: Host, user: User):
        self.answered(google, 2, "given")
        found = await obtain(client(google), user.asking(way="device", access=self.ACCESS), host)
        assert await signed_in(google, host, found) == "ana@example.com"
        assert user.said == [f"On any device, open {google.url}/device and enter the code GQVQ-JKEC"]
        assert [seen.status for seen in google.seen if seen.path == "/token"][:3] == [428, 428, 200]

    async def test_gmail_is_refused_with_the_reason(self, google: GoogleServer, host: Host, user: User):
        with pytest.raises(Refused, match=r"does not give access to Gmail.*--manual.*--device --access calendar"):
            await obtain(client(google), user.asking(way="device"), host)
        assert google.seen == []

    async def test_a_device_that_asks_too_often_slows_down(
        self, clock: HandClock, google: GoogleServer, host: Host, user: User
    ):
        google.interval = 5
        self.answered(google, 2, "given")
        google.after[1] = lambda: setattr(google, "interval", 8)
        await obtain(client(google), user.asking(way="device", access=self.ACCESS), host)
        assert [seen.status for seen in google.seen if seen.path == "/token"][:3] == [428, 403, 200]

    async def test_a_user_who_says_no_is_heard(self, google: GoogleServer, host: Host, user: User):
        self.answered(google, 1, "denied")
        with pytest.raises(Refused, match="did not agree"):
            await obtain(client(google), user.asking(way="device", access=self.ACCESS), host)

    async def test_nobody_is_waited_for_for_ever(self, google: GoogleServer, host: Host, user: User):
        with pytest.raises(Refused, match="not entered in time"):
            await obtain(client(google), user.asking(way="device", access=self.ACCESS, seconds=60), host)

    async def test_a_client_for_desktops_is_told_apart(self, google: GoogleServer, host: Host, user: User):
        wrong = {**client(google), "client_id": f"desktop-{CLIENT_ID}"}
        with pytest.raises(NeedsAttention, match="TVs and Limited Input devices"):
            await obtain(wrong, user.asking(way="device", access=self.ACCESS), host)


async def test_an_access_that_is_not_known_is_refused(google: GoogleServer, host: Host, user: User):
    with pytest.raises(Refused, match="Use: gmail, gmail-readonly, calendar"):
        await obtain(client(google), user.asking(access=("drive",)), host)
