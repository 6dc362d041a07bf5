"""The files of a release: sdist, wheel, and that of efo-native. Each is installed where nothing else is, and tried."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from efo.testing import FakeKinesisThread
from proofs.paths import ROOT
from proofs.release.commands import CheckError, empty_environment, install, run

IN_WHEEL: Final = ("efo/", "efo_service/", "pyspark_efo.py", "pyspark_kinesis.py")
"""What a wheel may have, beside its metadata."""
_RELATIVE: Final = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s]+)\)")
_IMPORTS: Final = """
import efo, importlib
found = [getattr(efo, name) for name in efo.__all__]
for package in ("efo.deserializers", "efo.kinesis", "efo.leases", "efo.telemetry"):
    found += [getattr(importlib.import_module(package), name) for name in importlib.import_module(package).__all__]
print(len(found), efo.__version__)
"""
_PROGRAM: Final = re.compile(r"## Read a stream\n.*?```python\n(.*?)```", re.DOTALL)
_LINES: Final = 20
_STREAM: Final = "orders"
_TIMEOUT: Final = 120.0


class Artifacts:
    """The files, which later checks need. `directory`: where they and the environments are made."""

    def __init__(self, directory: Path) -> None:
        self.dist = directory / "dist"
        self._directory = directory
        self.files: list[Path] = []

    def sdist(self) -> str:
        """Build the sdist."""
        return self._build("sdist", ROOT, self.dist)

    def wheel(self) -> str:
        """Build the wheel, and another one from the unpacked sdist: they have the same files."""
        detail = self._build("wheel", ROOT, self.dist)
        unpacked = self._directory / "unpacked"
        with tarfile.open(self._one("*.tar.gz")) as archive:
            archive.extractall(unpacked, filter="data")
        (source,) = unpacked.iterdir()
        other = self._directory / "from-sdist"
        self._build("wheel", source, other)
        direct, indirect = names_of(self._one("*.whl")), names_of(next(other.glob("*.whl")))
        if direct != indirect:
            raise CheckError(f"the wheels of the checkout and of the sdist differ: {sorted(direct ^ indirect)[:5]}")
        return f"{detail}, the same from the sdist"

    def contents(self) -> str:
        """Check what the wheel has: the library, the service, types; nothing of tests and proofs."""
        return check_contents(names_of(self._one("*.whl")))

    def description(self, tag: str) -> str:
        """Check the long description: its links lead somewhere from a page of a package index."""
        with zipfile.ZipFile(self._one("*.whl")) as archive:
            (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            metadata = message_from_bytes(archive.read(name))
        links = check_description(metadata["Description-Content-Type"] or "", str(metadata.get_payload()))
        return f"{links}; {check_repository(metadata.get_all('Project-URL', []), tag)}"

    def installed(self) -> str:
        """Install the wheel by the locked dependencies into an empty environment, and import every public name."""
        python = empty_environment(self._directory / "base", Path(sys.executable))
        install(python, "--require-hashes", "-r", ROOT / "requirements/base.txt")
        install(python, "--no-deps", self._one("*.whl"))
        run([ROOT / ".tools/uv/bin/uv", "pip", "check", "--quiet", "--python", python])
        names, version = run([python, "-I", "-c", _IMPORTS], cwd=self._directory).split()
        return f"{version}, {names} names, without extras"

    def first_program(self) -> str:
        """Run the first program of the README in that environment, against the fake."""
        program = first_program((ROOT / "README.md").read_text())
        home = self._directory / "home"
        home.mkdir(exist_ok=True)
        (home / "program.py").write_text(program)
        with FakeKinesisThread() as fake:
            fake.create_stream(_STREAM, 2)
            fake.put_many(_STREAM, [(f"key-{n}", b"value") for n in range(_LINES)])
            environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), **fake.environment}
            return f"{read_lines([self._directory / 'base/bin/python', 'program.py'], home, environment)} records"

    def command_line(self) -> str:
        """Install the wheel with the service's dependencies, and start the command."""
        python = empty_environment(self._directory / "service", Path(sys.executable))
        install(
            python, "--require-hashes", "--no-build-isolation-package", "none", "-r", ROOT / "requirements/service.txt"
        )
        install(python, "--no-deps", self._one("*.whl"))
        run([ROOT / ".tools/uv/bin/uv", "pip", "check", "--quiet", "--python", python])
        run([python.with_name("efo"), "check-config", "--defaults"], cwd=self._directory)
        return run([python.with_name("efo"), "--version"], cwd=self._directory).strip()

    def native(self) -> str:
        """Build the wheel of efo-native, and read records by it in the environment of the wheel."""
        if shutil.which("cargo") is None:
            return "skipped: there is no cargo"
        run(["make", "native"])
        (wheel,) = (ROOT / "build/native").glob("*.whl")
        self.files.append(Path(shutil.copy(wheel, self.dist)))
        python = self._directory / "base/bin/python"
        install(python, "--no-deps", wheel)
        code = "from efo.protocol.native import DECODER; print(DECODER.detail); raise SystemExit(DECODER.step is None)"
        return f"{wheel.name}: {run([python, '-I', '-c', code], cwd=self._directory).strip()}"

    def _build(self, kind: str, source: Path, into: Path) -> str:
        before = set(into.glob("*"))
        run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", into], cwd=source)
        (file,) = set(into.glob("*")) - before
        if into == self.dist:
            self.files.append(file)
        return f"{file.name}, {file.stat().st_size / 1e6:.1f} MB"

    def _one(self, pattern: str) -> Path:
        found = [file for file in self.dist.glob(pattern) if "native" not in file.name]
        if len(found) != 1:
            raise CheckError(f"{pattern} was not built")
        return found[0]


