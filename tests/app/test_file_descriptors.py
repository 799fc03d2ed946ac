"""A process may raise its limit of open files up to the hard one, and is told what it got."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harken.app import file_descriptors

# the file alone, as importing the application takes a second
ASK = f"import resource, runpy; found = runpy.run_path({file_descriptors.__file__!r})['raise_descriptors'](600); "
SHOW = "print(found, resource.getrlimit(resource.RLIMIT_NOFILE)[0])"


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ("ulimit -Sn 300", "600 600"),
        ("ulimit -Sn 300; ulimit -Hn 500", "500 500"),
        ("ulimit -n 300", "300 300"),
        ("ulimit -Sn 900", "600 900"),
    ],
    ids=["raised", "as far as it goes", "not at all", "enough"],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_may_be(limits: str, found: str) -> None:
    command = ("sh", "-c", f'{limits}; exec "$@"', "sh", sys.executable, "-c", ASK + SHOW)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == found
