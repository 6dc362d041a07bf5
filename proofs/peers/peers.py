"""The peers: their versions, how their programs are built and run, and what they cannot do."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from proofs.paths import ROOT, TOOLS

PROGRAMS: Final = Path(__file__).parent / "programs"
WORK: Final = TOOLS / "peers"
"""The directory in which everything is built, so that the source tree stays clean."""
PYTHON: Final = WORK / "python-venv" / "bin" / "python"
"""A separate environment, so that efo's dependencies do not constrain those of the peers. The Makefile creates it."""
KCL_RS: Final = TOOLS / "multilang" / "python"
"""The unpacked package. The Makefile creates it."""
KCLPY: Final = WORK / "kclpy"
"""The unpacked package, and its jars. The Makefile creates it."""

MANY_SHARDS: Final = 1000
"""From so many on, a JVM has its large heap: with 1 GB, netty runs out of it and never reads all of 1,000 shards."""

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """A consumer, and the program here that drives it.

    `name`, `version`: as in the table. `source`: the directory of the program below `programs`. `run`: the command
    that runs it in the copy of `source`; the configuration's file follows, then `arguments`. `build`: the commands that
    build it there. `needs`: programs on PATH, or files that `make peers-install` creates.
    `warm`: seconds from the first record to the measurement. A JVM needs more, until its code is compiled.
    `leases`: whether it has leases or checkpoints, so that it continues after a crash.
    `polls`: it reads by GetRecords.
    `cannot`: why a figure, or a part of it (such as "idle/1000"), is not measured.
    `heap`: an option of `run`, the size of its JVM's heap. `large_heap`: the same from MANY_SHARDS shards on.
    """

    name: str
    version: str
    source: str
    run: Command
    arguments: Command = ()
    build: tuple[Command, ...] = ()
    needs: tuple[str, ...] = ()
    warm: float = 3.0
    leases: bool = False
    polls: bool = False
    cannot: Mapping[str, str] = field(default_factory=dict)
    heap: str = ""
    large_heap: str = ""

    @property
    def directory(self) -> Path:
        """The copy of the source directory, in which the program is built and run."""
        return WORK / self.source

    def missing(self) -> str | None:
        """Return what is missing on this machine, as a message, or None."""
        absent = [what for what in self.needs if shutil.which(what) is None and not Path(what).exists()]
        return f"not found: {', '.join(absent)}" if absent else None

    def reason(self, figure: str) -> str | None:
        """Return why a figure or a part of it cannot be measured, or None."""
        return next((why for part, why in self.cannot.items() if f"{figure}/".startswith(f"{part}/")), None)

    def command(self, file: Path, expected: int) -> Command:
        """Return the command that runs it in `directory`. `file`, `expected`: see Configuration."""
        first, *others = self.run
        path = str(self.directory / first) if "/" in first and not first.startswith("/") else first
        heap = (self.large_heap if expected >= MANY_SHARDS else "") or self.heap
        return (path, *([heap] if heap else ()), *others, str(file), *self.arguments)

    def copy_source(self) -> None:
        """Copy the sources again. Downloaded and built files in the copy stay."""
        shutil.copytree(PROGRAMS / self.source, self.directory, dirs_exist_ok=True)


_LEASE_TABLE: Final = str(TOOLS / "dynamodb-local" / ".ready")
_MVN: Final = ("mvn", "--quiet", "--batch-mode", "--no-transfer-progress", "--strict-checksums", "package", "-P")
_RAW: Final = "has no checkpoints: after a kill the application must know by itself where to continue"


_COMPILE: Final = """
import compileall, sys, sysconfig
compileall.compile_dir(*(sys.argv[1:] or [sysconfig.get_path("purelib")]), quiet=2, workers=0)
"""


def _compiled(python: str, *directory: str) -> Command:
    """Return the command that compiles a directory to bytecode, as an installation does: by default its packages.

    Files for other versions of Python are among them, so errors do not count.
    """
    return (python, "-c", _COMPILE, *directory)


def _python(name: str, version: str, program: str, **others: str) -> Peer:
    cannot = {"correctness/kill": f"{version} {_RAW}"} | others
    build = (_compiled(str(PYTHON)),)
    return Peer(name, version, "python", (str(PYTHON), program), build=build, needs=(str(PYTHON),), cannot=cannot)


