"""The command line of another efo process: which code it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from efo_service.exit_codes import Exit
from efo_service.workers.process import efo_command

TRAP = 'raise SystemExit("imported from the current directory")'


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A directory with modules that must not be imported, and `lib` in it, which may be on the path."""
    (tmp_path / "efo_service.py").write_text(TRAP)
    (tmp_path / "mine.py").write_text(TRAP)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/mine.py").write_text("found = True")
    return tmp_path


def run(command: list[str], directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("EFO_")}
    return subprocess.run(
        command, cwd=directory, env=own | environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_command_runs_efos_own_code_in_any_directory(elsewhere):
    done = run(efo_command("version"), elsewhere)
    assert done.returncode == Exit.OK, done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("path", "message"), [("", "cannot be imported"), ("lib", "is not a function")])
def test_an_extractor_is_imported_from_the_same_path_with_and_without_workers(elsewhere, workers, path, message):
    script = str(Path(sys.executable).with_name("efo"))
    done = run(
        [script, "run", "--workers", workers],
        elsewhere,
        PYTHONPATH=str(elsewhere / path) if path else "",
        EFO_KINESIS__STREAM="orders",
        EFO_RELAY__TRACE_EXTRACTOR="mine:found",
        EFO_SERVICE__PORT="0",
    )
    assert done.returncode == Exit.CONFIGURATION, done.stdout + done.stderr
    assert message in done.stdout
    assert "current directory" not in done.stdout + done.stderr
