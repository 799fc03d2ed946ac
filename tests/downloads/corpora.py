"""Recorded replies of real services, out of the source distributions of client libraries. None of them is kept here."""

from __future__ import annotations

import shutil
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path

from tests.downloads import NotBrought, bring, find
from tests.downloads.commands import run

__all__ = ["CORPORA", "corpus", "fetch"]

# the version, so that the same tests see the same replies; and which files are wanted of it
CORPORA = {
    "PyGithub": ("2.10.0", "*/tests/ReplayData/*.txt"),
    "datadog-api-client": ("2.62.0", "*/cassettes/*.yaml"),
    "feedparser": ("6.0.14", "*/tests/*.xml"),
    "grimoire-elk": ("1.8.3", "*/tests/data/*.json"),
    "perceval": ("1.6.1", "*/tests/data/*.json"),
}


def corpus(name: str) -> Path:
    """The directory of the unpacked source distribution, with the files and in the version that CORPORA names."""
    return find(_name(name))


def fetch(name: str) -> Path:
    return bring(_name(name), lambda directory: _unpack(name, directory))


def _name(name: str) -> str:
    return f"corpora/{name}=={CORPORA[name][0]}"


def _unpack(name: str, directory: Path) -> None:
    version, files = CORPORA[name]
    work = directory / ".work"
    work.mkdir()
    with tarfile.open(_download(f"{name}=={version}", work)) as packed:
        packed.extractall(work / "unpacked", [one for one in packed if fnmatch(one.name, files)], filter="data")
    (inside,) = (work / "unpacked").iterdir()
    for entry in inside.iterdir():
        entry.rename(directory / entry.name)
    shutil.rmtree(work)


def _download(wanted: str, work: Path) -> Path:
    why = ""
    # pip finds a source distribution's name by building it: quickly with what is installed, else in isolation
    for building in ("--no-build-isolation", "--use-pep517"):
        words = ["download", "--no-binary", ":all:", "--no-deps", "--quiet", building, "--dest", str(work), wanted]
        try:
            run([sys.executable, "-m", "pip", *words])
        except NotBrought as error:
            why = str(error)
        for archive in work.glob("*.tar.gz"):
            return archive
    raise NotBrought(why)
