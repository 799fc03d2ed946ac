from __future__ import annotations

import socket
from ipaddress import IPv6Address

import pytest

from harken.clock import SystemClock
from harken.errors import Refused
from harken.http import Client, HttpSettings
from harken.http.guard import GuardedResolver, check_address, check_url, guarded_sockets, literal_address
from tests.http.loopback import Dns, Server, reply

PRIVATE = [
    "127.0.0.1",
    "127.0.0.2",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "198.18.0.1",
    "::1",
    "fc00::1",
    "fd12:3456::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2002:0a00:0001::1",
]
NEVER = [
    "0.0.0.0",
    "0.1.2.3",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.1.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "fe80::1",
    "fe80::1%1",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "::ffff:0:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::7f00:1",
    "2002:a9fe:a9fe::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "100::1",
]
PUBLIC = [
    "8.8.8.8",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "169.253.1.1",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
]
ODD = {
    "2130706433": "127.0.0.1",
    "0x7f000001": "127.0.0.1",
    "0x7f.1": "127.0.0.1",
    "0177.0.0.1": "127.0.0.1",
    "017700000001": "127.0.0.1",
    "127.1": "127.0.0.1",
    "127.0.0.1.": "127.0.0.1",
    "0": "0.0.0.0",
    "2852039166": "169.254.169.254",
    "0XA9FEA9FE": "169.254.169.254",
}


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_refused_with_the_setting_that_allows_it(address: str) -> None:
    with pytest.raises(Refused, match=r"intranet is at .*allow_private_networks: true"):
        check_address("intranet", address, False)


def test_a_refused_private_address_says_where_a_job_allows_it() -> None:
    with pytest.raises(Refused, match=r"allow_private_networks: true where .* in config: of a job"):
        check_address("intranet", "10.0.0.1", False)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_private_address_is_allowed_on_request(address: str) -> None:
    check_address("intranet", address, True)


@pytest.mark.parametrize("allow_private", [False, True])
@pytest.mark.parametrize("address", NEVER)
def test_metadata_and_special_addresses_are_refused_whatever_is_allowed(address: str, allow_private: bool) -> None:
    with pytest.raises(Refused) as refused:
        check_address("sly.example", address, allow_private)
    assert "allow_private_networks" not in str(refused.value)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_allowed(address: str) -> None:
    check_address("api.example", address, False)


@pytest.mark.parametrize(("written", "meant"), ODD.items())
def test_odd_notations_are_read_as_the_address_they_mean(written: str, meant: str) -> None:
    assert str(literal_address(written)) == meant


@pytest.mark.parametrize("name", ["fda.gov", "fe80.example", "10.example.com", "127.0.0.1.nip.io", "0xfoo"])
def test_names_that_look_like_addresses_are_names(name: str) -> None:
    assert literal_address(name) is None
    assert check_url(f"https://{name}/x", False).host == name


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2/",
        "http://0.0.0.0/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://user@127.0.0.1/",
        "http://api.example:secret@127.0.0.1/",
        "http://api.example@127.0.0.1:80/",
        "http://127.0.0.1./",
        "http://127。0。0。1/",
        "http://①②⑦.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
    ],
)
async def test_no_way_of_writing_an_internal_address_passes(client: Client, url: str) -> None:
    with pytest.raises(Refused) as refused:
        await client.request("GET", url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://x/",
        "gopher://x/",
        "//x/y",
        "nonsense",
        "http://",
        "",
        "http://[::1",
        "http://x:99999/",
    ],
)
async def test_only_whole_http_urls_are_fetched(client: Client, url: str) -> None:
    with pytest.raises(Refused):
        await client.request("GET", url)


async def test_loopback_is_refused_even_when_it_has_a_name(server: Server) -> None:
    client = Client(SystemClock(), resolver=Dns(app_example=[["127.0.0.1"]]))
    with pytest.raises(Refused, match=r"app\.example is at 127\.0\.0\.1, a private address"):
        await client.request("GET", server.url(host="app.example"))
    await client.close()
    assert server.connections == 0


