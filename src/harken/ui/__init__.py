"""The web UI at / of the server: files that are the same for everybody, and nothing else. Its data comes from /api."""

from harken.ui.single_page_app import Pages

__all__ = ["Pages"]
