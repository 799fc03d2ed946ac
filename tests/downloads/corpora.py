"""Recorded replies of real services, out of the source distributions of client libraries. None of them is kept here."""

from __future__ import annotations

import shutil
import sys
import tarfile
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

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
    with tarfile.open(_download(name, version, work)) as packed:
        for one in packed:
            # not extractall: before Python 3.11.4 it has no filter against paths that lead elsewhere
            if fnmatch(one.name, files) and (content := packed.extractfile(one)) is not None:
                _write(directory, PurePosixPath(one.name), content.read())
    shutil.rmtree(work)


def _write(directory: Path, name: PurePosixPath, content: bytes) -> None:
    """Write a file of the archive, without the directory in which an archive has everything."""
    if name.is_absolute() or ".." in name.parts:
        raise NotBrought(f"the archive has a file outside of it: {name}")
    path = directory.joinpath(*name.parts[1:])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _download(name: str, version: str, work: Path) -> Path:
    why = ""
    # as a source distribution, but not the tools that build it: those would be built first, too
    words = ["download", "--no-binary", name, "--no-deps", "--quiet", "--dest", str(work), f"{name}=={version}"]
    # pip finds a source distribution's name by building it: quickly with what is installed, else in isolation
    for building in ("--no-build-isolation", "--use-pep517"):
        try:
            run([sys.executable, "-m", "pip", *words, building])
        except NotBrought as error:
            why = str(error)
        for archive in work.glob("*.tar.gz"):
            return archive
    raise NotBrought(why)
