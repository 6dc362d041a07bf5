"""Downloads the servers that a proof needs: a proof that skips is no proof.

PostgreSQL and Redis are packages of the system, which a proof does not install: `.ci/servers` does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Final

from proofs.paths import ROOT

TARGETS: Final = {
    "dynamodb-local": "dynamodb-local",
    "ministack": "ministack",
    "versitygw": "object-stores",
    "azurite": "object-stores",
}
"""The target of make that downloads the server of a lease store. Stores that are not in it need no download."""


def run_make(target: str) -> bool:
    """Run a target of make, with its output on stderr; return whether it succeeded."""
    command = ["make", "--silent", target]
    return subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False).returncode == 0


def download(stores: Iterable[str], make: Callable[[str], bool] = run_make) -> None:
    """Download the servers of these lease stores, unless they are installed.

    What cannot be downloaded is reported on stderr; it is then missing by name where it is needed.
    """
    for target in dict.fromkeys(TARGETS[store] for store in stores if store in TARGETS):
        if not make(target):
            sys.stderr.write(f"make {target} has failed: the lines above say why\n")
