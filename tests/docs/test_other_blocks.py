"""Blocks that are neither YAML nor commands of ours: what can be read without running it is read.

Commands of `harken` are looked up by test_commands.py; README, install page and tutorials are followed by
test_walk_through.py and test_service_tutorial.py. Python is run by test_python_blocks.py and those that it names, SQL
by tests/services/sql/test_how_to.py. What is not even read, and why, is in READ_ONLY.
"""

from __future__ import annotations

import ast
import json
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from tests.docs.blocks import Block, blocks, pages

ALL = [block for page in pages() for block in blocks(page)]


def read_shell(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


READERS: Mapping[str, Callable[[str], object]] = {
    "json": json.loads,
    "python": ast.parse,
    "toml": tomllib.loads,
    "sh": read_shell,
    "bash": read_shell,
}
READ_ONLY = {
    "mermaid": "drawn by .ci/site/diagrams.py, and compared with its picture by test_site.py",
}


@pytest.mark.parametrize("block", [block for block in ALL if block.language in READERS], ids=str)
def test_the_block_can_be_read(block: Block) -> None:
    READERS[block.language](block.text)


def test_every_language_of_a_block_is_looked_at_by_some_test() -> None:
    languages = Counter(block.language for block in ALL)
    elsewhere = {"yaml", "console", "text", "sql"}
    assert set(languages) - set(READERS) - elsewhere - set(READ_ONLY) == set()
    assert {block.page for block in ALL if block.language == "sql"} == {"docs/how-to/sql.md"}
