"""`make servers`: bring everything that the tests need, before the first test, a line for each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.downloads import NotBrought, cache, corpora, debian, go_oracle, node_programs, singer_taps

PARALLEL = 4
TOLD_SECONDS = 0.5


def needs() -> Iterator[tuple[str, Callable[[], Path]]]:
    for package in debian.PROGRAMS:
        if not debian.has(package):
            yield f"Debian package {package}", lambda package=package: debian.fetch(package)  # type: ignore[misc]
    for name in corpora.CORPORA:
        yield f"recordings of {name}", lambda name=name: corpora.fetch(name)  # type: ignore[misc]
    yield "Go's text/template", go_oracle.fetch
    yield "Node and npm packages", node_programs.fetch_all
    for name in singer_taps.TAPS:
        yield f"Singer tap {name}", lambda name=name: singer_taps.fetch(name)  # type: ignore[misc]


def _bring(what: str, fetch: Callable[[], Path]) -> bool:
    began = time.monotonic()
    try:
        fetch()
    except NotBrought as error:
        print(f"servers: {what}: cannot be had here: {error}", flush=True)
        return False
    seconds = time.monotonic() - began
    if seconds > TOLD_SECONDS:
        print(f"servers: {what} ({seconds:.0f} s)", flush=True)
    return True


def main() -> int:
    """Exit code 0 in any case: a test that lacks something says so, and fails in CI."""
    wanted = list(needs())
    # Debian packages one after the other, as they share apt's directories; the rest beside them
    serial = [one for one in wanted if one[0].startswith("Debian")]
    with ThreadPoolExecutor(PARALLEL) as pool:
        others = [pool.submit(_bring, *one) for one in wanted if one not in serial]
        missing = sum([not _bring(*one) for one in serial])
        missing += sum(not other.result() for other in others)
    print(f"servers: {'all there' if not missing else f'{missing} missing'}, in {cache()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
