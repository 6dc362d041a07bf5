"""The README's example, run exactly as printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio

from efo.testing import FakeKinesis
from tests.paths import ROOT

pytestmark = pytest.mark.e2e

README = ROOT / "README.md"
MAX_LINES = 15
TIMEOUT = 180.0
"""Seconds after which the example counts as hanging. It takes about three."""


def example() -> str:
    """Return the code block after the comment that says how it is run."""
    match = re.search(r"<!-- example: until.*?-->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert match is not None
    return match[1]


def test_the_example_is_short() -> None:
    assert len([line for line in example().splitlines() if line]) <= MAX_LINES


async def test_the_example_prints_every_record(tmp_path: Path) -> None:
    async with FakeKinesis(clock=time.time) as fake:
        fake.create_stream("orders", shards=2)
        fake.put_many("orders", [(f"customer-{n}", b"order %d" % n) for n in range(20)])
        async with fake.serve() as address:
            environment = {
                "PATH": os.environ["PATH"],
                "AWS_ENDPOINT_URL_KINESIS": address.url,
                "AWS_CA_BUNDLE": str(address.ca_file),
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "example",
                "AWS_SECRET_ACCESS_KEY": "example",
                "PYTHONUNBUFFERED": "1",
            }
            process = await trio.lowlevel.open_process(
                [sys.executable, "-X", "faulthandler", "-c", example()],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
            )
            output = b""
            with trio.move_on_after(TIMEOUT) as scope:
                async with process.stdout:
                    while output.count(b"\n") < 20 and (chunk := await process.stdout.receive_some()):
                        output += chunk
                    process.send_signal(signal.SIGINT)
                await process.wait()
            if process.returncode is None:
                process.send_signal(signal.SIGABRT)  # faulthandler prints its traceback
                await process.wait()
    assert not scope.cancelled_caught, f"the example hangs after printing {output!r}"
    assert sorted(output.decode().splitlines()) == sorted(f"customer-{n} b'order {n}'" for n in range(20))
