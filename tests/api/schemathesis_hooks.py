"""What schemathesis does not know of this API: our own formats, and which requests must not be repeated."""

from __future__ import annotations

import hashlib
import os
from itertools import count
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st

BACKUPS = Path(os.environ.get("HARKEN_FUZZED_BACKUPS", "backups")).absolute()
_UNITS = ("w", "d", "h", "m", "s", "ms")
_numbers = count(1)


def _duration(parts: dict[str, int]) -> str:
    return "".join(f"{parts[unit]}{unit}" for unit in _UNITS if unit in parts)


DURATIONS = st.dictionaries(st.sampled_from(_UNITS), st.integers(0, 400), min_size=1).map(_duration)
TIMES = st.datetimes().map(lambda moment: moment.isoformat(timespec="seconds") + "Z")
TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters="\\'\""), max_size=10)
COMPARED = st.one_of(
    st.tuples(st.integers(-100, 100), st.integers(-100, 100)).map(lambda pair: f"{pair[0]} < {pair[1]}"),
    st.tuples(TEXTS, TEXTS).map(lambda pair: f"'{pair[0]}' == '{pair[1]}'"),
    st.sampled_from(["true", "false", "size('abc') == 3", "'a' in ['a', 'b']"]),
)
FILTERS = st.lists(COMPARED, min_size=1, max_size=3).map(" && ".join)
schemathesis.openapi.format("harken-duration", DURATIONS)
schemathesis.openapi.format("harken-since", st.one_of(st.just(""), DURATIONS, TIMES))
schemathesis.openapi.format("harken-begin", st.one_of(DURATIONS, TIMES))
schemathesis.openapi.format("harken-expiry", st.one_of(DURATIONS, st.just("never")))
schemathesis.openapi.format("harken-filter", FILTERS)
schemathesis.openapi.format("harken-condition", st.one_of(FILTERS, st.just("event.n > 3")))
# those that lists gave come by the links from one page to the next
schemathesis.openapi.format("harken-cursor", st.just(""))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    _with_new_key(case)
    if case.operation.definition.raw["operationId"] == "store.backup" and isinstance(case.body, dict):
        _keep_in_directory(case.body)


def _with_new_key(case: Any) -> None:
    """A key that came before, with another request, is refused; nothing but the first request would be tried."""
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and 1 <= len(key) <= 200 and all("!" <= letter <= "~" for letter in key):
        case.headers["Idempotency-Key"] = f"{key}-{next(_numbers)}"


def _keep_in_directory(body: dict[str, Any]) -> None:
    """A backup is written where the request says: here it must be a new file in a directory of the test."""
    if isinstance(body.get("target"), str):
        name = hashlib.sha256(body["target"].encode("utf-8", "surrogatepass")).hexdigest()[:20]
        body["target"] = str(BACKUPS / f"{name}-{next(_numbers)}")
