from __future__ import annotations

import subprocess
import sys

import pytest

from tests.paths import ROOT

PROGRAM = """
import ctypes, sys, threading
from efo_service.memory import settle_memory

if sys.argv[1] == "settled":
    settle_memory()
barrier = threading.Barrier(8)

def allocate() -> None:
    barrier.wait()  # threads that exist at the same time do not share an arena
    bytes(5000)
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
stdout = ctypes.c_void_p.in_dll(libc, "stdout")
libc.malloc_info(0, stdout)
libc.fflush(stdout)
"""


def arenas(argument: str, **environ: str) -> int:
    command = [sys.executable, "-c", PROGRAM, argument]
    path = f"{ROOT}:{ROOT / 'service'}"
    result = subprocess.run(command, env={"PYTHONPATH": path, **environ}, check=True, capture_output=True, text=True)
    return result.stdout.count("<heap nr=")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only the GNU C library has arenas")
def test_the_threads_of_a_settled_process_share_two_arenas() -> None:
    assert arenas("unsettled") > 2
    assert arenas("settled") == 2
    assert arenas("settled", MALLOC_ARENA_MAX="3") == 3
