"""Makes the libraries in static/vendor/ again: `python -m harken.ui.vendor_build`. It needs npm, and the network.

Each library becomes one ES module without imports, so that a page needs no import map and no build. Our own code is
served as it is written.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["BUNDLES", "VERSIONS", "make"]

VENDOR = Path(__file__).parent / "static" / "vendor"

VERSIONS: Mapping[str, str] = {
    "preact": "11.2.0",
    "@preact/signals": "2.11.4",
    "htm": "3.1.1",
    "uplot": "1.6.32",
    "@codemirror/autocomplete": "6.20.4",
    "@codemirror/commands": "6.11.1",
    "@codemirror/lang-yaml": "6.1.3",
    "@codemirror/language": "6.13.1",
    "@codemirror/lint": "6.9.7",
    "@codemirror/search": "6.7.2",
    "@codemirror/state": "6.7.6",
    "@codemirror/view": "6.43.15",
}
BUNDLER = "0.28.2"

BUNDLES: Mapping[str, str] = {
    "preact.js": """
export { h, render, Fragment, createContext } from "preact";
export { useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useId } from "preact/hooks";
export { signal, computed, effect, batch, untracked, useSignal, useComputed, useSignalEffect } from "@preact/signals";
import { h } from "preact";
import htm from "htm";
export const html = htm.bind(h);
""",
    "uplot.js": 'export { default } from "uplot";',
    "codemirror.js": """
export * from "@codemirror/autocomplete";
export * from "@codemirror/commands";
export * from "@codemirror/language";
export * from "@codemirror/lint";
export * from "@codemirror/search";
export * from "@codemirror/state";
export * from "@codemirror/view";
export { yaml, yamlLanguage } from "@codemirror/lang-yaml";
export { tags } from "@lezer/highlight";
""",
}
STYLES: Mapping[str, str] = {"uplot.css": "uplot/dist/uPlot.min.css"}


def make(target: Path) -> None:
    """Fetch the packages in their fixed versions, and write each bundle with the licences of what is in it."""
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        wanted = [f"{name}@{version}" for name, version in {**VERSIONS, "esbuild": BUNDLER}.items()]
        _run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts", *wanted], work)
        for name, entry in BUNDLES.items():
            (work / name).write_text(entry)
            options = ["--bundle", "--format=esm", "--minify", "--target=es2022", "--legal-comments=none"]
            _run(["node_modules/.bin/esbuild", name, *options, f"--outfile={target / name}"], work)
        for name, source in STYLES.items():
            (target / name).write_bytes((work / "node_modules" / source).read_bytes())
        (target / "LICENSES.txt").write_text(_licences(work / "node_modules"))


def _licences(packages: Path) -> str:
    """The licence of each package that may be in a bundle."""
    found = []
    for file in sorted({*packages.glob("*/LICENSE*"), *packages.glob("@*/*/LICENSE*")}):
        name = str(file.parent.relative_to(packages))
        if "esbuild" not in name:
            found.append(f"{name}\n\n{file.read_text().strip()}\n")
    return ("\n" + "-" * 80 + "\n\n").join(found)


def _run(command: list[str], place: Path) -> None:
    subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    make(VENDOR)
    sys.stdout.write(f"{VENDOR}: {', '.join(sorted(file.name for file in VENDOR.iterdir()))}\n")
