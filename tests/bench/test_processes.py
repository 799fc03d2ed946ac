"""What is read of a measured process."""

from __future__ import annotations

import os
import time

import pytest

from bench.processes import cpu_seconds

NO_PROCESS = 2**22
"""Above the largest process id that Linux gives."""


def test_work_that_is_shorter_than_a_tick_of_the_kernel_counts():
    before = cpu_seconds(os.getpid())
    began = time.process_time()
    while time.process_time() - began < 0.001:
        pass
    assert cpu_seconds(os.getpid()) - before >= 0.001


def test_a_process_that_is_not_there_is_said_to_be_gone():
    with pytest.raises(ProcessLookupError, match=str(NO_PROCESS)):
        cpu_seconds(NO_PROCESS)
