"""A value in a template cannot change scheme, host or port of a URL, nor climb out of its path."""

from __future__ import annotations

from typing import Any

import pytest
from yarl import URL

from harken.errors import Refused
from harken.kit.json_api import join_url
from harken.run.compiler import Compiler
from harken.run.steps import KINDS
from harken.run.url_template import compile_url

BASE = "https://api.example.com/users/"


def rendered(source: str, **names: Any) -> str:
    compiler = Compiler(KINDS, None)
    url = compile_url(source, compiler, "url")
    assert compiler.problems == []
    return url.render(names)


def problems(**step: Any) -> list[tuple[str, str]]:
    compiler = Compiler(KINDS, None)
    compiler.steps([{"action": "http", **step}], "steps")
    return [(".".join(map(str, problem.path)), problem.message) for problem in compiler.problems]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("@evil.example", "%40evil.example"),
        ("a@evil.example/", "a%40evil.example%2F"),
        ("#evil", "%23evil"),
        ("?admin=1", "%3Fadmin%3D1"),
        ("\\\\evil.example\\x", "%5C%5Cevil.example%5Cx"),
        ("//evil.example/", "%2F%2Fevil.example%2F"),
        ("https://evil.example/", "https%3A%2F%2Fevil.example%2F"),
        ("a%2fb", "a%252fb"),
        (":8080", "%3A8080"),
        ("a b\r\nX: y", "a%20b%0D%0AX%3A%20y"),
        ("...", "..."),
        ("Zoë", "Zo%C3%AB"),
        ("\ud800", "%3F"),
        (7, "7"),
    ],
)
@pytest.mark.parametrize("after", ["", "/orders?limit=1"])
def test_a_value_stays_within_its_place_of_the_url(value: object, expected: str, after: str) -> None:
    url = rendered(BASE + "{{.x}}" + after, x=value)
    assert url == BASE + expected + after
    seen = URL(url)
    assert (seen.scheme, seen.host, seen.port) == ("https", "api.example.com", 443)
    assert seen.raw_path.startswith("/users/")
    assert seen.raw_query_string == ("limit=1" if after else "")


@pytest.mark.parametrize(
    "value",
    [
        "..",
        ".",
        "../admin",
        "..\\admin",
        "a/../../admin",
        "%2e%2e",
        "%2e%2e%2fadmin",
        "..%2fadmin",
        "%252e%252e%252fadmin",
        "．．/admin",
        "‥",
        "..;/admin",
        " ..",
    ],
)
@pytest.mark.parametrize("source", [BASE + "{{.x}}", BASE + "{{.x}}/orders", BASE + "{{.x | unescaped}}"])
def test_a_value_cannot_climb_out_of_the_path(value: str, source: str) -> None:
    with pytest.raises(Refused, match="climb"):
        rendered(source, x=value)


def test_two_values_and_literal_text_cannot_make_dots_together() -> None:
    for source in (BASE + "{{.x}}{{.x}}/a", BASE + ".{{.x}}/a"):
        with pytest.raises(Refused, match="climb"):
            rendered(source, x=".")


def test_dots_in_the_query_are_only_text() -> None:
    assert rendered(BASE + "?path={{.x}}", x="../a") == BASE + "?path=..%2Fa"


def test_a_marked_value_keeps_its_slashes_and_still_names_no_server() -> None:
    assert rendered(BASE + "{{.x | unescaped}}", x="a/b?c=d") == BASE + "a/b?c=d"
    assert URL(rendered("https://api.example.com/{{.x | unescaped}}", x="/evil.example/")).host == "api.example.com"
    assert URL(rendered("https://api.example.com/{{.x | unescaped}}", x="@evil.example/")).host == "api.example.com"


def test_a_mark_before_another_function_is_none() -> None:
    assert rendered(BASE + "{{.x | unescaped | upper}}", x="a/b") == BASE + "A%2FB"


def test_values_in_branches_and_loops_are_encoded_too() -> None:
    source = BASE + "{{if .x}}{{.x}}{{end}}/{{range .l}}{{.}}/{{end}}"
    assert rendered(source, x="a/b", l=["#", "?"]) == BASE + "a%2Fb/%23/%3F/"


def test_a_url_that_is_wholly_one_value_works_and_is_checked_as_a_whole() -> None:
    whole = "https://example.com:8443/a/b?c=d%20e#f"
    assert rendered("{{.inputs.url}}", inputs={"url": whole}) == whole


@pytest.mark.parametrize(
    "value",
    [
        "ftp://x/",
        "file:///etc/passwd",
        "//evil.example",
        "/path",
        "https://u:p@evil.example/",
        "https://a\\@b/",
        "https://a.example/\r\nHost: b",
        " https://a.example/",
        "",
        7,
    ],
)
def test_a_whole_url_of_another_kind_is_refused(value: object) -> None:
    with pytest.raises(Refused):
        rendered("{{.inputs.url}}", inputs={"url": value})


def test_a_base_url_goes_on_with_encoded_values() -> None:
    assert rendered("{{.base}}/a/{{.x}}", base="https://h.example/v1", x="b/c") == "https://h.example/v1/a/b%2Fc"
    for base, source in [("https://h.example", "{{.base}}{{.x}}"), ("https://h.example/#", "{{.base}}/{{.x}}")]:
        with pytest.raises(Refused):
            rendered(source, base=base, x=".evil.example")


def test_a_value_can_be_a_host_or_a_part_before_a_literal_one_and_nothing_else() -> None:
    assert rendered("https://{{.x}}.example.com:{{.p}}/", x="eu-1", p=8443) == "https://eu-1.example.com:8443/"
    assert rendered("https://{{.x}}/a", x="h.example") == "https://h.example/a"
    for value in (
        "evil.example/",
        "evil.example#",
        "evil.example?",
        "u@evil.example",
        "a:80",
        "evil.example\\",
        "",
        "é",
    ):
        with pytest.raises(Refused):
            rendered("https://{{.x}}/a", x=value)


def test_a_value_directly_after_the_host_is_found_at_load() -> None:
    for url in ("https://example.com{{.x}}", "https://api.{{.x}}/", "https://example.com{{.x}}:80/"):
        assert problems(url=url) == [("steps.0.url", "a value directly after the host could change it")]


@pytest.mark.parametrize(
    "url", ["{{.inputs.url}}", "https://{{.h}}/", "https://{{.h}}.example.com/", "http{{.s}}://a/"]
)
@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"Authorization": "Bearer x"}},
        {"headers": {"x-api-key": "x"}},
        {"headers": {"Cookie": "x"}},
        {"query": {"access_token": "x"}},
    ],
)
def test_a_step_with_credentials_must_name_its_host(url: str, more: dict[str, Any]) -> None:
    ((place, message),) = problems(url=url, **more)
    assert (place, message.startswith("a step with credentials must name its host")) == ("steps.0.url", True)


def test_a_step_without_credentials_or_with_a_literal_host_is_fine() -> None:
    secret = {"Authorization": "Bearer x"}
    assert problems(url="{{.inputs.url}}", headers={"Accept": "text/plain", "Idempotency-Key": "1"}) == []
    assert problems(url="https://example.com/{{.x}}", headers=secret) == []
    assert problems(url="https://example.com?q={{.x}}", headers=secret) == []
    assert problems(url="{{.base}}/a?token=x") != []


def test_actions_of_services_refuse_to_climb_as_well() -> None:
    assert join_url("https://h.example", "issues", "a/b") == "https://h.example/issues/a%2Fb"
    with pytest.raises(Refused):
        join_url("https://h.example", "issues", "..")
