"""Runs a record processor unchanged, and notes the records that it prints to stderr, with the time.

The process becomes the processor; a second one reads its stderr to the end, also if the processor is killed. Each line
of the file KCL_RECORDS/WORKER.PID is a record: microseconds since the epoch, and its sequence number.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

_RECORD = re.compile(rb"Sequence Number: (\d+), Subsequence Number: \d+, ")
_LAST = 4096  # a record is never longer


def main() -> None:
    """Start the processor that the arguments name."""
    path = Path(os.environ["KCL_RECORDS"], f"{os.environ['KCL_WORKER']}.{os.getpid()}")
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        for descriptor in (0, 1, 2, writing):
            os.close(descriptor)
        _note(reading, path)
        os._exit(0)
    os.close(reading)
    os.dup2(writing, 2)
    os.close(writing)
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - a known program


def _note(pipe: int, path: Path) -> None:
    rest = b""
    with path.open("wb", buffering=0) as file, path.with_suffix(".stderr").open("wb", buffering=0) as raw:
        while chunk := os.read(pipe, 65536):
            at = time.time_ns() // 1000
            rest += chunk
            end = 0
            lines = []
            for found in _RECORD.finditer(rest):
                lines.append(b"%d %s\n" % (at, found[1]))
                end = found.end()
            file.write(b"".join(lines))
            rest = rest[max(end, len(rest) - _LAST) :]
            if b"Error" in chunk or b"rror:" in chunk:
                raw.write(chunk)


if __name__ == "__main__":
    main()
