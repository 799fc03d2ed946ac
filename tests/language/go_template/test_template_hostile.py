"""Templates and events from people who mean harm, or who made a mistake that looks like it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harken.errors import HarkenError, Refused
from harken.language.go_template import compile_template
from harken.language.go_template.functions import FUNCTIONS


class Secretive:
    token = "secret"

    def __str__(self) -> str:
        return self.token


@pytest.mark.parametrize(
    "source",
    [
        "{{.x.__class__}}",
        "{{trigger.event.__init__}}",
        "{{.x.__class__.__mro__}}",
        "{{.list.append}}",
        "{{.text.upper}}",
        "{{.object.token}}",
        '{{index .x "__class__"}}',
        "{{.x.keys}}",
        "{{$.__dict__}}",
    ],
)
def test_python_attributes_cannot_be_reached(source: str) -> None:
    context = {"x": {}, "list": [], "text": "t", "object": Secretive(), "trigger": {"event": {}}}
    assert compile_template(source).render(context).text == "<no value>"


def test_object_of_a_foreign_type_is_refused_rather_than_shown() -> None:
    with pytest.raises(Refused):
        compile_template("{{.object}}").render({"object": Secretive()})


@pytest.mark.parametrize(
    "source", ["{% for x in y %}", "{# comment #}", "{%- raw -%}", "${x}", "{x}", "<% x %>", "}}", "%}"]
)
def test_syntax_of_other_engines_is_plain_text(source: str) -> None:
    assert compile_template(source).render({"x": 1, "y": [1]}).text == source


def test_event_text_is_never_read_as_a_template() -> None:
    hostile = "{{.secret}} {{range 9}}x{{end}} {% raw %} {secret}"
    assert (
        compile_template("{{.t}} {{upper .t}}").render({"t": hostile, "secret": "s"}).text
        == f"{hostile} {hostile.upper()}"
    )


HUGE: dict[str, Any] = {
    "text": "a" * 1_000_000,
    "other": "a" * 999_999 + "b",
    "list": list(range(100_000)),
    "map": {str(number): number for number in range(20_000)},
    "deep": json.loads("[" * 300 + ",".join("1" * 5000) + "]" * 300),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "source",
    [
        "{{range 99999999}}{{range 99999999}}a{{end}}{{end}}",
        "{{range 9223372036854775807}}{{end}}",
        "{{range .list}}{{range $.list}}{{end}}{{end}}",
        "{{range 100}}{{$.text}}{{end}}",
        '{{printf "%1000000000d" 1}}',
        '{{printf "%.999999999f" 1.5}}',
        '{{printf "%99999999999999999999s" 1}}',
        '{{$x := "aaaaaaaaaa"}}{{range 100}}{{$x = printf "%s%s" $x $x}}{{end}}',
        "{{$x := 9}}{{range 1000}}{{$x = mul $x $x}}{{end}}",
        '{{replace "a" "aaaaaaaaaaaaaaaaaaaa" .text}}',
        '{{replace "" .text .text}}',
        "{{join .text .list}}",
        '{{range 100000}}{{$y := replace "a" "b" $.text}}{{end}}',
        "{{range 100000}}{{$y := toJson $.list}}{{end}}",
        "{{range 100000}}{{$y := title $.text}}{{end}}",
        '{{range 100000}}{{$y := split "" $.text}}{{end}}',
        '{{range 100000}}{{$y := contains "zz" $.text}}{{end}}',
        "{{range 100000}}{{$y := contains `x` $.list}}{{end}}",
        "{{range 100000}}{{$y := eq $.text $.other}}{{end}}",
        "{{range 100000}}{{$y := keys $.map}}{{end}}",
        '{{range 100000}}{{$y := printf "%x" $.text}}{{end}}',
        "{{toJsonPretty .deep}}",
    ],
)
def test_template_that_would_never_end_or_fill_the_memory_is_refused(source: str) -> None:
    with pytest.raises(Refused):
        compile_template(source).render(HUGE)


@pytest.mark.parametrize("number", [2**63, -(2**70), 10**5000, float("inf"), float("nan"), 1e308], ids="abcdef")
def test_odd_numbers_print_or_are_refused(number: float) -> None:
    for source in (
        "{{.n}}",
        "{{add .n 1}}",
        "{{toInt .n}}",
        "{{toFloat .n}}",
        '{{printf "%d %v %f %x %g" .n .n .n .n .n}}',
        "{{toJson .n}}",
    ):
        _rendered(source, {"n": number})


def test_lone_surrogate_does_not_break_the_text() -> None:
    assert compile_template("a{{.x}}é").render({"x": "\ud800"}).text == "a?é"


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["{{.x}}", "\ud800", "\0", "1e400", "-", "🔥", " "]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(st.text(max_size=5), st.integers()), inner, max_size=4)
    ),
    max_leaves=8,
)
SIGNS = (
    "{{ }} {{- -}} . .a a $ $x := = | ( ) , \" ` ' \\ 1 -1 .5 0x 1e9 if else end range with break /* */ true nil é \0"
)
soup = st.lists(st.sampled_from([*SIGNS.split(" "), " ", "\n", *FUNCTIONS]), max_size=25).map("".join)


def _rendered(source: str, context: dict[str, Any]) -> None:
    try:
        template = compile_template(source)
    except HarkenError:
        return
    for use in (template.render, template.value):
        try:
            use(context)
        except HarkenError:
            continue


@settings(max_examples=400, deadline=None)
@given(source=st.one_of(soup, st.text(max_size=40).map(lambda text: "{{" + text + "}}")), value=values)
@example(source="{{" + "." * 50 + "}}", value=None)
@example(source='{{index "a" "b"}}', value=None)
def test_no_template_crashes_with_anything_but_our_errors(source: str, value: Any) -> None:
    _rendered(source, {"a": value, "x": value})


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(sorted(FUNCTIONS)), arguments=st.lists(values, min_size=1, max_size=4))
def test_no_function_crashes_on_any_value(name: str, arguments: list[Any]) -> None:
    names = [f"v{number}" for number in range(len(arguments))]
    source = "{{" + name + "".join(f" .{each}" for each in names) + "}}"
    _rendered(source, dict(zip(names, arguments, strict=True)))


@settings(max_examples=300, deadline=None)
@given(form=st.text(alphabet="%dsvqxXfFeEgGtTcUob+-# 0123456789.*[]z!é", max_size=12), value=values)
def test_no_format_crashes_printf(form: str, value: Any) -> None:
    _rendered("{{printf .form .value .value}}", {"form": form, "value": value})


@settings(max_examples=100, deadline=None)
@given(value=values)
def test_single_path_gives_back_the_very_value(value: Any) -> None:
    assert compile_template("{{.a.b}}").value({"a": {"b": value}}) is value