async def test_one_bad_address_among_good_ones_refuses_the_name(server: Server) -> None:
    client = Client(SystemClock(), resolver=Dns(app_example=[["8.8.8.8", "127.0.0.1"]]))
    with pytest.raises(Refused, match=r"127\.0\.0\.1"):
        await client.request("GET", server.url(host="app.example"))
    await client.close()


async def test_the_address_checked_is_the_address_dialled(server: Server) -> None:
    dns = Dns(app_example=[["127.0.0.1"], ["169.254.169.254"]])
    client = Client(SystemClock(), resolver=dns)
    answered = await client.request("GET", server.url(host="app.example"), allow_private=True)
    await client.close()
    assert (answered.status, dns.questions) == (200, 1)


async def test_a_name_that_is_rebound_later_is_checked_again(server: Server) -> None:
    dns = Dns(app_example=[["127.0.0.1"], ["169.254.169.254"]])
    client = Client(SystemClock(), settings=HttpSettings(dns_cache_seconds=0), resolver=dns)
    server.answer = lambda _: reply(200, Connection="close")
    await client.request("GET", server.url(host="app.example"), allow_private=True)
    with pytest.raises(Refused, match=r"169\.254\.169\.254.*never allowed"):
        await client.request("GET", server.url(host="app.example"), allow_private=True)
    await client.close()
    assert (dns.questions, server.connections) == (2, 1)


async def test_a_rebound_public_name_is_refused_at_the_second_answer() -> None:
    resolver = GuardedResolver(Dns(app_example=[["8.8.8.8"], ["10.0.0.1"]]), allow_private=False)
    first = await resolver.resolve("app.example", 80)
    assert [result["host"] for result in first] == ["8.8.8.8"]
    with pytest.raises(Refused):
        await resolver.resolve("app.example", 80)


async def test_what_one_caller_may_reach_is_not_cached_for_another(server: Server) -> None:
    client = Client(SystemClock(), resolver=Dns(app_example=[["127.0.0.1"]]))
    url = server.url(host="app.example")
    assert (await client.request("GET", url, allow_private=True)).status == 200
    with pytest.raises(Refused):
        await client.request("GET", url)
    assert (await client.request("GET", url, allow_private=True)).status == 200
    await client.close()
    assert len(server.asked) == 2


def test_the_socket_maker_has_the_last_word() -> None:
    make = guarded_sockets(False)
    with pytest.raises(Refused):
        make((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80)))
    with make((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("8.8.8.8", 80))) as made:
        assert made.family == socket.AF_INET


async def test_a_redirect_to_the_metadata_service_is_refused(client: Client, server: Server) -> None:
    server.answer = lambda _: reply(302, Location="http://169.254.169.254/latest/")
    with pytest.raises(Refused, match=r"169\.254\.169\.254"):
        await client.request("GET", server.url(), allow_private=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "[::1]", "0x7f.1", "localhost", "x.localhost"])
async def test_a_public_server_cannot_redirect_inside(server: Server, host: str) -> None:
    # the proxy plays the public internet: it answers for any name
    client = Client(SystemClock(), settings=HttpSettings(proxy=server.url()))
    server.answer = lambda _: reply(302, Location=f"http://{host}:{server.port}/admin")
    with pytest.raises(Refused, match="allow_private_networks"):
        await client.request("GET", "http://public.example/")
    await client.close()
    assert [asked.target for asked in server.asked] == ["http://public.example/"]


async def test_a_redirect_to_a_name_that_leads_inside_is_refused(server: Server) -> None:
    client = Client(SystemClock(), resolver=Dns(app_example=[["127.0.0.1"]], sly_example=[["169.254.169.254"]]))
    server.answer = lambda _: reply(302, Location="http://sly.example/latest/")
    with pytest.raises(Refused, match=r"sly\.example is at 169\.254\.169\.254"):
        await client.request("GET", server.url(host="app.example"), allow_private=True)
    await client.close()


def test_a_6to4_address_is_judged_by_the_address_it_leads_to_whatever_python_says_of_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python 3.11.2 of Debian 12 calls the whole range private."""
    monkeypatch.setattr(IPv6Address, "is_global", property(lambda self: False))
    check_address("elsewhere", "2002:808:808::1", False)
    check_address("intranet", "2002:7f00:1::", True)
