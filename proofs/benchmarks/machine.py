"""What is known of this machine and this checkout, to be kept beside figures."""

from __future__ import annotations

import os
import platform
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

from efo.consumer.processes import usable_cores
from efo.protocol.native import DECODER
from proofs.paths import ROOT


def machine(**more: Any) -> dict[str, Any]:
    """Return cores, processor, the interpreter, efo's step, date, commit and load; `more` is added."""
    return {
        "cores": usable_cores(),
        "processor": _processor(),
        **interpreter(),
        "step": DECODER.name,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "load_average": round(os.getloadavg()[0], 1),
        **more,
    }


def interpreter() -> dict[str, str]:
    """Return the Python that runs this: its version, its compiler, and its OpenSSL, which decrypts what is read.

    Of two builds of one version, one may be a tenth faster.
    """
    return {
        "python": platform.python_version(),
        "compiler": platform.python_compiler(),
        "openssl": ssl.OPENSSL_VERSION.split()[1],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def commit() -> str:
    """Return the commit of this checkout, and whether something in it has changed; "unknown" outside of one."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
