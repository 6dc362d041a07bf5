"""The clients: what each one needs on this machine, and how it is built and run."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proofs.paths import TOOLS

HERE: Final = Path(__file__).parent
WORK: Final = TOOLS / "witnesses"
"""The directory in which everything is built, so that the source tree stays clean."""
PYTHON: Final = WORK / "python-venv" / "bin" / "python"
"""A separate environment, so that efo's dependencies do not constrain those of the clients. The Makefile creates it."""


@dataclass(frozen=True, slots=True)
class Client:
    """A third-party client, and the program here that drives it.

    `name`: its name in the table. `source`: the directory of the program. `needs`: programs that must be on PATH.
    `build`: the commands that build it. `run`: the command that runs it. Both are run in a copy of `source`.
    `polls`: it reads by GetRecords instead of SubscribeToShard.
    """

    name: str
    source: str
    needs: tuple[str, ...]
    build: tuple[tuple[str, ...], ...]
    run: tuple[str, ...]
    polls: bool = False

    @property
    def directory(self) -> Path:
        """The copy of the source directory, in which the program is built and run."""
        return WORK / self.source

    def missing(self) -> str | None:
        """Return which of the needed programs are missing, as a message, or None if all are installed."""
        absent = [program for program in self.needs if shutil.which(program) is None]
        return f"not found: {', '.join(absent)}" if absent else None

    def copy_source(self) -> None:
        """Copy the sources again. Downloaded and built files in the copy stay."""
        shutil.copytree(HERE / self.source, self.directory, dirs_exist_ok=True)


def _python(name: str, *arguments: str, polls: bool = False) -> Client:
    return Client(name, "python", (str(PYTHON),), (), (str(PYTHON), "-u", *arguments), polls)


CLIENTS: Final = (
    _python("boto3", "boto3_client.py"),
    _python("aiobotocore-aiohttp", "aiobotocore_client.py", "aiohttp"),
    _python("aiobotocore-httpx2", "aiobotocore_client.py", "httpx2", polls=True),
    Client(
        name="kcl-java",
        source="java",
        needs=("java", "mvn"),
        build=(("mvn", "--quiet", "--batch-mode", "--no-transfer-progress", "package"),),
        run=(
            "java",
            "-Xmx512m",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dsqlite4java.library.path=target/dependency",
            "-cp",
            "target/classes:target/dependency/*",
            "interop.KclClient",
        ),
    ),
    Client(
        name="aws-sdk-go-v2",
        source="go",
        needs=("go",),
        build=(("go", "build", "-o", "client", "."),),
        run=("./client",),
    ),
    Client(
        name="aws-sdk-js-v3",
        source="javascript",
        needs=("node", "npm"),
        build=(("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),),
        run=("node", "client.mjs"),
    ),
)
