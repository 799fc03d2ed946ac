"""The host of a query, which decides whose quota and which shard a feed has."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from harken.config.feeds import host_of


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/items?after=http://other.example/",
        "https://API.example.com:8443?x=1",
        "https://user:word@example.com/#fragment",
        "http://[2001:db8::1]:80/a",
        "//example.com/a?b=https://other.example",
        "example.com/a",
        "?u=https://example.com/",
        "https:///nothing",
        " https://example.com/a",
        "ht\ntps://exam\tple.com/a",
        "https://example.com\\a/b",
    ],
)
def test_it_is_the_host_that_the_standard_library_finds(url: str) -> None:
    assert host_of({"url": url}) == (urlsplit(url).hostname or "")


def test_what_is_no_address_has_none() -> None:
    assert host_of({"url": "http://[::1/a"}) == ""
    assert host_of({}) == ""


def test_the_first_address_of_the_query_counts_and_else_that_of_the_account() -> None:
    assert host_of({"feed_url": "https://a.example/x", "url": "https://b.example"}, "https://c.example") == "a.example"
    assert host_of({"url": ""}, "https://c.example/v1") == "c.example"
