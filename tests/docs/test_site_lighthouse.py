"""Lighthouse on the start page of the site, in `make soak`, as on a phone with a slow connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer

import pytest

from tests.docs.static_files import StaticFiles, build_site
from tests.soak import SOAK
from tests.ui.lighthouse import audit

pytestmark = [
    pytest.mark.process,
    pytest.mark.worker_group("site"),
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SOAK, reason="it takes a minute or two"),
]

TRIES = 3
"""What the page waits for still depends on what else the machine does, so the best of so many counts."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = build_site(tmp_path_factory.mktemp("site"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(StaticFiles, directory=place))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_the_start_page_is_good_in_every_category(address: str) -> None:
    reports = [asyncio.run(audit(address))]
    while reports[-1].performance < 95 and len(reports) < TRIES:
        reports.append(asyncio.run(audit(address)))
    best = max(reports, key=lambda report: report.performance)
    wanted = ("performance", "accessibility", "best-practices", "seo")
    assert {name: best.scores[name] for name in wanted if best.scores[name] < 95} == {}, reports
