"""How deep a page nests, before it is parsed: the parser looks through all open elements for each new one.

A hundred thousand open elements take it minutes, a million hours. Real pages have some dozens.
"""

from __future__ import annotations

import re

__all__ = ["too_deep"]

MOST = 1_000
_SCRIPT = re.compile(r"<(script|style)\b.*?(?:</\1|\Z)", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*)([^<>]*)")
# they have no end, or end by themselves where the next one begins
_LOOSE = re.compile(
    "area|base|body|br|caption|col|colgroup|dd|dt|embed|head|hr|html|img|input|li|link|meta|option|p|source"
    "|t[dhr]|tbody|tfoot|thead|track|wbr"
)
# drawings end where one of these begins (HTML, "rules for parsing tokens in foreign content")
_NOT_DRAWN = re.compile(
    "b|big|blockquote|center|code|div|dl|em|font|h[1-6]|i|listing|menu|nobr|ol|pre|ruby|s|small|span|strong|strike|sub"
    "|sup|table|tt|u|ul|var"
)


def too_deep(markup: str) -> bool:
    """Whether more elements are open at once than any page needs. Counted roughly, and rather too many."""
    depth, drawing = 0, False
    for found in _TAG.finditer(_SCRIPT.sub("", markup)):
        closes, name = bool(found[1]), found[2].lower()
        if _LOOSE.fullmatch(name):
            continue
        drawing = (drawing and not _NOT_DRAWN.fullmatch(name)) or (name in ("svg", "math"))
        if closes:
            depth = max(0, depth - 1)
            drawing = drawing and name not in ("svg", "math")
        elif not (drawing and found[3].endswith("/")):
            depth += 1
            if depth > MOST:
                return True
    return False
