"""Schemas decide as the reference implementation does, and say where a payload does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from harken.kit.json_schema import JsonSchema

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 1.0, 1.5])
    | st.sampled_from(["", "a", "bcd"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
COUNTS, NUMBERS = st.integers(0, 3), st.integers(-2, 2) | st.just(0.5)
TYPES = st.sampled_from(["object", "array", "string", "boolean", "null", "number", "integer"])


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, max_size=3),
            "const": VALUES,
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "items": inner,
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            **{f"{end}{of}": COUNTS for end in ("min", "max") for of in ("Length", "Items", "Properties")},
        },
    )


SCHEMAS = st.recursive(st.booleans() | larger(st.booleans()), larger, max_leaves=4)


@settings(max_examples=400, deadline=None)
@given(schema=SCHEMAS, value=VALUES)
def test_the_reference_implementation_agrees(schema: Any, value: Any):
    assert (JsonSchema(schema).problem(value) is None) == Draft202012Validator(schema).is_valid(value)


TREE = {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}}


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "object"}, [], "the payload must be object"),
        ({"required": ["id"]}, {}, "id is missing"),
        ({"properties": {"a": {"items": {"type": "integer"}}}}, {"a": [1, "x"]}, "a[1] must be integer"),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1, "b": 2}, "b may not be there"),
        (TREE, {"next": {"next": 1}}, "next.next must be object"),
        ({"properties": {"n": {"minimum": 3}}}, {"n": 1}, "n must be at least 3"),
    ],
)
def test_it_says_where_and_why(schema: Any, value: Any, problem: str):
    assert JsonSchema(schema).problem(value) == problem
    assert not Draft202012Validator(schema).is_valid(value)


def test_a_schema_that_refers_to_itself_accepts_what_fits():
    assert JsonSchema(TREE).problem({"next": {"next": {}}}) is None


def test_a_schema_without_an_end_and_a_payload_without_a_bottom_do_not_crash():
    assert "too deeply" in (JsonSchema({"$ref": "#"}).problem({}) or "")
    deep: Any = {}
    for _ in range(100_000):
        deep = {"next": deep}
    assert "too deeply" in (JsonSchema(TREE).problem(deep) or "")
    while deep:
        deep = deep.pop("next", None)


def test_the_largest_numbers_are_numbers():
    assert JsonSchema({"type": "integer", "minimum": 1.5}).problem(10**400) is None


def test_a_problem_shows_no_value_and_no_endless_name():
    problem = JsonSchema({"additionalProperties": {"type": "null"}}).problem({"n" * 10_000: "secret"})
    assert problem is not None
    assert len(problem) < 100
    assert "secret" not in problem


@pytest.mark.parametrize(
    "wrong",
    [
        "x",
        None,
        {"pattern": "a+"},
        {"properties": {"a": {"tpye": "string"}}},
        {"$defs": {"a": {"uniqueItems": True}}},
        {"type": "text"},
        {"type": []},
        {"required": "id"},
        {"properties": []},
        {"minimum": "1"},
        {"minLength": -1},
        {"anyOf": []},
        {"items": [1]},
        {"$ref": "https://example.com"},
        {"$ref": "#/$defs/none"},
    ],
)
def test_what_cannot_be_checked_is_refused(wrong: Any):
    with pytest.raises(ValueError, match="#"):
        JsonSchema(wrong)
