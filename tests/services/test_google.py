"""The Google account: one token for all who use it, and refusals that say what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from harken.errors import NeedsAttention, RetryLater
from harken.services.google import GoogleAccount, GoogleClient, plugin, whoami
from harken.services.google.api import CALENDAR
from harken.source import Host
from harken.testing import HandClock
from harken.testing.fakes import Answer
from harken.testing.fakes.google_calendar import GoogleCalendar
from harken.testing.fakes.google_oauth_base import REFRESH_TOKEN, GoogleServer


@pytest.fixture
async def google(clock: HandClock) -> AsyncIterator[GoogleServer]:
    served = GoogleServer(clock)
    async with served.serve():
        yield served


@pytest.fixture
def account(google: GoogleServer) -> GoogleAccount:
    return GoogleAccount.model_validate(google.account())


async def ask(account: GoogleAccount, host: Host) -> int:
    return (await GoogleClient.of(account, host).request("GET", f"{account.base_url}/v1/userinfo")).status


def refused(status: int, error: dict[str, Any], **headers: str) -> Answer:
    return Answer(status=status, headers=headers, body=msgspec.json.encode({"error": error}))


async def test_the_account_says_whose_consent_it_is(account: GoogleAccount, host: Host):
    assert await whoami(account, host) == {"email": "ana@example.com", "id": "1122334455"}


def test_without_an_address_of_its_own_google_is_asked():
    account = GoogleAccount.model_validate({"client_id": "id", "client_secret": "s", "refresh_token": "r"})
    assert account.token_url == "https://oauth2.googleapis.com/token"
    assert account.calendar_url == "https://www.googleapis.com/calendar/v3"
    assert account.gmail_url == "https://gmail.googleapis.com/gmail/v1"


def test_the_environment_may_hold_the_account():
    assert set(plugin.environment.values()) == {"client_id", "client_secret", "refresh_token"}


class TestTheToken:
    async def test_fifty_callers_at_once_ask_for_it_once(
        self, google: GoogleServer, account: GoogleAccount, host: Host
    ):
        lent = [replace(host) for _ in range(50)]
        assert await asyncio.gather(*(ask(account, one) for one in lent)) == [200] * 50
        assert google.refreshes == 1

    async def test_fifty_callers_whose_token_ended_ask_for_another_once(
        self, google: GoogleServer, account: GoogleAccount, host: Host
    ):
        await ask(account, host)
        google.expire_tokens()
        assert await asyncio.gather(*(ask(account, host) for _ in range(50))) == [200] * 50
        assert google.refreshes == 2

    async def test_fifty_callers_without_consent_ask_for_it_once(
        self, google: GoogleServer, account: GoogleAccount, host: Host
    ):
        google.revoke()
        told = await asyncio.gather(*(ask(account, host) for _ in range(50)), return_exceptions=True)
        assert {type(error) for error in told} == {NeedsAttention}
        assert google.refreshes == 1

    async def test_it_is_kept_until_shortly_before_its_end(
        self, clock: HandClock, google: GoogleServer, account: GoogleAccount, host: Host
    ):
        await ask(account, host)
        clock.advance(google.life - 100)
        await ask(account, host)
        assert google.refreshes == 1
        clock.advance(50)
        await ask(account, host)
        assert google.refreshes == 2
        assert 401 not in [seen.status for seen in google.seen]

    async def test_a_new_consent_is_used_at_once(self, google: GoogleServer, account: GoogleAccount, host: Host):
        await ask(account, host)
        google.revoke()
        google.refresh_tokens["1//another"] = frozenset({"openid"})
        renewed = GoogleAccount.model_validate({**google.account(), "refresh_token": "1//another"})
        assert await ask(renewed, host) == 200

    async def test_one_that_is_refused_twice_is_given_up(
        self, google: GoogleServer, account: GoogleAccount, host: Host
    ):
        await ask(account, host)
        google.expire_tokens()
        google.after = dict.fromkeys(range(len(google.seen) + 9), google.expire_tokens)
        with pytest.raises(NeedsAttention, match="Give the consent again with harken integrations google configure"):
            await ask(account, host)
        assert [seen.status for seen in google.seen[-3:]] == [401, 200, 401]

    async def test_no_secret_is_in_an_error_or_a_repr(self, google: GoogleServer, account: GoogleAccount, host: Host):
        await ask(account, host)
        google.revoke()
        with pytest.raises(NeedsAttention) as caught:
            await ask(account, host)
        client = GoogleClient.of(account, host)
        shown = f"{caught.value!r} {caught.value} {account!r} {client!r} {host.shared!r}"
        assert not any(secret in shown for secret in (REFRESH_TOKEN, google.client_secret, "ya29."))


class TestARefusedRefresh:
    async def test_a_withdrawn_consent_needs_a_person(self, google: GoogleServer, account: GoogleAccount, host: Host):
        google.revoke()
        with pytest.raises(NeedsAttention, match=r"invalid_grant.*harken integrations google configure"):
            await ask(account, host)

    async def test_a_wrong_client_needs_a_person(self, google: GoogleServer, account: GoogleAccount, host: Host):
        google.client_secret = "another"
        with pytest.raises(NeedsAttention, match=r"invalid_client.*harken integrations google configure"):
            await ask(account, host)

    @pytest.mark.parametrize("status", [500, 503])
    async def test_trouble_at_google_passes(
        self, google: GoogleServer, account: GoogleAccount, host: Host, status: int
    ):
        google.answers = [Answer(status=status, body=b"<html>oops</html>")]
        with pytest.raises(RetryLater):
            await ask(account, host)
        assert await ask(account, host) == 200

    async def test_a_gateway_that_answers_without_json_is_not_taken_for_google(
        self, google: GoogleServer, account: GoogleAccount, host: Host
    ):
        google.answers = [Answer(body=b"<html>log in to the hotel</html>")]
        with pytest.raises(RetryLater, match="not JSON"):
            await ask(account, host)

    async def test_the_secrets_follow_no_redirect(self, google: GoogleServer, account: GoogleAccount, host: Host):
        google.answers = [Answer(status=307, headers={"Location": f"{google.url}/token"})]
        with pytest.raises(NeedsAttention):
            await ask(account, host)
        assert len(google.seen) == 1


class TestARefusedRequest:
    @pytest.mark.parametrize("reason", ["rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"])
    async def test_too_many_calls_are_told_by_403(
        self, google: GoogleServer, account: GoogleAccount, host: Host, reason: str
    ):
        google.limit(60, reason=reason)
        with pytest.raises(RetryLater) as caught:
            await ask(account, host)
        assert caught.value.reason == "rate_limited"

    async def test_a_403_may_ask_for_a_wait(self, google: GoogleServer, account: GoogleAccount, host: Host):
        await ask(account, host)
        google.answers = [refused(403, {"errors": [{"reason": "rateLimitExceeded"}]}, **{"Retry-After": "17"})]
        with pytest.raises(RetryLater) as caught:
            await ask(account, host)
        assert (caught.value.reason, caught.value.after) == ("rate_limited", 17)

    async def test_too_many_calls_are_told_by_429(self, google: GoogleServer, account: GoogleAccount, host: Host):
        google.limit(60, status=429)
        with pytest.raises(RetryLater) as caught:
            await ask(account, host)
        assert (caught.value.reason, caught.value.after) == ("rate_limited", 60)

    async def test_the_words_of_newer_apis_are_known(self, google: GoogleServer, account: GoogleAccount, host: Host):
        await ask(account, host)
        google.answers = [refused(403, {"status": "PERMISSION_DENIED", "details": [{"reason": "RATE_LIMIT_EXCEEDED"}]})]
        with pytest.raises(RetryLater):
            await ask(account, host)

    async def test_words_in_a_message_mean_nothing(self, google: GoogleServer, account: GoogleAccount, host: Host):
        await ask(account, host)
        message = "rateLimitExceeded 401 insufficientPermissions"
        google.answers = [refused(403, {"message": message, "errors": [{"reason": "forbidden"}]})]
        with pytest.raises(NeedsAttention, match="Check that the user may see and do this") as caught:
            await ask(account, host)
        assert message not in str(caught.value)

    async def test_an_api_that_is_switched_off_is_said_to_be(
        self, google: GoogleServer, account: GoogleAccount, host: Host
    ):
        await ask(account, host)
        google.answers = [refused(403, {"errors": [{"reason": "accessNotConfigured"}]})]
        with pytest.raises(NeedsAttention, match="Enable this API"):
            await ask(account, host)

    async def test_a_missing_scope_is_named(self, clock: HandClock, host: Host):
        google = GoogleCalendar(clock, scopes=frozenset({"openid"}))
        async with google.serve():
            account = GoogleAccount.model_validate(google.account())
            with pytest.raises(NeedsAttention, match=CALENDAR):
                await GoogleClient.of(account, host).request("GET", f"{account.calendar_url}/calendars/primary")

    async def test_what_depends_on_the_request_is_for_the_caller(
        self, google: GoogleServer, account: GoogleAccount, host: Host
    ):
        await ask(account, host)
        google.answers = [Answer(status=status) for status in (400, 404, 410)]
        assert [await ask(account, host) for _ in range(3)] == [400, 404, 410]

    @pytest.mark.parametrize("status", [500, 503])
    async def test_trouble_at_google_passes(
        self, google: GoogleServer, account: GoogleAccount, host: Host, status: int
    ):
        await ask(account, host)
        google.answers = [Answer(status=status)]
        with pytest.raises(RetryLater):
            await ask(account, host)
