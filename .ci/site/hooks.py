"""What is done to the pages of docs/ when they become the site.

Files beside docs/ that people read (changes, contributing, recipes) become pages. Links that leave docs/ lead to these,
or to the repository. Mermaid becomes the picture that diagrams.py has drawn of it. `<!-- made: NAME -->` becomes what
reference.py makes.
"""

from __future__ import annotations

import posixpath
import re
import struct
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import diagrams  # noqa: E402
import reference  # noqa: E402

SMALLEST = 0.75
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s]+)\)")
IMAGE = re.compile(r'(<img [^>]*?src="([^"]+)")([^>]*>)')
VIEW_BOX = re.compile(rb'<svg [^>]*viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"')
BUNDLE = re.compile(r'<script src="([^"]*assets/javascripts/bundle\.[^"]+)"></script>')
# Search, copy buttons and the marked heading need the theme's script, and it brings a megabyte of search index. A page
# that is only read needs neither. An address with a query has words to search for or to mark.
LATER = """<script>
(() => {
  const signs = ["pointermove", "pointerdown", "touchstart", "keydown", "focusin", "scroll"];
  const begin = () => {
    signs.forEach(sign => removeEventListener(sign, begin, true));
    document.body.append(Object.assign(document.createElement("script"), {src: "BUNDLE"}));
  };
  document.documentElement.classList.replace("no-js", "js");
  if (location.search) begin();
  else signs.forEach(sign => addEventListener(sign, begin, {capture: true, passive: true}));
})();
</script>"""
MADE = re.compile(r"^<!-- made: (\w+) -->$", re.MULTILINE)

RECIPES = {
    f"examples/recipes/{path.parent.name}/README.md": f"how-to/recipes/{path.parent.name}.md"
    for path in sorted((ROOT / "src/harken/recipes").glob("*/README.md"))
}
OUTSIDE = {
    "README.md": "overview.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CODE_OF_CONDUCT.md": "CODE_OF_CONDUCT.md",
    **RECIPES,
}
PLACES = {page: source for source, page in OUTSIDE.items()}
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The long lists of the nav are what is there."""
    services = [f"reference/services/{path.name}" for path in sorted((ROOT / "docs/reference/services").glob("*.md"))]
    decisions = [f"decisions/{path.name}" for path in sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))]
    lists = {"SERVICES": services, "DECISIONS": ["decisions/README.md", *decisions]}
    nav = _filled(config.nav, lists)
    config.nav = [*nav, *({"More": left} for left in [_left_out(nav)] if left)]
    config.copyright = f'Apache-2.0 · <a href="{URLS["Repository"]}">source</a>'
    return config


def _filled(nav: Any, lists: dict[str, list[str]]) -> Any:
    if isinstance(nav, dict):
        return {name: _filled(part, lists) for name, part in nav.items()}
    if isinstance(nav, list):
        return (
            lists[nav[0]]
            if nav and isinstance(nav[0], str) and nav[0] in lists
            else [_filled(part, lists) for part in nav]
        )
    return nav


def _left_out(nav: Any) -> list[str]:
    """Pages that have no place in the nav yet; they are at its end until somebody gives them one."""
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if page not in set(_leaves(nav))]


def _leaves(nav: Any) -> list[str]:
    parts = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else None
    return [nav] if parts is None else [leaf for part in parts for leaf in _leaves(part)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    for path in (ROOT / ".ci/site/theme").glob("*.*"):
        files.append(File.generated(config, path.name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    parts, end = [], 0
    markdown = MADE.sub(lambda found: reference.MAKERS[found[1]](), markdown)
    for block in FENCE.finditer(markdown):
        parts.append(_linked(markdown[end : block.start()], page.file.src_uri, files))
        parts.append(_picture(block[2], page) if block[1] == "mermaid" else block[0])
        end = block.end()
    return "".join([*parts, _linked(markdown[end:], page.file.src_uri, files)])


def _picture(text: str, page: Page) -> str:
    drawn = diagrams.path_of(text)
    if not drawn.exists():
        raise PluginError(f"{page.file.src_uri}: a diagram has no picture. Run: python .ci/site/diagrams.py")
    picture = drawn.read_text("utf-8").strip()
    width = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+)', picture)
    assert width
    # a wide one is scrolled before its letters become too small
    picture = picture.replace('style="', f'style="min-width: {float(width[1]) * SMALLEST:.0f}px; ', 1)
    return f'<div class="diagram">{picture}</div>'


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Say how large pictures are, so that the text below them does not move, and let the first one come first."""
    sized = IMAGE.sub(lambda found: f"{found[1]}{_size(found[2], page)}{found[3]}", html)
    return sized.replace("<img ", '<img fetchpriority="high" ', 1)


def _size(source: str, page: Page) -> str:
    if "://" in source:
        return ""
    path = ROOT / "docs" / posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), source))
    content = path.read_bytes()
    box = VIEW_BOX.search(content)
    width, height = (float(box[1]), float(box[2])) if box else struct.unpack(">II", content[16:24])
    return f' width="{width:.0f}" height="{height:.0f}"'


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the start page and the dialog of the theme's search, and let the theme's script wait for a person."""
    output = output.replace("<title>Harken - Harken</title>", "<title>Harken</title>")
    output = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    later, found = BUNDLE.subn(lambda script: LATER.replace("BUNDLE", script[1]), output)
    if found != 1:
        raise PluginError(f"{page.file.src_uri}: the script of the theme is not where .ci/site/hooks.py looks for it")
    return later


def _linked(text: str, page: str, files: Files) -> str:
    return LINK.sub(lambda found: f"{found[1]}{_target(found[2], page, files)})", text)


def _target(link: str, page: str, files: Files) -> str:
    """Where a link leads that is written for the repository."""
    path, _, anchor = link.partition("#")
    if not path or "://" in link or link.startswith("mailto:"):
        return link
    source = PLACES.get(page, f"docs/{page}")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    inside = OUTSIDE.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else "")
    if inside and files.get_file_from_path(inside):
        relative = posixpath.relpath(inside, posixpath.dirname(page) or ".")
        return f"{relative}#{anchor}" if anchor else relative
    place = ROOT / target
    if not place.exists():
        raise PluginError(f"{page}: {link} leads nowhere")
    return f"{URLS['Repository']}/{'tree' if place.is_dir() else 'blob'}/main/{target}" + (
        f"#{anchor}" if anchor else ""
    )
