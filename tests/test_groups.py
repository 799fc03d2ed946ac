"""Tests of a group are dealt out together: they share a server, or must not run at the same time."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_a_group_is_in_the_id_by_which_tests_are_dealt_out(request: pytest.FixtureRequest) -> None:
    dealt_out = bool(request.config.getoption("loadgroup", False))
    assert request.node.nodeid.endswith("@groups") == dealt_out
