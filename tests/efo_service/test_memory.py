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

COMMITS = """
import resource, sys
from efo_service.memory import settle_memory

if sys.argv[1] == "settled":
    settle_memory()
for number in range(20):
    if number == 10:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    parts = [bytes([1]) * 2**20 for _ in range(8)]
    del parts
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def arenas(argument: str, **environ: str) -> int:
    return output(PROGRAM, argument, **environ).count("<heap nr=")


def output(program: str, argument: str, **environ: str) -> str:
    command = [sys.executable, "-c", program, argument]
    path = f"{ROOT}:{ROOT / 'service'}"
    result = subprocess.run(command, env={"PYTHONPATH": path, **environ}, check=True, capture_output=True, text=True)
    return result.stdout


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only the GNU C library has arenas")
def test_the_threads_of_a_settled_process_share_two_arenas() -> None:
    assert arenas("unsettled") > 2
    assert arenas("settled") == 2
    assert arenas("settled", MALLOC_ARENA_MAX="3") == 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only the GNU C library has these thresholds")
def test_a_settled_process_keeps_the_memory_of_a_commit_for_the_next_one() -> None:
    pages = 10 * 8 * 2**20 // 4096
    assert int(output(COMMITS, "settled")) < pages / 10
    assert int(output(COMMITS, "unsettled")) > pages / 2


def test_a_command_that_crashes_writes_no_core_file():
    program = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "sys.argv = ['efo', 'version']\n"
        "from efo_service import cli\n"
        "try:\n    cli.main()\nfinally:\n    print(resource.getrlimit(resource.RLIMIT_CORE)[0])\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "0"
