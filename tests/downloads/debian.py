"""Programs of Debian packages, with the libraries they need: unpacked, so that nothing is installed or started.

Only Dovecot is installed, as it has the paths of its parts compiled in. A program that the system has is used as it is.
Package lists and archives are our own, so unpacking needs no root, and no other apt on the machine is disturbed.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.downloads import NotBrought, bring, cache, find
from tests.downloads.commands import run

__all__ = ["PROGRAMS", "environment", "fetch", "has", "program"]

# the path of the file that is wanted, which may have a * in it
PROGRAMS = {
    "postgresql": "usr/lib/postgresql/*/bin/pg_ctl",
    "rabbitmq-server": "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server",
    "redis-server": "usr/bin/redis-server",
    "mosquitto": "usr/sbin/mosquitto",
    "mariadb-server-core": "usr/sbin/mariadbd",
    "dovecot-imapd": "usr/sbin/dovecot",
    "iproute2": "bin/ip",
    "iptables": "usr/sbin/iptables-legacy",
    "libfaketime": "usr/lib/*/faketime/libfaketimeMT.so.1",
    "libnss-wrapper": "usr/lib/*/libnss_wrapper.so",
    "prometheus": "usr/bin/promtool",
    "chromium": "usr/lib/chromium/chromium",
}
LOCK_SECONDS = 300
INSTALLED = ("dovecot-imapd",)
# only for compiling queries at run time, and larger than all the rest together
NEEDLESS = ("libllvm", "libz3", "perl")


def has(package: str) -> bool:
    """Whether the system has it."""
    return bool(_installed(package))


def program(package: str) -> Path:
    """The program of the package."""
    found = _installed(package) or sorted(find(f"debian/{package}").glob(PROGRAMS[package]))
    return found[-1]


def _installed(package: str) -> list[Path]:
    # set it to try the tests as on a machine that has no server
    ignored = os.environ.get("HARKEN_TESTS_OWN_SERVERS")
    return [] if ignored else sorted(Path("/").glob(PROGRAMS[package]))


def environment(program: Path) -> dict[str, str]:
    """The environment in which a program finds its libraries."""
    packages = cache() / "debian"
    if not program.is_relative_to(packages):
        return dict(os.environ)
    root = packages / program.relative_to(packages).parts[0]
    libraries = sorted({str(library.parent) for library in root.glob("usr/lib/**/lib*.so*")})
    return {**os.environ, "LD_LIBRARY_PATH": ":".join([*libraries, *sorted(map(str, root.glob("lib/*-linux-gnu")))])}


def fetch(package: str) -> Path:
    """Download the package and what it needs beside what the system has, and unpack all of it."""
    if package in INSTALLED:
        return _install(package)
    return bring(f"debian/{package}", lambda directory: _unpack(package, directory))


def _install(package: str) -> Path:
    if os.getuid() != 0:
        raise NotBrought(f"it has to be installed, which needs root. Run: sudo apt-get install {package}")
    # another clone may be installing it too; and its service must not be started
    options = ["-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", "--no-install-recommends"]
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    archives = [str(archive) for archive in sorted(_download(package).glob("*.deb"))]
    # without archives the other clone was quicker: wait until its apt is done
    run(["apt-get", "install", "-y", "-qq", *options, *(archives or [package])], env=quiet)
    return program(package)


def _download(package: str) -> Path:
    return bring(f"archives/{package}", lambda directory: _download_into(directory, package))


def _download_into(directory: Path, package: str) -> None:
    needed = _needed(package)
    if needed:
        run(["apt-get", *_options(), "download", "-qq", *needed], cwd=directory)


def _unpack(package: str, directory: Path) -> None:
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise NotBrought("this is not a Debian or Ubuntu: install it by hand")
    archives = directory / "archives"
    archives.mkdir()
    _download_into(archives, package)
    for archive in sorted(archives.glob("*.deb")):
        run(["dpkg-deb", "-x", archive, directory])
    shutil.rmtree(archives)
    if not list(directory.glob(PROGRAMS[package])):
        raise NotBrought(f"the package has no {PROGRAMS[package]}")


def _needed(package: str) -> list[str]:
    if not any((cache() / "apt/lists").glob("*_Packages*")):
        run(["apt-get", *_options(), "update", "-qq"])
    simulated = run(["apt-get", *_options(), "install", "--simulate", "--no-install-recommends", package])
    names = [line.split()[1] for line in simulated.splitlines() if line.startswith("Inst ")]
    return [name for name in names if not name.startswith(NEEDLESS)]


def _options() -> list[str]:
    """Lists and archives of our own."""
    apt = cache() / "apt"
    for name in ("lists/partial", "archives/partial"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    # without apt's own user for downloads, who may not write there
    values = {"Dir::State::lists": apt / "lists", "Dir::Cache": apt, "APT::Sandbox::User": "root"}
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]
