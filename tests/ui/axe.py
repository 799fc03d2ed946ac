"""axe-core in a page: what stands in the way of people who cannot see it or use a mouse."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page

from tests.downloads import node_programs

__all__ = ["findings"]


async def findings(page: Page) -> list[str]:
    """One line for each finding: the rule, and where."""
    source = (node_programs.recordings("axe-core") / "axe.min.js").read_text()
    # through the debugger, which the page's policy does not concern
    await page.evaluate(source)
    found: Any = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {one['help']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
