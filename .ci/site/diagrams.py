"""Draws every Mermaid diagram of the documentation as SVG: python .ci/site/diagrams.py

The pictures are kept in docs/diagrams/, named by what they show, so that neither a reader nor a build needs Mermaid.
Drawing takes npm and Chromium; a test says which diagram has no picture, and which picture no diagram.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
DRAWN = ROOT / "docs" / "diagrams"
MERMAID = "mermaid@11.12.0"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LEFT_OUT = re.compile(
    r'<style>.*?</style>| data-[\w-]+="[^"]*"|<marker id="[^"]*-(?:circle|cross)(?:Start|End)[^"]*".*?</marker>',
    re.DOTALL,
)
DIGITS = re.compile(r"(-?\d+\.\d)\d+")
CHROMIUM = "/usr/bin/chromium"

DRAW = """async ([id, text]) => {
    mermaid.initialize({startOnLoad: false, securityLevel: 'strict', theme: 'base', fontFamily: 'sans-serif',
        htmlLabels: false, flowchart: {htmlLabels: false, curve: 'basis', useMaxWidth: true}});
    return (await mermaid.render('d' + id, text)).svg;
}"""


def path_of(text: str) -> Path:
    """The picture of a diagram."""
    return DRAWN / f"{hashlib.sha256(text.strip().encode()).hexdigest()[:12]}.svg"


def diagrams() -> dict[Path, str]:
    """All diagrams, by their picture."""
    pages = [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src/harken/recipes").glob("*/README.md"))]
    return {path_of(text): text for page in pages for text in BLOCK.findall(page.read_text("utf-8"))}


def main() -> None:
    from playwright.sync_api import sync_playwright

    wanted = diagrams()
    for path in set(DRAWN.glob("*.svg")) - set(wanted):
        path.unlink()
    missing = {path: text for path, text in wanted.items() if not path.exists()}
    if not missing:
        return
    DRAWN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        options = ["--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts", "--prefix", work]
        subprocess.run(["npm", "install", *options, MERMAID], check=True, stdout=sys.stderr)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=f"{work}/node_modules/mermaid/dist/mermaid.min.js")
        for path, text in missing.items():
            drawn = page.evaluate(DRAW, [path.stem, text])
            # harken.css has the colours, for light and dark
            path.write_text(DIGITS.sub(r"\1", LEFT_OUT.sub("", drawn)) + "\n", "utf-8")
        browser.close()


if __name__ == "__main__":
    main()
