"""What the address of a tracker says: where its API is, and which organization and project are meant. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec

from harken.config.model_validation import Invalid

__all__ = ["Address", "is_cloud", "parse_address", "repository_in"]

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_]*)(?:-\d+)?", re.ASCII)
_CLOUD_HOSTS = frozenset({"github.com", "www.github.com", "api.github.com", "gitlab.com", "dev.azure.com"})
_CLOUD_DOMAINS = (".ghe.com", ".visualstudio.com", ".atlassian.net", ".jira.com")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What could be read from an address; an empty text for what it does not say."""

    base_url: str = ""
    organization: str = ""
    project: str = ""


def parse_address(kind: str, url: str, organization: str = "") -> Address:
    """Read the address of a tracker as people copy it from a browser. Raise Invalid for what is no plain address.

    `organization` is what is written beside it: it tells where the path of a server of your own ends.
    """
    parts = _split(url)
    segments = [unquote(part) for part in parts.path.split("/") if part]
    if any(part in (".", "..") or "/" in part for part in segments):
        raise Invalid("the path of this address cannot be read", "Copy the address of the page")
    read = _READERS.get(kind)
    if read is None:
        return Address(base_url=url.rstrip("/"))
    return read(parts, segments, organization)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError:
        raise Invalid("this is not an address", "Write https://host/path") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Invalid("this is not an http address", "Write https://host/path")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise Invalid("an address has no user, password or query here", "Write https://host/path alone")
    return parts


def _origin(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc}"


def _github(parts: SplitResult, segments: list[str], organization: str) -> Address:
    host = (parts.hostname or "").casefold()
    if host in ("github.com", "www.github.com"):
        base = "https://api.github.com"
    elif host.startswith("api."):
        # the address of the API itself has no repository in it
        return Address(base_url=_origin(parts))
    elif segments[:2] == ["api", "v3"]:
        return Address(base_url=f"{_origin(parts)}/api/v3")
    else:
        base = f"{parts.scheme}://api.{parts.netloc}" if host.endswith(".ghe.com") else f"{_origin(parts)}/api/v3"
    owner, name = (*segments, "", "")[:2]
    if not name:
        return Address(base_url=base, organization=owner)
    return Address(base_url=base, organization=owner, project=f"{owner}/{name.removesuffix('.git')}")


def _gitlab(parts: SplitResult, segments: list[str], organization: str) -> Address:
    if segments[:2] == ["api", "v4"]:
        return Address(base_url=_origin(parts))
    # what follows the dash are pages of the project
    path = segments[: segments.index("-")] if "-" in segments else segments
    if len(path) < 2:
        return Address(base_url=_origin(parts), organization="".join(path))
    project = "/".join(path).removesuffix(".git")
    return Address(base_url=_origin(parts), organization="/".join(path[:-1]), project=project)


def _azure_devops(parts: SplitResult, segments: list[str], organization: str) -> Address:
    host = (parts.hostname or "").casefold()
    # _git, _workitems and the like are pages of the project
    path = next((segments[:at] for at, part in enumerate(segments) if part.startswith("_")), segments)
    if host.endswith(".visualstudio.com"):
        rest = path[1:] if path[:1] == ["DefaultCollection"] else path
        return Address(base_url="https://dev.azure.com", organization=host.split(".")[0], project="".join(rest[:1]))
    if host == "dev.azure.com":
        owner, name = (*path, "", "")[:2]
        return Address(base_url=_origin(parts), organization=owner, project=name)
    folded = [part.casefold() for part in path]
    if organization and organization.casefold() in folded:
        at = folded.index(organization.casefold())
    else:
        # a server: …/tfs/Collection/Project, or with an address of its own …/Collection/Project
        at = len(path) if organization else 1 if folded[:1] == ["tfs"] else 0
    base = "/".join([_origin(parts), *path[:at]])
    owner, name = (*path[at:], "", "")[:2]
    return Address(base_url=base, organization=owner, project=name)


def _jira(parts: SplitResult, segments: list[str], organization: str) -> Address:
    pages = [at for at, part in enumerate(segments) if part in ("browse", "projects")]
    base = segments[: pages[0]] if pages else segments
    # a page of Cloud: /jira/software/c/projects/KEY/boards/1
    base = base[: base.index("software")] if "software" in base else base
    if is_cloud(_origin(parts)):
        base = []
    found = _KEY.fullmatch(segments[pages[0] + 1]) if pages and len(segments) > pages[0] + 1 else None
    return Address(base_url="/".join([_origin(parts), *base]), project=found[1] if found else "")


_READERS: Mapping[str, Callable[[SplitResult, list[str], str], Address]] = {
    "github": _github,
    "gitlab": _gitlab,
    "azure_devops": _azure_devops,
    "jira": _jira,
}


def is_cloud(url: str) -> bool:
    """Whether this is a host of the platform itself, and not a server of somebody's own."""
    host = (urlsplit(url).hostname or "").casefold()
    return host in _CLOUD_HOSTS or host.endswith(_CLOUD_DOMAINS)


def repository_in(kind: str, url: str, base_url: str) -> str:
    """The repository that an address of code names, if it is at the same server as the tracker; else empty.

    Raise Invalid for what is no plain address."""
    found = parse_address(kind, url)
    return found.project if found.base_url == base_url else ""
