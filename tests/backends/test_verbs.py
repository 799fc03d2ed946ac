"""Each verb of a store is a coroutine function: what crashes, delays or records a store finds its verbs by that."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import iscoroutinefunction

import pytest

from harken.backends.postgres import PostgresStore
from harken.backends.redis import RedisStore
from harken.backends.sqlite import SqliteStore
from harken.store import Store


def verbs() -> Iterator[str]:
    for protocol in Store.__mro__:
        yield from (name for name, verb in vars(protocol).items() if iscoroutinefunction(verb))


@pytest.mark.parametrize("store", [SqliteStore, PostgresStore, RedisStore])
def test_each_verb_of_a_store_is_a_coroutine_function(store: type[Store]) -> None:
    named = set(verbs())
    assert {"commit", "claim", "settle", "journal"} <= named
    assert [name for name in sorted(named) if not iscoroutinefunction(getattr(store, name))] == []
