"""The planted bugs themselves: each is one small change, and still a program."""

from __future__ import annotations

import pytest

from tests.mutation.mutants import lua_mutants, python_mutants

BLOCK = """\
async def take(self):
    self.cursor = 1
    await self.commit()
"""


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a < b", ["(a <= b)"]),
        ("a is not None", ["(a is None)"]),
        ("not a", ["(a)"]),
        ("a and b", ["((a) or (b))"]),
        ("a + 1", ["(a - 1)", "a + 2"]),
        ("max(a, b)", ["pass", "min(a, b)"]),
        ("x if é else y", ["(y if é else x)"]),
        ("log.info(a)", []),
        ("'SELECT a FROM b WHERE c<=d'", ["'SELECT a FROM b WHERE c<d'"]),
        ("'the text <= another'", []),
    ],
)
def test_what_a_line_of_python_may_become(source: str, changed: list[str]) -> None:
    assert sorted(mutant.text for mutant in python_mutants(source)) == sorted(changed)


def test_a_write_changes_places_with_its_neighbour() -> None:
    texts = {mutant.what: mutant.text for mutant in python_mutants(BLOCK)}
    assert texts["statements swapped"].splitlines()[1:] == ["    await self.commit()", "    self.cursor = 1"]
    assert texts["call dropped"].splitlines()[1:] == ["    self.cursor = 1", "    pass"]


def test_what_a_line_of_lua_may_become() -> None:
    found = [(mutant.line, mutant.text) for mutant in lua_mutants("-- a < b\nif a < b then")]
    assert found == [(2, "-- a < b\nif a <= b then")]
