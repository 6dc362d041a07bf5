"""How a process that runs for months uses memory."""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from typing import Final

_M_ARENA_MAX: Final = -8  # mallopt(3)
_ARENAS: Final = 2


def settle_memory() -> None:
    """Prepare the memory of a long-running process. Call it after the imports, and before the first other thread.

    The garbage collector leaves alone what exists now: its collections, which delay all shards, need not look at it.

    The GNU C library gives each thread an arena, up to eight per core, and keeps what an arena once had. Compactions,
    which run in changing threads, would let each of these arenas grow to what a compaction takes. Two are enough: few
    threads allocate at the same time. MALLOC_ARENA_MAX in the environment goes before. Other C libraries ignore this.
    """
    gc.freeze()
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(OSError, AttributeError):  # no C library of that kind
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)
