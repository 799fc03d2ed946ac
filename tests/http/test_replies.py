from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from harken.errors import CursorExpired, NeedsAttention, Refused, RetryLater
from harken.http import Reply, raise_for

NOW = 1_800_000_000.0


def reply(status: int = 200, body: bytes = b"", url: str = "https://api.example/incidents", **headers: str) -> Reply:
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return Reply("GET", URL(url), status, CIMultiDictProxy(named), body, NOW)


def later(answer: Reply) -> RetryLater:
    with pytest.raises(RetryLater) as raised:
        raise_for(answer)
    return raised.value


def date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299, 304])
def test_success_and_not_modified_raise_nothing(status: int) -> None:
    raise_for(reply(status))


@pytest.mark.parametrize("status", [302, 400, 401, 402, 403, 404, 405, 407, 409, 410, 413, 422, 451])
def test_other_answers_below_500_need_attention(status: int) -> None:
    with pytest.raises(NeedsAttention, match=rf"^api\.example answered {status} to GET /incidents") as raised:
        raise_for(reply(status))
    assert raised.value.fix


@pytest.mark.parametrize("status", [500, 501, 502, 503, 504, 520, 599, 425])
def test_server_errors_are_retried_later(status: int) -> None:
    assert (later(reply(status)).reason, later(reply(status)).after) == ("failed", None)
    assert later(reply(status, Retry_After="700")).after == 700


def test_408_is_a_timeout() -> None:
    assert later(reply(408)).reason == "timeout"


@pytest.mark.parametrize(
    ("headers", "after"),
    [
        ({}, None),
        ({"Retry_After": "700"}, 700),
        ({"Retry_After": "0"}, 0),
        ({"Retry_After": " 1.5 "}, 1.5),
        ({"retry_after": "31536000"}, 31_536_000),
        ({"Retry_After": date(700)}, 700),
        ({"Retry_After": date(-700)}, 0),
        ({"Retry_After": "soon"}, None),
        ({"Retry_After": "-5"}, None),
        ({"Retry_After": "nan"}, None),
        ({"Retry_After": "9" * 400}, None),
        ({"Retry_After": "Mon, 99 Xxx 9999 99:99:99 GMT"}, None),
        ({"ratelimit_reset": "42"}, 42),
        ({"X_RateLimit_Reset": str(int(NOW) + 90)}, 90),
        ({"X_RateLimit_Reset": str((int(NOW) + 90) * 1000)}, 90),
        ({"X_Rate_Limit_Reset": str(int(NOW) + 90)}, 90),
        ({"X_RateLimit_Reset": "2027-01-15T08:01:00Z"}, 60),
        ({"Retry_After": "5", "X_RateLimit_Reset": "90"}, 5),
        ({"Retry_After": "soon", "X_RateLimit_Reset": "90"}, 90),
    ],
)
def test_429_waits_as_long_as_the_server_asks(headers: dict[str, str], after: float | None) -> None:
    limited = later(reply(429, b"", **headers))
    assert (limited.reason, limited.after) == ("rate_limited", after)


def test_403_of_a_used_up_quota_is_a_rate_limit() -> None:
    assert later(reply(403, Retry_After="60")).reason == "rate_limited"
    spent = later(reply(403, X_RateLimit_Remaining="0", X_RateLimit_Reset=str(int(NOW) + 300)))
    assert (spent.reason, spent.after) == ("rate_limited", 300)


def test_403_with_quota_left_needs_attention() -> None:
    with pytest.raises(NeedsAttention, match="scopes"):
        raise_for(reply(403, X_RateLimit_Remaining="4999", X_RateLimit_Reset="60"))


def test_410_means_an_expired_cursor_only_where_the_caller_says_so() -> None:
    with pytest.raises(CursorExpired):
        raise_for(reply(410), gone_means_expired=True)


def test_nothing_is_sorted_by_text_in_the_url_or_body() -> None:
    assert later(reply(500, b"401 429 invalid_grant", url="https://api.example/401/403?code=401")).reason == "failed"


