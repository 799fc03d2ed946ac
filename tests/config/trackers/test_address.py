"""What the address of a tracker says."""

from __future__ import annotations

import pytest

from harken.config.model_validation import Invalid
from harken.config.trackers.address import Address, is_cloud, parse_address, repository_in


@pytest.mark.parametrize(
    ("kind", "url", "base_url", "organization", "project"),
    [
        ("github", "https://github.com/org/my-api", "https://api.github.com", "org", "org/my-api"),
        ("github", "https://github.com/org/my-api.git", "https://api.github.com", "org", "org/my-api"),
        ("github", "https://github.com/org/my-api/issues/7", "https://api.github.com", "org", "org/my-api"),
        ("github", "https://github.com/org", "https://api.github.com", "org", ""),
        ("github", "https://github.com/", "https://api.github.com", "", ""),
        ("github", "https://api.github.com", "https://api.github.com", "", ""),
        ("github", "https://git.acme.com/org/api", "https://git.acme.com/api/v3", "org", "org/api"),
        ("github", "https://git.acme.com/api/v3/", "https://git.acme.com/api/v3", "", ""),
        ("github", "https://acme.ghe.com/org/api", "https://api.acme.ghe.com", "org", "org/api"),
        ("gitlab", "https://gitlab.com/group/sub/api", "https://gitlab.com", "group/sub", "group/sub/api"),
        ("gitlab", "https://gitlab.com/group/api/-/issues", "https://gitlab.com", "group", "group/api"),
        ("gitlab", "https://gitlab.com/group/api.git", "https://gitlab.com", "group", "group/api"),
        ("gitlab", "https://gitlab.acme.com:8443/api/v4", "https://gitlab.acme.com:8443", "", ""),
        ("gitlab", "https://gitlab.acme.com/group", "https://gitlab.acme.com", "group", ""),
        ("azure_devops", "https://dev.azure.com/acme/My%20Shop", "https://dev.azure.com", "acme", "My Shop"),
        ("azure_devops", "https://dev.azure.com/acme/Shop/_workitems", "https://dev.azure.com", "acme", "Shop"),
        ("azure_devops", "https://acme.visualstudio.com/Shop", "https://dev.azure.com", "acme", "Shop"),
        ("azure_devops", "https://tfs.acme.com/tfs/Main/Shop", "https://tfs.acme.com/tfs", "Main", "Shop"),
        ("azure_devops", "https://ado.acme.com/Main/Shop/_git/web", "https://ado.acme.com", "Main", "Shop"),
        ("jira", "https://acme.atlassian.net", "https://acme.atlassian.net", "", ""),
        ("jira", "https://acme.atlassian.net/browse/TL-7", "https://acme.atlassian.net", "", "TL"),
        (
            "jira",
            "https://acme.atlassian.net/jira/software/c/projects/TL/boards/1",
            "https://acme.atlassian.net",
            "",
            "TL",
        ),
        ("jira", "https://jira.acme-internal.com", "https://jira.acme-internal.com", "", ""),
        ("jira", "https://acme.com/jira/", "https://acme.com/jira", "", ""),
        ("jira", "https://acme.com/jira/projects/TL/issues", "https://acme.com/jira", "", "TL"),
        ("other", "https://acme.com/x/", "https://acme.com/x", "", ""),
    ],
)
def test_an_address_from_a_browser_is_read(kind: str, url: str, base_url: str, organization: str, project: str) -> None:
    assert parse_address(kind, url) == Address(base_url=base_url, organization=organization, project=project)


@pytest.mark.parametrize(
    ("organization", "base_url", "project"),
    [("Main", "https://ado.acme.com/azure", "Shop"), ("main", "https://ado.acme.com/azure", "Shop")],
)
def test_the_organization_tells_where_the_path_of_a_server_ends(organization: str, base_url: str, project: str) -> None:
    found = parse_address("azure_devops", "https://ado.acme.com/azure/Main/Shop", organization)
    assert (found.base_url, found.organization, found.project) == (base_url, "Main", project)


def test_an_organization_that_is_not_in_the_address_follows_it() -> None:
    found = parse_address("azure_devops", "https://ado.acme.com/azure", "Main")
    assert found == Address(base_url="https://ado.acme.com/azure")


@pytest.mark.parametrize(
    "url",
    [
        "github.com/org/api",
        "git@github.com:org/api.git",
        "ftp://github.com/org/api",
        "https://user:pass@github.com/org/api",
        "https://github.com/org/api?token=x",
        "https://github.com/org/api#1",
        "https://github.com/../api",
        "https://github.com/org%2Fother/api",
        "https://[::1",
        "https://github.com:port/org",
        "",
    ],
)
def test_what_is_no_plain_address_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        parse_address("github", url)


@pytest.mark.parametrize(
    ("url", "cloud"),
    [
        ("https://api.github.com", True),
        ("https://dev.azure.com", True),
        ("https://acme.atlassian.net", True),
        ("https://gitlab.com", True),
        ("https://jira.acme.com", False),
        ("https://evil-atlassian.net", False),
        ("https://github.com.evil.example", False),
    ],
)
def test_hosts_of_the_platforms_are_told_from_servers_of_ones_own(url: str, cloud: bool) -> None:
    assert is_cloud(url) is cloud


def test_the_repository_of_code_counts_only_at_the_same_server() -> None:
    assert repository_in("github", "https://github.com/org/api", "https://api.github.com") == "org/api"
    assert repository_in("github", "https://github.com/org/api", "https://git.acme.com/api/v3") == ""
