"""The clients: what each one needs on this machine, and how it is built and run."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proofs.paths import TOOLS

HERE: Final = Path(__file__).parent
WORK: Final = TOOLS / "witnesses"
"""Where everything is built: nothing is written beside the sources."""
PYTHON: Final = WORK / "python-venv" / "bin" / "python"
"""An environment of its own, so that the witnesses' packages are not chosen by ours. The Makefile makes it."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client that is not ours.

    `name`: what the table calls it. `source`: the directory of its witness. `needs`: programs to be found on PATH.
    `build`: commands that make it, and `run`: the command that runs it, all in a copy of `source`.
    `polls`: it reads by GetRecords.
    """

    name: str
    source: str
    needs: tuple[str, ...]
    build: tuple[tuple[str, ...], ...]
    run: tuple[str, ...]
    polls: bool = False

    @property
    def directory(self) -> Path:
        """The copy of the source that it is built and run in."""
        return WORK / self.source

    def missing(self) -> str | None:
        """Say what of its toolchain this machine lacks; None: nothing."""
        absent = [program for program in self.needs if shutil.which(program) is None]
        return f"not found: {', '.join(absent)}" if absent else None

    def copy_source(self) -> None:
        """Renew the copy; what was fetched and built in it stays."""
        shutil.copytree(HERE / self.source, self.directory, dirs_exist_ok=True)


def _python(name: str, *arguments: str, polls: bool = False) -> Client:
    return Client(name, "python", (str(PYTHON),), (), (str(PYTHON), "-u", *arguments), polls)


CLIENTS: Final = (
    _python("boto3", "boto3_witness.py"),
    _python("aiobotocore-aiohttp", "aiobotocore_witness.py", "aiohttp"),
    _python("aiobotocore-httpx2", "aiobotocore_witness.py", "httpx2", polls=True),
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
            "witness.Main",
        ),
    ),
    Client(
        name="aws-sdk-go-v2",
        source="go",
        needs=("go",),
        build=(("go", "build", "-o", "witness", "."),),
        run=("./witness",),
    ),
    Client(
        name="aws-sdk-js-v3",
        source="javascript",
        needs=("node", "npm"),
        build=(("npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"),),
        run=("node", "witness.mjs"),
    ),
)
