"""The README of the package: that of the repository, with links that lead somewhere from a page of an index too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(\]\()(?!https?://|#|mailto:)([^)\s]+)\)")


def absolute_links(text: str, base: str) -> str:
    """The text, with every relative link below `base`."""
    return _RELATIVE.sub(lambda found: f"{found[1]}{base}/{found[2]})", text)


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        version = re.search(r'__version__ = "(.+)"', (Path(self.root) / "src/harken/__init__.py").read_text("utf-8"))
        assert version
        base = f"{metadata['urls']['Repository']}/blob/v{version[1]}"
        text = absolute_links((Path(self.root) / "README.md").read_text("utf-8"), base)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