def test_messages_hold_host_and_path_and_no_secret() -> None:
    url = "https://me:s3cret@api.example:8443/bot12345:AAAs3cretAAAAAAAAAAAAAAAAA/send?token=s3cret#s3cret"
    error = later(reply(500, b"s3cret", url=url))
    assert str(error) == "api.example:8443 answered 500 to GET /…/send"
    assert "s3cret" not in repr(reply(url=url))


def test_long_paths_are_cut() -> None:
    assert len(str(later(reply(500, url="https://api.example" + "/part" * 500)))) < 260


def test_the_caller_may_name_what_was_asked_and_what_to_do() -> None:
    with pytest.raises(NeedsAttention) as raised:
        raise_for(reply(401), "list incidents", fix="Run: harken integrations configure pagerduty")
    assert str(raised.value) == (
        "api.example answered 401 to list incidents. Run: harken integrations configure pagerduty"
    )


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"{", b'{"a":1} x', b"\xff\xfe\x00", b'"\xff"', b"[" * 200_000, b"NaN", b'{"a":\x00}']
)
def test_garbage_instead_of_json_is_retried_later(body: bytes) -> None:
    answer = reply(200, body, Content_Type="text/html; charset=utf-8")
    with pytest.raises(RetryLater, match=rf"^api\.example answered .* not JSON \(text/html, {len(body):,} bytes\)$"):
        answer.json()


def test_json_with_numbers_and_letters_that_it_cannot_have_is_mended() -> None:
    body = rb'{"a": NaN, "b": [-Infinity, 1], "c": "half a \ud83d pair", "d": "\ud83d\ude00 \u00e4"}'
    assert reply(200, body).json() == {"a": None, "b": [None, 1], "c": "half a \ufffd pair", "d": "😀 ä"}


def test_json_is_decoded_with_or_without_a_byte_order_mark() -> None:
    assert reply(200, b'{"a": [1, "\xc3\xbc"]}').json() == {"a": [1, "ü"]}
    assert reply(200, b"\xef\xbb\xbf[1]").json() == [1]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("grün 🚀".encode(), "text/plain"),
        ("grün 🚀".encode(), "text/plain; charset=utf-8"),
        ("grün 🚀".encode("utf-8-sig"), "text/plain; charset=latin-1"),
        ("grün 🚀".encode("utf-16"), "text/plain"),
        ("grün 🚀".encode(), "text/plain; charset=no-such-thing"),
        ("grün 🚀".encode(), "text/plain; charset=base64"),
    ],
)
def test_text_is_decoded_by_what_is_known(body: bytes, content_type: str) -> None:
    assert reply(200, body, Content_Type=content_type).text() == "grün 🚀"


def test_text_falls_back_on_its_own_declaration_and_then_on_windows() -> None:
    declared = '<?xml version="1.0" encoding="iso-8859-2"?>ł'
    assert reply(200, declared.encode("iso-8859-2")).text() == declared
    assert reply(200, b"gr\xfcn \x80").text() == "grün €"
    assert reply(200, b"\x81").text() == "\ufffd"


LINKS = '<https://api.example/a?page=3>; rel="next", </a?page=9>; rel=last; title="x, y", <b>; rel="prev first"'


@pytest.mark.parametrize(
    ("rel", "url"),
    [
        ("next", "https://api.example/a?page=3"),
        ("last", "https://api.example/a?page=9"),
        ("first", "https://api.example/b"),
        ("other", None),
    ],
)
def test_links_are_read_by_their_relation(rel: str, url: str | None) -> None:
    assert reply(Link=LINKS).link(rel) == url


def test_a_reply_without_links_has_none() -> None:
    assert reply().link("next") is None
    assert reply(Link="nonsense; rel=next, <").link("next") is None


def test_a_link_to_another_origin_is_refused() -> None:
    with pytest.raises(Refused, match=r"another origin, http://evil\.example"):
        reply(Link='<http://evil.example/a?token=1>; rel="next"').link("next")


def test_a_hostile_link_header_costs_no_time() -> None:
    assert reply(Link="<a>;" + " ;x=" * 5000).link("next") is None
