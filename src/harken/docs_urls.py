"""Where the pages are that messages point to: whoever has installed the package has no docs/ beside it."""

from __future__ import annotations

__all__ = ["address_of"]


def address_of(path: str) -> str:
    """The address of a file of the repository, such as docs/how-to/tickets.md; without a package, the path itself."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        urls = metadata("harken").get_all("Project-URL") or []
    except PackageNotFoundError:
        return path
    places = {name: address for name, _, address in (url.partition(", ") for url in urls)}
    return f"{places['Repository']}/blob/main/{path}" if "Repository" in places else path
