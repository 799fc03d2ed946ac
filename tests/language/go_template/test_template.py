from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from harken.errors import Misconfigured, Refused
from harken.language.go_template import compile_template

EVENT: dict[str, Any] = {
    "id": 7,
    "title": "Disk full 🔥",
    "status": None,
    "score": 3.0,
    "labels": ["b", "a"],
    "service": {"name": "db", "tier": 1},
    "assignments": [{"name": "Ana"}, {"name": "Bob"}],
}
CONTEXT: dict[str, Any] = {
    "trigger": {"name": "oncall", "event": EVENT},
    "inputs": {"x": 1},
    "steps": {"ask": {"response": "fine"}},
    "name": "Ana",
    "title": "mapped",
}


def text(source: str, context: Mapping[str, Any] = CONTEXT) -> str:
    return compile_template(source).render(context).text


def warnings(source: str) -> list[str]:
    return compile_template(source).render(CONTEXT).warnings


def value(source: str, context: Mapping[str, Any] = CONTEXT) -> Any:
    return compile_template(source).value(context)


def test_event_inputs_and_steps_are_reachable() -> None:
    assert text("{{.trigger.event.title}}|{{.name}}|{{.inputs.x}}|{{.steps.ask.response}}") == "Disk full 🔥|Ana|1|fine"


def test_leading_dot_is_optional() -> None:
    assert text("{{trigger.event.title}} {{ name }}") == "Disk full 🔥 Ana"


def test_input_named_like_a_function_is_an_input_unless_it_is_given_arguments() -> None:
    assert text('{{title}} {{title "x"}} {{upper title}} {{.title | title}}') == "mapped X MAPPED Mapped"


def test_bare_name_inside_a_loop_finds_the_item_first_and_the_run_next() -> None:
    assert text("{{range .trigger.event.assignments}}{{name}}/{{trigger.name}} {{end}}") == "Ana/oncall Bob/oncall "


def test_lists_and_objects_print_as_json() -> None:
    assert text("{{.trigger.event.labels}} {{.trigger.event.service}}") == '["b","a"] {"name":"db","tier":1}'


def test_non_ascii_in_json_is_not_escaped() -> None:
    assert text("{{.x}}", {"x": ["日本", "🔥", "é"]}) == '["日本","🔥","é"]'


def test_null_prints_as_no_value_without_a_warning() -> None:
    rendered = compile_template("{{.trigger.event.status}}").render(CONTEXT)
    assert (rendered.text, rendered.warnings) == ("<no value>", [])


def test_moments_print_as_rfc_3339() -> None:
    assert text("{{.at}}", {"at": datetime(2026, 1, 2, 3, 4, tzinfo=UTC)}) == "2026-01-02T03:04:00Z"


def test_missing_field_in_prose_is_visible_and_leaves_one_warning_with_a_suggestion() -> None:
    rendered = compile_template("{{.trigger.event.titel}} and {{.trigger.event.titel}}").render(CONTEXT)
    assert rendered.text == "<no value> and <no value>"
    assert rendered.warnings == ["trigger.event.titel is not there; did you mean title?"]


@pytest.mark.parametrize(
    ("source", "warning"),
    [
        ("{{.trigger.evnt.title}}", "trigger.evnt is not there; did you mean event?"),
        ("{{.trigger.event.title.x}}", "trigger.event.title.x is not there: it would be in a string"),
        ("{{index .trigger.event.labels 5}}", "index 5 is not there: the list has 2 items"),
        ("{{upper .gone}}", "gone is not there"),
        ('{{if eq .gone "x"}}y{{end}}', "gone is not there"),
        ('{{if contains "x" .gone}}y{{end}}', "gone is not there"),
        ("{{range .gone}}y{{end}}", "gone is not there"),
        ('{{printf "%s" .gone}}', "gone is not there"),
    ],
)
def test_warning_names_the_path_that_leads_nowhere(source: str, warning: str) -> None:
    assert warnings(source) == [warning]