def _efo(name: str, variant: str, *, leases: bool, variables: Command = ()) -> Peer:
    cannot = {} if leases else {"correctness/kill": "its leases are in memory: see efo"}
    run = (*(("env", *variables) if variables else ()), sys.executable, "efo_program.py", variant)
    build = (_compiled(sys.executable), _compiled(sys.executable, str(ROOT / "efo")))
    return Peer(name, "this checkout", "python", run, build=build, leases=leases, cannot=cannot)


def _java(http: str) -> Peer:
    return Peer(
        name=f"sdk-java-{http}",
        version="AWS SDK for Java 2.52.0",
        source="java",
        run=("java", "-cp", "target/sdk/classes:target/sdk/dependency/*", "peers.SdkProgram"),
        arguments=(http,),
        build=((*_MVN, "sdk"),),
        needs=("java", "mvn"),
        warm=30.0,
        heap="-Xmx1g",
        large_heap="-Xmx4g",
        cannot={"correctness/kill": f"AWS SDK for Java 2.52.0 {_RAW}"},
    )


def _go(name: str, version: str, program: str, **others: str | bool) -> Peer:
    build = (("go", "build", "-o", f"bin/{program}", f"./{program}"),)
    leases, polls = bool(others.pop("leases", False)), bool(others.pop("polls", False))
    cannot = {part: str(why) for part, why in others.items()}
    if not leases:
        cannot["correctness/kill"] = f"{version} {_RAW}"
    needs = ("go", "java", _LEASE_TABLE) if leases else ("go",)
    return Peer(name, version, "go", (f"bin/{program}",), (), build, needs, 3.0, leases, polls, cannot)


PEERS: Final = (
    _efo("efo", "full", leases=True),
    _efo("efo-python", "full", leases=True, variables=("EFO_NATIVE=0",)),
    _efo("efo-bare", "bare", leases=False),
    _python("boto3", "boto3 1.43.117", "boto3_program.py"),
    _java("crt"),
    _java("netty"),
    _go("sdk-go", "AWS SDK for Go v2, kinesis 1.56.10", "raw"),
    Peer(
        name="kcl",
        version="KCL 3.5.1",
        source="java",
        run=("java", "-cp", "target/kcl/classes:target/kcl/dependency/*", "peers.KclProgram"),
        build=((*_MVN, "kcl"),),
        needs=("java", "mvn", _LEASE_TABLE),
        warm=30.0,
        leases=True,
        heap="-Xmx2g",
        large_heap="-Xmx6g",
    ),
    _go("vmware-kcl-go", "vmware-go-kcl-v2 v1.0.0", "vmware", leases=True),
    _go(
        "harlow",
        "harlow/kinesis-consumer v0.3.6-0.20211204214318-c2b9f79d7ab6",
        "harlow",
        leases=True,
        polls=True,
        **{"throughput/kpl": "its deaggregation returns the last record instead of each: see docs/peers.md"},
    ),
    _python("aiobotocore", "aiobotocore 3.10.0, aiohttp 3.14.5", "aiobotocore_program.py"),
    Peer(
        name="kclpy",
        version="amazon_kclpy 3.1.3",
        source="python",
        run=(str(PYTHON), "kclpy_program.py", str(KCLPY)),
        build=(_compiled(str(PYTHON)), _compiled(str(PYTHON), str(KCLPY))),
        needs=("java", str(PYTHON), str(KCLPY / ".ready"), _LEASE_TABLE),
        warm=30.0,
        leases=True,
        cannot={"idle/1000": "amazon_kclpy 3.1.3 runs one Python process for each shard"},
    ),
    Peer(
        name="kcl-rs",
        version="kcl-rs 0.1.4",
        source="python",
        run=(str(PYTHON), "kcl_rs_program.py", str(KCL_RS)),
        build=(_compiled(str(PYTHON)),),
        needs=("java", str(PYTHON), str(KCL_RS / ".ready"), _LEASE_TABLE),
        leases=True,
    ),
)
BASE: Final = "efo"
"""The peer that all others are compared with."""