def names_of(wheel: Path) -> set[str]:
    """Return the names of a wheel's files."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def check_contents(names: set[str]) -> str:
    """Return a sentence about the files of a wheel. Raises CheckError."""
    modules = {name for name in names if ".dist-info/" not in name}
    if others := sorted(name for name in modules if not name.startswith(IN_WHEEL)):
        raise CheckError(f"the wheel has what is not efo: {others[:5]}")
    if tests := sorted(name for name in modules if re.search(r"(^|/)(tests|proofs|tools)/|/test_|conftest", name)):
        raise CheckError(f"the wheel has tests or proofs: {tests[:5]}")
    for needed in ("efo/py.typed", "efo/__init__.pyi", "efo_service/py.typed"):
        if needed not in names:
            raise CheckError(f"the wheel lacks {needed}")
    return f"{len(modules)} files"


def check_description(content_type: str, text: str) -> str:
    """Return a sentence about the long description. Raises CheckError."""
    if not content_type.startswith("text/markdown"):
        raise CheckError(f"the long description is {content_type or 'without a type'}, not Markdown")
    if relative := sorted(set(_RELATIVE.findall(text))):
        raise CheckError(
            f"the long description has {len(relative)} relative links, dead on a package index: {relative[:5]}"
        )
    return f"{text.count('](')} links, none of them relative"


def check_repository(urls: Sequence[str], tag: str) -> str:
    """Return a sentence about the repository's address. `tag`: of a release, which needs one. Raises CheckError."""
    address = dict(url.split(", ", 1) for url in urls).get("Repository", "")
    place = "Repository of [project.urls] in pyproject.toml"
    if not address.startswith("https://"):
        raise CheckError(f"{place} is {address!r}, not an address that begins with https://")
    if not (urlsplit(address).hostname or "").endswith(".invalid"):
        return f"they lead to {address}"
    if tag:
        raise CheckError(f"the links lead to {address}, which cannot exist: write the repository's address to {place}")
    return f"they lead to {address}, which stands for the address that is not known yet: to be confirmed in {place}"


def first_program(readme: str) -> str:
    """Return the first program of the README. Raises CheckError."""
    found = _PROGRAM.search(readme)
    if found is None:
        raise CheckError("the README has no program under 'Read a stream'")
    return found[1].replace('application="billing"', 'application="billing", initial_position=efo.TRIM_HORIZON')


def read_lines(command: list[str | Path], cwd: Path, environment: dict[str, str]) -> int:
    """Start a program that prints a line for each record, and stop it when all are there. Raises CheckError."""
    words = [*map(str, command[:1]), "-u", *map(str, command[1:])]
    with subprocess.Popen(  # noqa: S603 - a program of this proof
        ["/usr/bin/env", "timeout", f"{_TIMEOUT:.0f}", *words],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        assert process.stderr is not None  # noqa: S101 - it is a pipe
        lines = list(itertools.islice(process.stdout, _LINES))
        process.terminate()
        errors = process.stderr.read().decode(errors="replace")
    if len(lines) < _LINES:
        raise CheckError(f"the first program printed {len(lines)} of {_LINES} records:\n{errors[-1000:]}")
    return len(lines)
