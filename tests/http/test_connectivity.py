"""Being offline is told from a service that is away."""

from __future__ import annotations

import errno
import socket

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from harken.clock import SystemClock
from harken.errors import ConnectionFault, NoConnection, Offline, RetryLater
from harken.http import Client, Connectivity
from harken.http.error_translation import translate_error
from harken.testing import HandClock
from tests.http.loopback import Dns, Server

KEY = ConnectionKey("api.example", 443, True, True, None, None, None)


def missed(host: str, cause: ConnectionFault = "refused", *, private: bool = False) -> NoConnection:
    return NoConnection(f"could not connect to {host}", host=host, cause=cause, private=private)


@pytest.mark.parametrize("cause", ["no_route", "no_dns"])
def test_without_a_route_or_dns_one_host_is_enough_to_tell(cause: ConnectionFault) -> None:
    found = Connectivity(HandClock()).judge(missed("a.example", cause))
    assert isinstance(found, Offline)
    assert str(found) == "offline: could not connect to a.example"


@pytest.mark.parametrize("cause", ["refused", "timeout", "unknown_name"])
def test_one_host_that_cannot_be_reached_is_away_and_all_hosts_are_offline(cause: ConnectionFault) -> None:
    connectivity = Connectivity(HandClock())
    for _ in range(20):
        error = missed("a.example", cause)
        assert connectivity.judge(error) is error
    assert isinstance(connectivity.judge(missed("b.example", cause)), Offline)
    assert isinstance(connectivity.judge(missed("a.example", cause)), Offline)


def test_a_host_is_away_from_the_moment_when_another_one_answers() -> None:
    clock = HandClock()
    connectivity = Connectivity(clock)
    connectivity.answered("b.example", private=False)
    clock.advance(1)
    for _ in range(3):
        assert isinstance(connectivity.judge(missed("a.example", "no_dns")), Offline)
        clock.advance(60)
    connectivity.answered("b.example", private=False)
    for _ in range(20):
        clock.advance(600)
        assert not isinstance(connectivity.judge(missed("a.example", "no_dns")), Offline)


def test_a_host_that_was_away_and_answers_may_be_offline_the_next_time() -> None:
    clock = HandClock()
    connectivity = Connectivity(clock)
    connectivity.judge(missed("a.example", "no_dns"))
    connectivity.answered("b.example", private=False)
    assert not isinstance(connectivity.judge(missed("a.example", "no_dns")), Offline)
    connectivity.answered("a.example", private=False)
    clock.advance(60)
    assert isinstance(connectivity.judge(missed("a.example", "no_dns")), Offline)


def test_a_name_that_was_known_before_is_not_unknown_but_nobody_can_be_asked() -> None:
    clock = HandClock()
    connectivity = Connectivity(clock)
    connectivity.answered("a.example", private=False)
    clock.advance(60)
    assert isinstance(connectivity.judge(missed("a.example", "unknown_name")), Offline)


def test_hosts_that_were_missed_long_ago_tell_nothing() -> None:
    clock = HandClock()
    connectivity = Connectivity(clock)
    connectivity.judge(missed("b.example"))
    clock.advance(900)
    assert not isinstance(connectivity.judge(missed("a.example")), Offline)


def test_a_private_network_tells_nothing_about_the_internet() -> None:
    clock = HandClock()
    connectivity = Connectivity(clock)
    connectivity.judge(missed("a.example", "no_dns"))
    connectivity.judge(missed("other.example", "no_dns", private=True))
    clock.advance(1)
    connectivity.answered("nas.example", private=True)
    assert isinstance(connectivity.judge(missed("a.example", "no_dns")), Offline)
    assert not isinstance(connectivity.judge(missed("other.example", "no_dns", private=True)), Offline)
    assert not isinstance(Connectivity(HandClock()).judge(missed("nas.example", private=True)), Offline)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.3.2.1", "::1"])
def test_loopback_tells_nothing_and_is_never_offline(host: str) -> None:
    connectivity = Connectivity(HandClock())
    connectivity.answered(host, private=True)
    assert isinstance(connectivity.judge(missed("nas.example", "no_route", private=True)), Offline)
    assert not isinstance(connectivity.judge(missed(host, "no_route", private=True)), Offline)


def test_every_other_error_stays_as_it_is() -> None:
    error = RetryLater("a.example answered 503")
    assert Connectivity(HandClock()).judge(error) is error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(socket.EAI_AGAIN, "try again")), "no_dns"),
        (aiohttp.ClientConnectorDNSError(KEY, socket.gaierror(socket.EAI_NONAME, "unknown")), "unknown_name"),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ENETUNREACH, "no route")), "no_route"),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.ECONNREFUSED, "refused")), "refused"),
        (aiohttp.ClientConnectorError(KEY, OSError(errno.EHOSTUNREACH, "no way")), "refused"),
        (aiohttp.ClientConnectorError(KEY, OSError("Multiple exceptions")), "refused"),
        (aiohttp.ClientProxyConnectionError(KEY, OSError(errno.ECONNREFUSED, "refused")), "no_route"),
        (aiohttp.ConnectionTimeoutError("too late"), "timeout"),
    ],
)
def test_what_was_met_on_the_way_is_told_by_its_kind_and_never_by_its_text(
    error: Exception, cause: ConnectionFault
) -> None:
    found = translate_error(error, URL("https://api.example/x"), 10)
    assert isinstance(found, NoConnection)
    assert (found.host, found.cause) == ("api.example", cause)


@pytest.mark.parametrize(
    "error",
    [
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientOSError(errno.ECONNRESET, "reset"),
        aiohttp.ClientPayloadError("half"),
        TimeoutError(),
    ],
)
def test_a_connection_that_was_made_and_broke_is_no_missing_one(error: Exception) -> None:
    assert not isinstance(translate_error(error, URL("https://api.example/x"), 10), NoConnection)


async def test_the_client_notes_who_answers(server: Server) -> None:
    client = Client(SystemClock(), resolver=Dns(a_example=[["127.0.0.1"]]))
    error = missed("b.example", "no_route", private=True)
    assert isinstance(client.connectivity.judge(error), Offline)
    await client.request("GET", server.url("/", "a.example"), allow_private=True)
    assert client.connectivity.judge(error) is error
    await client.close()
