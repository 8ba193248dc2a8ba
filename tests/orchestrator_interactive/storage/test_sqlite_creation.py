from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE

# Creates the same files as the other processes, at the same time: all begin when their input ends.
CREATE = """
import sys
from pathlib import Path
from orchestrator_interactive.storage.sqlite import open_database
sys.stdin.read()
for number in range(100):
    prepare = lambda file: file.execute("CREATE TABLE IF NOT EXISTS kept (text)")
    open_database(Path(sys.argv[1], f"{number}.db"), prepare).close()
"""


async def test_processes_that_create_a_file_at_the_same_time_wait_for_each_other(tmp_path):
    command = (sys.executable, "-c", CREATE, str(tmp_path))
    creating = [await asyncio.create_subprocess_exec(*command, stdin=PIPE, stderr=PIPE) for _ in range(4)]
    errors = [said.decode() for _, said in await asyncio.gather(*[each.communicate(b"") for each in creating])]
    assert errors == [""] * 4