@pytest.mark.parametrize(
    "source",
    [
        "{{if .gone}}y{{end}}",
        "{{with .gone}}y{{end}}",
        '{{default "x" .gone}}',
        '{{.gone | upper | default "x"}}',
        '{{coalesce .gone .deep.gone "x"}}',
        "{{not .gone}}",
        '{{or .gone "x"}}',
    ],
)
def test_asking_whether_a_field_is_there_is_neither_a_warning_nor_an_error(source: str) -> None:
    assert warnings(source) == []
    assert isinstance(value(source), str | bool)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{.trigger.event.id}}", 7),
        ("{{trigger.event.labels}}", ["b", "a"]),
        ("{{.trigger.event.service}}", {"name": "db", "tier": 1}),
        ("{{.trigger.event.status}}", None),
        ("{{.trigger.event.score}}", 3.0),
        ("{{- .trigger.event.id -}}", 7),
        ("{{add .trigger.event.id 1}}", 8),
        ('{{.trigger.event.assignments | pluck "name"}}', ["Ana", "Bob"]),
        ("{{index .trigger.event.labels 0}}", "b"),
        ("#{{.trigger.event.id}}", "#7"),
        ("{{.trigger.event.id}}{{.trigger.event.id}}", "77"),
        ("{{if .name}}{{.trigger.event.id}}{{end}}", "7"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_mapping_keeps_the_type_of_a_single_expression(source: str, expected: object) -> None:
    found = value(source)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    "source",
    [
        "{{.trigger.event.titel}}",
        "x {{.trigger.event.titel}}",
        "{{upper .trigger.event.titel}}",
        '{{eq .trigger.event.titel "a"}}',
    ],
)
def test_missing_field_in_a_mapping_is_refused_with_a_suggestion(source: str) -> None:
    with pytest.raises(Refused, match=r"trigger\.event\.titel is not there; did you mean title\?"):
        value(source)


FUNCTIONS = [
    ("{{add 1 2 3}} {{add 1.5 2}} {{sub 3 5}} {{mul 2 3 4}}", "6 3.5 -2 24"),
    ("{{div 7 2}} {{div 7.0 2}} {{mod 7 3}}", "3 3.5 1"),
    ("{{min 3 1 2}} {{max 3 1 2.5}}", "1 3"),
    ("{{toJson .o}} {{(fromJson `{\"a\":[1]}`).a}}", '{"k":"v","n":1} [1]'),
    ("{{toJsonPretty .o}}", '{\n  "k": "v",\n  "n": 1\n}'),
    ('{{join ", " .l}} {{split "," "a,b"}}', 'x, y, 1 ["a","b"]'),
    ('{{join .l ", "}} {{contains .l "x"}} {{contains .l "q"}} {{contains .l 1}}', "x, y, 1 true false true"),
    ('{{upper "a"}} {{lower "A"}} {{title "a b"}} {{trim " a "}}|', "A a A B a|"),
    ('{{trimPrefix "v" "v1"}} {{trimSuffix "1" "v1"}} {{replace "a" "b" "aca"}}', "1 v bcb"),
    ('{{contains "b" "abc"}} {{contains "x" .l}} {{contains 1 .l}} {{contains "1" .l}}', "true true true false"),
    ('{{hasPrefix "a" "abc"}} {{hasSuffix "a" "abc"}}', "true false"),
    ("{{first .l}} {{last .l}} {{keys .o}} {{values .o}}", 'x 1 ["k","n"] ["v",1]'),
    ('{{hasKey .o "k"}} {{hasKey .o "z"}} {{pluck "k" .maps}}', "true false [1,2]"),
    ('{{default "d" ""}} {{default "d" 0}} {{default "d" "x"}} {{coalesce "" 0 "c" "d"}}', "d d x c"),
    ('{{toInt "42"}} {{toInt 3.9}} {{toInt "-7.5"}} {{toFloat "1.5"}}', "42 3 -7 1.5"),
    ('{{toString 3.0}} {{toBool "true"}} {{toBool 0}}', "3 true false"),
    ('{{len "日本"}} {{len .l}} {{len .o}} {{index .l 0}} {{index .o "k"}} {{index .maps 1 "k"}}', "2 3 2 x v 2"),
    ('{{printf "%s %s %d %.1f" .l 5 4.0 2}}', '["x","y",1] 5 4 2.0'),
    ("{{eq 1 1.0}} {{ne 1 2}} {{lt 1 1.5}} {{le 2 2}} {{gt 2 1}} {{ge 1 2}}", "true true true true true false"),
    ("{{and 1 0}} {{or 0 2}} {{not 1}}", "0 2 false"),
    ("{{upper .null}} {{contains \"a\" .null}} {{first .empty}}", "<no value> false <no value>"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "expected"), FUNCTIONS)
