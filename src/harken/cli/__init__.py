"""The command line door. Only click is imported until a command runs, so that help is instant."""

from harken.cli.root import main

__all__ = ["main"]
