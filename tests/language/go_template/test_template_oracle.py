"""Our templates against Go's text/template.

Different on purpose, and so not asked here: lists and objects print as JSON (Go: `[a b]`, `map[a:1]`); null prints as
`<no value>` everywhere (Go: `<nil>` from functions); a field below something missing is `<no value>` (Go: an error),
and so is an index outside a list; the leading dot may be left out; `len` counts characters (Go: bytes); whole and
broken numbers compare (Go: an error); %s takes numbers and %f whole numbers (Go: `%!s(int=1)`); arithmetic beyond 64
bits is an error (Go: wraps); define, template, block, html, js, urlquery, slice, print and call are not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harken.errors import HarkenError, Misconfigured
from harken.language.go_template.template import compile_template
from tests.downloads import go_oracle
from tests.downloads.go_oracle import Oracle

pytestmark = pytest.mark.worker_group("go")

DATA: dict[str, Any] = {
    "big": 1234567.5,
    "empty": "",
    "float": 2.5,
    "items": [{"n": 1, "tags": ["x", "y"]}, {"n": 2, "tags": []}, {"n": 3, "tags": ["z"]}],
    "m": {"a": 1, "b": {"c": "deep"}, "k": "v"},
    "n": 7,
    "neg": -3,
    "no": False,
    "none": [],
    "nothing": None,
    "s": "hello world",
    "tiny": 0.00001,
    "u": "Grüße 日本 🔥",
    "words": ["b", "a", "c"],
    "yes": True,
    "zero": 0,
}


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    found = Oracle(go_oracle.oracle())
    yield found
    found.close()


PRINTED = Path(__file__).with_name("printed.txt").read_text(encoding="utf-8").splitlines()

MULTILINE = [
    "Hello {{.s}},\n\n{{range .items -}}\n- {{.n}}\n{{end}}\nbye\n",
    "{{- if .yes -}}\n  yes\n{{- else -}}\n  no\n{{- end}}\n",
    "a\n{{- /* gone */ -}}\nb\n",
    "{{range $k, $v := .m -}}\n{{$k}}\n{{- end}}",
    '{{ printf\n "%d"\n .n }}',
    "{{/* a\nb */}}x",
    "{{ if\n  .yes }}lines{{ end }}",
]


@pytest.mark.parametrize("template", [*PRINTED, *MULTILINE])
def test_prints_what_go_prints(oracle: Oracle, template: str) -> None:
    answer = oracle.ask(template, DATA)
    assert answer["error"] == ""
    assert compile_template(template).render(DATA).text == answer["text"]


NOT_TEMPLATES = """
{{.a
{{
{{if .s}}
{{range .words}}x
{{end}}
{{else}}
{{if .s}}{{else}}{{else}}{{end}}
{{break}}
{{continue}}
{{if .yes}}{{break}}{{end}}
{{range .none}}{{else}}{{break}}{{end}}
{{$x}}
{{if true}}{{$x := 1}}{{end}}{{$x}}
{{.a-b}}
{{.s..n}}
{{"abc}}
{{`abc}}
{{'ab'}}
{{(.s}}
{{.s)}}
{{| upper}}
{{nofunction .s}}
{{.s | nofunction}}
{{1a}}
{{if}}x{{end}}
{{range}}x{{end}}
{{with}}x{{end}}
{{}}
{{$x, $y := .m}}
{{if $x, $y := .m}}{{end}}
{{.s := 1}}
{{"\\z"}}
{{/* never closed }}
{{end .s}}
{{if .s}}{{end .s}}
{{else if .s}}
{{@}}
{{.s & .n}}
{{nil.x}}
{{1.x}}
{{"a".x}}
{{true.x}}
""".strip("\n").split("\n")


@pytest.mark.parametrize("template", NOT_TEMPLATES)
def test_what_go_cannot_parse_is_misconfigured_with_a_position(oracle: Oracle, template: str) -> None:
    assert oracle.ask(template, DATA)["stage"] == "parse"
    with pytest.raises(Misconfigured, match=r"^\d+:\d+: "):
        compile_template(template)


FAILING = """
{{div 1 0}}
{{mod 1 0}}
{{lt .s 1}}
{{lt .words .words}}
{{eq .s 1}}
{{eq .yes 1}}
{{eq .words .words}}
{{len 3}}
{{index .n 1}}
{{index .words "a"}}
{{range .yes}}{{end}}
{{range .float}}{{end}}
{{upper .words}}
{{lt .yes .no}}
{{add "a" 1}}
{{keys .words}}
""".strip("\n").split("\n")


@pytest.mark.parametrize("template", FAILING)
def test_what_fails_in_go_is_refused(oracle: Oracle, template: str) -> None:
    assert oracle.ask(template, DATA)["stage"] == "run"
    with pytest.raises(HarkenError):
        compile_template(template).render(DATA)


texts = st.sampled_from([".s", ".u", ".empty", '"lit"', "`raw`", "(index .words 1)", ".m.k", ".m.b.c"])
whole = st.sampled_from([".n", ".neg", ".zero", "3", "-2", "(len .words)", "(index .items 0).n", "(add .n 2)"])
anything = st.one_of(
    texts, whole, st.sampled_from([".yes", ".no", ".missing", ".none", ".words", ".m", ".nothing", ".float"])
)


@st.composite
def printed(draw: st.DrawFn, depth: int = 2) -> str:
    """An expression that prints alike in both: no lists, objects or nulls."""
    kind = draw(st.integers(0, 9))
    inner = printed(depth=depth - 1) if depth else texts
    if kind <= 1 or not depth:
        return draw(st.one_of(texts, whole, st.sampled_from([".yes", ".float", ".big", ".tiny"])))
    if kind == 2:
        return f"(upper {draw(texts)})"
    if kind == 3:
        change = draw(st.sampled_from(["title", "trim", "lower", "replace `l` `L`", "trimPrefix `he`"]))
        return f"({draw(texts)} | {change})"
    if kind == 4:
        return f"({draw(st.sampled_from(['eq', 'ne', 'lt', 'ge']))} {draw(whole)} {draw(whole)})"
    if kind == 5:
        return f"(not {draw(anything)})"
    if kind == 6:
        return f"({draw(st.sampled_from(['and', 'or']))} {draw(inner)} {draw(inner)})"
    if kind == 7:
        return f"({draw(st.sampled_from(['add', 'sub', 'mul']))} {draw(whole)} {draw(whole)})"
    if kind == 8:
        flags, verb = draw(st.sampled_from(["", "-", "0", "+"])), draw(st.sampled_from(["d", "5d", "x", "v", "8v"]))
        return f'(printf "%{flags}{verb}|" {draw(whole)})'
    width = draw(st.sampled_from(["", "6", "-6", ".2", "8.1"]))
    return f'(printf "%{width}{draw(st.sampled_from("svq"))}|" {draw(texts)})'


@st.composite
def templates(draw: st.DrawFn, depth: int = 2) -> str:
    inner = templates(depth=depth - 1) if depth else st.sampled_from(["x", " ", "\n"])
    left, right = draw(st.sampled_from(["{{", "{{- "])), draw(st.sampled_from(["}}", " -}}"]))
    kind = draw(st.integers(0, 8))
    if kind <= 2 or not depth:
        before = draw(st.sampled_from(["", " a ", "\n"]))
        return f"{before}{left}{draw(printed())}{right}"
    if kind == 3:
        return f"{left}if {draw(anything)}{right}{draw(inner)}{{{{else}}}}{draw(inner)}{{{{end}}}}"
    if kind == 4:
        body = draw(inner).replace("(index .words 1)", "$x")
        return f"{left}range $i, $x := .words{right}{{{{$i}}}}{{{{$x}}}} {body}{{{{end}}}}"
    if kind == 5:
        return f"{left}with $w := {draw(texts)}{right}{{{{.}}}}{{{{$w}}}}{{{{else}}}}{draw(inner)}{{{{end}}}}"
    if kind == 6:
        return f"{{{{$v := {draw(printed())}}}}}{draw(inner)}{left}$v{right}"
    if kind == 7:
        jump = draw(st.sampled_from(["break", "continue"]))
        return f"{left}range .items{right}{{{{if eq .n 2}}}}{{{{{jump}}}}}{{{{end}}}}{{{{.n}}}}{{{{end}}}}"
    return draw(inner) + draw(inner)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(template=templates())
def test_whatever_go_renders_we_render_alike(oracle: Oracle, template: str) -> None:
    answer = oracle.ask(template, DATA)
    ours = _text_or_error(template)
    assert answer["error"] or ours == answer["text"]


def _text_or_error(template: str) -> str | None:
    try:
        return compile_template(template).render(DATA).text
    except HarkenError:
        return None
