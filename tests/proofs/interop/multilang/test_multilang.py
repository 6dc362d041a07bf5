"""What the proof of `efo kcl` notes of unchanged processors, and what it makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from efo.model import Record
from proofs.interop.multilang.clients import HERE, Client
from proofs.interop.multilang.daemons import reported

PRINTS = """
import sys
for number in range(3):
    sys.stderr.write(f"Record (Partition Key: k, Sequence Number: {number}, Subsequence Number: 0, Data Size: 2")
    sys.stderr.flush()
print(sys.stdin.read())
"""


def test_the_tap_notes_what_a_processor_prints_and_leaves_its_pipes_alone(tmp_path):
    environment = {**os.environ, "KCL_RECORDS": str(tmp_path), "KCL_WORKER": "efo-1"}
    command = [sys.executable, str(HERE / "tap.py"), sys.executable, "-c", PRINTS]
    done = subprocess.run(command, input="hello", capture_output=True, text=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("hello\n", "")
    expected = {"shard-1": [Record(str(number), 0.0, b"%d" % number, "k") for number in range(3)]}
    deadline = time.monotonic() + 10
    found = {}
    while time.monotonic() < deadline and len(found.get("efo-1", ())) < 3:  # the tap outlives the processor
        found = reported(tmp_path, expected)
    assert [(one.shard, one.sequence, one.key, one.data) for one in found["efo-1"]] == [
        ("shard-1", str(number), "k", b"%d" % number) for number in range(3)
    ]


def test_a_client_runs_behind_the_tap_or_alone(tmp_path):
    client = Client("x", ("node", "processor.js"), tmp_path)
    assert client.executable(is_tapped=False) == "node processor.js"
    assert client.executable(is_tapped=True).split()[1:] == [str(HERE / "tap.py"), "node", "processor.js"]
    assert Client("x", (), tmp_path / "missing", program="sh").missing().endswith("is not installed")
    assert Client("x", (), tmp_path, program="no-such-program").missing() == "x: no-such-program is not on PATH"
