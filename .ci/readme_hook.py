"""The README of the package: that of the repository, with links that lead somewhere from a page of an index too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(!?)(\[[^\]]*\]\()(?!https?://|#|mailto:)([^)\s]+)\)")


def absolute_links(text: str, base: str) -> str:
    """The text, with every relative link below `base`; pictures as files, not as pages about them."""

    def absolute(found: re.Match[str]) -> str:
        below = base.replace("/blob/", "/raw/") if found[1] else base
        return f"{found[1]}{found[2]}{below}/{found[3]})"

    return _RELATIVE.sub(absolute, text)


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        version = re.search(r'__version__ = "(.+)"', (Path(self.root) / "src/harken/__init__.py").read_text("utf-8"))
        assert version
        base = f"{metadata['urls']['Repository']}/blob/v{version[1]}"
        text = absolute_links((Path(self.root) / "README.md").read_text("utf-8"), base)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
