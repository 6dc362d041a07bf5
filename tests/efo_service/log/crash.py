"""Appends records once, and kills this process at the n-th file event; prints that event.

    python crash.py <root> <first record> <count> <n>

test_partition_writer.py runs it. The call and the return of an operation are two events. So a kill can happen just
before the rename and just after it. The process ends by SIGKILL, or with exit code 0 if there are fewer than n events.
"""

import os
import signal
import sys
from pathlib import Path

from efo.model import Record
from efo_service.log.disk import DiskFiles
from efo_service.log.partition_writer import open_partition

WATCHED = {"open", "write", "flush", "fdatasync", "rename", "fsync", "close"}


def main(root: str, start: int, count: int, kill_at: int) -> None:
    records = [
        Record(str(10**20 + number), 1_700_000_000.0, b"x" * 100, "key") for number in range(start, start + count)
    ]
    writer = open_partition(
        DiskFiles(Path(root)), "t", "s", "shard", lambda: 1_700_000_000.0
    )  # the events do not depend on it
    events = 0

    def profile(_frame, event, argument) -> None:
        nonlocal events
        if event in {"c_call", "c_return"} and argument.__name__ in WATCHED:
            events += 1
            if events == kill_at:
                sys.stdout.write(f"{event} {argument.__name__}\n")
                sys.stdout.flush()
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(profile)
    writer.append(records)
    sys.setprofile(None)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
