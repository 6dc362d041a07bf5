"""How a process that runs for months uses memory, and where its memory must not go."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from contextlib import suppress
from typing import Final

_ARENAS: Final = 2
_KEPT_BYTES: Final = 32 * 1024 * 1024
"""The largest threshold that the GNU C library takes for single blocks. A commit takes less, its copy included."""
_MALLOC: Final = (  # mallopt(3): the variable of the environment, the parameter, its value
    ("MALLOC_ARENA_MAX", -8, _ARENAS),
    ("MALLOC_TRIM_THRESHOLD_", -1, _KEPT_BYTES),
    ("MALLOC_MMAP_THRESHOLD_", -3, _KEPT_BYTES),
)


def settle_memory() -> None:
    """Prepare the memory of a long-running process. Call it after the imports, and before the first other thread.

    The garbage collector leaves alone what exists now: its collections, which delay all shards, need not look at it.

    The GNU C library gives each thread an arena, up to eight per core, and keeps what an arena once had. Compactions,
    which run in changing threads, would let each of these arenas grow to what a compaction takes. Two are enough: few
    threads allocate at the same time.

    It also returns freed memory to the system, and the next event or commit takes it again, with a page fault for each
    4 KiB: 10,000 a second with records of 1 KB. So an arena keeps up to 32 MiB.

    Its variables in the environment go before. Other C libraries ignore all this.
    """
    gc.freeze()
    for variable, parameter, value in _MALLOC:
        if variable not in os.environ:
            with suppress(OSError, AttributeError):  # no C library of that kind
                ctypes.CDLL(None).mallopt(parameter, value)


def forbid_core_files() -> None:
    """Let a crash of this process, and of those that it starts, write no core file: it would contain the credentials.

    The hard limit stays, so an operator can allow one: `prlimit --core=unlimited --pid PID`.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
