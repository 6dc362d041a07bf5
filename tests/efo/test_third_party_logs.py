"""What libraries log of efo's calls."""

import logging
import subprocess
import sys

import pytest


@pytest.mark.parametrize("root", ["DEBUG", "INFO"])
def test_no_library_logs_each_call_or_its_headers(root):
    program = (
        f"import logging; logging.basicConfig(level=logging.{root}); import efo.aws.session, efo.kinesis.connection\n"
        "for name in ('botocore.auth', 'aiobotocore', 'h2', 'hpack', 'httpx2', 'httpcore2.http11'):\n"
        "    print(name, logging.getLogger(name).getEffectiveLevel())"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    levels = dict(line.rsplit(" ", 1) for line in out.splitlines())
    assert int(levels.pop("httpx2")) == logging.WARNING  # at INFO it has a line for each call
    assert set(levels.values()) == {str(logging.INFO)}
