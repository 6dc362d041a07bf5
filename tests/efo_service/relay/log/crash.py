"""Commits one group in a child process that is killed at the n-th file operation; says where it was.

    python crash.py <root> <first record> <count> <n>

Run by test_partition.py. Operations are counted before and after: a kill may come just before the rename, and
just after it. It ends by SIGKILL, or with exit code 0 if there were fewer than n.
"""

import os
import signal
import sys
import time
from pathlib import Path

from efo.model import Record
from efo_service.relay.log.partition_writer import open_partition

WATCHED = {"open", "write", "flush", "fdatasync", "rename", "fsync", "close"}


def main(root: str, start: int, count: int, deadly: int) -> None:
    records = [
        Record(str(10**20 + number), 1_700_000_000.0, b"x" * 100, "key") for number in range(start, start + count)
    ]
    writer = open_partition(Path(root), "t", "s", "shard", time.time)
    seen = 0

    def profile(_frame, event, argument) -> None:
        nonlocal seen
        if event in {"c_call", "c_return"} and argument.__name__ in WATCHED:
            seen += 1
            if seen == deadly:
                sys.stdout.write(f"{event} {argument.__name__}\n")
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    writer.append(records)
    sys.setprofile(None)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
