"""One process at a time holds a folder, and a process that is gone holds none."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from leplanner.artifacts import folder_lock

HOLDER = """
import sys, time
from pathlib import Path
from leplanner.artifacts import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(120)
"""


def test_another_process_is_excluded_until_the_holder_is_killed(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        expected = rf"\(pid {holder.pid}\) is writing to {re.escape(str(tmp_path))}\."
        with pytest.raises(ValueError, match=expected), folder_lock(tmp_path):
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with folder_lock(tmp_path):
        pass


def test_a_lock_ends_with_its_block_however_that_ends(tmp_path):
    with pytest.raises(KeyboardInterrupt), folder_lock(tmp_path / "new"):
        raise KeyboardInterrupt
    with folder_lock(tmp_path / "new"):
        pass


def test_folders_are_locked_one_by_one(tmp_path):
    with folder_lock(tmp_path / "a"), folder_lock(tmp_path / "b"):
        pass
