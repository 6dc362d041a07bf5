"""The clients of the protocol: packages of others, unchanged, and what runs them."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proofs.paths import TOOLS

HERE: Final = Path(__file__).parent
KCLPY: Final = TOOLS / "peers" / "kclpy"
"""amazon_kclpy, unpacked, and the jars of the Java daemon: `make peers-install`."""
NODE: Final = TOOLS / "multilang" / "node"
KCL_RS: Final = TOOLS / "multilang" / "python"
"""kcl-rs, whose workers are not clients of the protocol, but of the same lease table."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client. `command`: its record processor. `protocol`: of the messages. `path`: PYTHONPATH of the processor.

    `needs`: files that must be there, and `program`: one that must be on PATH.
    """

    name: str
    command: tuple[str, ...]
    needs: Path
    program: str = "java"
    protocol: int = 2
    path: str = ""

    def executable(self, *, is_tapped: bool) -> str:
        """Return the value of executableName: the processor, behind a tap."""
        tap = (sys.executable, str(HERE / "tap.py")) if is_tapped else ()
        return " ".join((*tap, *self.command))

    def missing(self) -> str | None:
        """Return what is missing; None if nothing is."""
        if shutil.which(self.program) is None:
            return f"{self.name}: {self.program} is not on PATH"
        return None if self.needs.exists() else f"{self.name}: {self.needs} is not installed"


def clients() -> tuple[Client, ...]:
    """Return all clients."""
    package = next(iter(sorted(KCLPY.glob("amazon_kclpy-*/"))), KCLPY / "amazon_kclpy")
    sample = package / "samples" / "sample_kclpy_app.py"
    processor = str(NODE / "processor.js")
    return (
        Client("amazon_kclpy", (sys.executable, str(sample)), sample, path=str(package)),
        Client("aws-kcl", ("node", processor, "aws-kcl"), NODE / "node_modules", "node"),
        Client("aws-kcl-1", ("node", processor, "aws-kcl-1"), NODE / "node_modules", "node", protocol=1),
    )
