"""A browser for all tests of a worker, and a real Harken for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.downloads import debian
from tests.ui.harken_process import HarkenProcess
from tests.ui.steady_network import steady

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


BROWSERS = 2
"""So many workers may have one: all these tests in one worker would last longer than everything else."""


PATIENCE_MS = 60_000
"""How long a page may take for anything: no limit that a busy machine could miss."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # a browser lives in one event loop, and all tests that use it with it
    here = Path(__file__).parent
    files = sorted({item.path for item in items if here in item.path.parents})
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.worker_group(f"browser-{files.index(item.path) % BROWSERS}"))
            item.add_marker(pytest.mark.process)
            item.add_marker(pytest.mark.again_alone)
            if isinstance(item, pytest.Function) and iscoroutinefunction(item.obj):
                item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    program = debian.program("chromium")
    command = steady(program, tmp_path_factory.mktemp("browser"))
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=command, args=FLAGS, env={**debian.environment(program)}, headless=True
        )
        yield started
        await started.close()


@pytest_asyncio.fixture(loop_scope="session")
async def harken(tmp_path: Path) -> AsyncIterator[HarkenProcess]:
    """A Harken of the test's own, which it may change, stop and start."""
    async with _running(tmp_path) as process:
        yield process


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_harken(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HarkenProcess]:
    """One Harken for all tests that only look."""
    async with _running(tmp_path_factory.mktemp("shared")) as process:
        yield process


@pytest_asyncio.fixture(loop_scope="session")
async def window(browser: Browser, harken: HarkenProcess) -> AsyncIterator[BrowserContext]:
    """A browser without history or cookies; a page in it that has an error fails the test."""
    async with _opened(browser, harken) as context:
        yield context


@pytest_asyncio.fixture(loop_scope="session")
async def page(window: BrowserContext) -> Page:
    """A page of the test's own Harken."""
    return await window.new_page()


@pytest_asyncio.fixture(loop_scope="session")
async def shared_page(browser: Browser, shared_harken: HarkenProcess) -> AsyncIterator[Page]:
    """A page of the Harken that tests share."""
    async with _opened(browser, shared_harken) as context:
        yield await context.new_page()


@asynccontextmanager
async def _running(directory: Path) -> AsyncIterator[HarkenProcess]:
    process = HarkenProcess(directory)
    process.write()
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


@asynccontextmanager
async def _opened(browser: Browser, harken: HarkenProcess) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(base_url=harken.url, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    wrong: list[str] = []
    context.on("weberror", lambda error: wrong.append(str(error.error)))
    context.on("console", lambda message: wrong.append(message.text) if "Content Security" in message.text else None)
    yield context
    await context.close()
    assert wrong == []