def test_function_gives(source: str, expected: str) -> None:
    data = {
        "l": ["x", "y", 1],
        "o": {"k": "v", "n": 1},
        "maps": [{"k": 1}, {"k": 2}, {"z": 3}],
        "null": None,
        "empty": [],
    }
    assert text(source, data) == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{div 1 0}}", "1:3: div: division by zero"),
        ("{{mod 1.5 0}}", "division by zero"),
        ('{{add "1" 2}}', "add takes numbers, not a string. Convert it with toInt or toFloat"),
        ("{{add true 2}}", "add takes numbers, not a boolean"),
        ('{{toInt "abc"}}', "toInt was given 'abc', which is not a number"),
        ('{{toBool "maybe"}}', "toBool takes true, false, 1 or 0"),
        ('{{fromJson "{"}}', "not JSON"),
        ('{{join "," "x"}}', "join takes a list, not a string"),
        ('{{keys "x"}}', "keys takes an object, not a string"),
        ("{{index 5 1}}", "index looks into lists and objects, not into a number"),
        ('{{lt 1 "a"}}', "lt cannot order a number and a string"),
        ('{{eq 1 "1"}}', "eq cannot compare a number with a string"),
        ("\n  {{range `x`}}{{end}}", "2:5: range goes over a list, an object or a number, not a string"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(source: str, message: str) -> None:
    with pytest.raises(Refused) as caught:
        text(source)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ uper .name }}", "1:4: there is no function uper; did you mean upper?"),
        ("a\nb {{if .x}}", "2:5: this if has no {{end}}"),
        ("{{end}}", "1:3: {{end}} has no {{if}}, {{range}} or {{with}} before it"),
        ("text {{.a", "1:6: this {{ is never closed with }}"),
        ("{{.foo-bar}}", "1:7: '-' cannot stand here; write index .object \"a-b\" for such a name"),
        ("{{.items.0}}", "1:9: a path cannot hold a number; write index .list 0"),
        ('{{template "x"}}', "1:3: template is not supported: a template cannot call another one"),
        ('{{define "x"}}{{end}}', "define is not supported"),
        ('{{block "x" .}}{{end}}', "block is not supported"),
        ("{{upper 1 2}}", "upper takes 1 arguments, not 2"),
        ("{{$x = 1}}", "1:3: the variable $x is not defined"),
        ("{{$name := 1}}{{$nme}}", "the variable $nme is not defined; did you mean $name?"),
        ("{{.s |}}", "a value is missing here"),
        ("{{.s .n}}", ".s is not a function, it takes no arguments"),
        ('{{"a" | .s}}', ".s is not a function"),
        ("{{ x|attr }}", "there is no function attr"),
        ("{{'ab'}}", "single quotes hold one character"),
        ("{{" + "(" * 100 + "1" + ")" * 100 + "}}", "parentheses are nested more than 40 deep"),
        ("{{if 1}}" * 100 + "{{end}}" * 100, "blocks are nested more than 40 deep"),
        ("x" * 300_000, "at most 262144 are allowed"),
    ],
)
def test_wrong_template_is_misconfigured_with_its_place(source: str, message: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        compile_template(source)
    assert message in str(caught.value)
