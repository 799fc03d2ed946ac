"""People log in at their identity provider, and come back to the page that they wanted."""

from __future__ import annotations

import json

from playwright.async_api import Page, expect

from tests.api.identity_provider import CLIENT, SECRET, identity_provider
from tests.ui import axe
from tests.ui.harken_process import HarkenProcess


async def test_a_person_logs_in_and_comes_back_to_the_page_they_wanted(page: Page, harken: HarkenProcess) -> None:
    async with identity_provider() as there:
        settings = {
            "issuer": there.url,
            "client_id": CLIENT,
            "client_secret": SECRET,
            "redirect_uri": f"{harken.url}/auth/callback",
            "allow_private": True,
            "operators": ["oncall"],
        }
        await harken.stop()
        main = {"metrics": {"enabled": False}, "server": {"require_tokens": True}, "oidc": settings}
        harken.write({"harken.yaml": json.dumps(main)})
        await harken.start()
        await page.goto("/workflows?q=deploy")
        link = page.get_by_role("link", name="Log in with your identity provider")
        await expect(link).to_be_visible()
        assert await axe.findings(page) == []
        await link.click()
        await expect(page).to_have_url(f"{harken.url}/workflows?q=deploy")
        await expect(page.get_by_role("link", name="deploys").first).to_be_visible()
        # an operator starts workflows, and does not change their files
        await expect(page.get_by_role("button", name="Run now")).to_be_visible()
        await page.goto("/workflows/deploys?tab=yaml&edit=1")
        await expect(page.get_by_role("textbox", name="YAML of deploys")).to_be_visible()
        await expect(page.get_by_role("button", name="Edit")).to_have_count(0)
        assert "description" in there.fetched
