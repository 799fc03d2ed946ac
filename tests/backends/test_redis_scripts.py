"""Each verb of the Redis store is a Lua function, sent with the libraries that it needs and no others."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from redis import Redis

from harken.backends.redis.connection import script
from tests.servers.redis import RedisServer

PACKAGE = files("harken.backends.redis")


def sources(folder: str, ending: str) -> dict[str, str]:
    found = (file for file in PACKAGE.joinpath(folder).iterdir() if file.name.endswith(ending))
    return {file.name.removesuffix(ending): file.read_text("utf-8") for file in found}


def written_verbs() -> set[str]:
    """Those that the Lua files hold."""
    return {
        f"{name}.{verb}"
        for name, text in sources("lua", ".lua").items()
        for verb in re.findall(r"^-- verb: (\w+)$", text, re.MULTILINE)
    }


def called_verbs() -> set[str]:
    """Those that Python calls: verbs are the only texts of the form file.function in the package."""
    names = "|".join(sources("lua", ".lua"))
    return {verb for text in sources("", ".py").values() for verb in re.findall(rf'"((?:{names})\.\w+)"', text)}


def test_every_verb_that_is_called_is_written_and_none_is_left_over() -> None:
    assert called_verbs() == written_verbs()


def test_a_server_compiles_every_script() -> None:
    with RedisServer() as server, Redis.from_url(server.url()) as client:
        for verb in sorted(written_verbs()):
            assert client.script_load(script(verb).text) == script(verb).sha


@pytest.mark.parametrize(
    ("verb", "function"),
    [("registry.put", "local function put("), ("runs.settle", "local function plan(")],
)
def test_a_function_is_there_once_behind_what_it_needs(verb: str, function: str) -> None:
    text = script(verb).text
    assert text.count(function) == 1
    assert text.index("local P, call") < text.index(function)


def test_other_verbs_of_a_file_are_left_out() -> None:
    text = script("registry.put").text
    assert "local function delete(" not in text
    assert "local function load_run(" not in text
