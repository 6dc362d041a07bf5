"""docs/fake.md: its examples run, and its table of faults is complete."""

from __future__ import annotations

import re
import subprocess
import sys
import typing

import pytest

from efo.testing.faults.file import load_faults
from efo.testing.faults.kinds import Fault
from tests.paths import ROOT

pytest_plugins = ["pytester"]

PAGE = (ROOT / "docs/fake.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


PROGRAMS = [block for block in blocks("python") if "def test_" not in block]
TEST_FILES = [block for block in blocks("python") if "def test_" in block]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda text: text.splitlines()[0])
def test_the_example_programs_run(program, tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr


def test_the_example_tests_pass(pytester):
    (text,) = TEST_FILES
    pytester.makepyfile(text)
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_the_example_fault_script_is_valid(tmp_path):
    (text,) = blocks("toml")
    path = tmp_path / "faults.toml"
    path.write_text(text)
    assert load_faults(path)


def test_the_table_contains_every_fault():
    table = dict(re.findall(r"^\| `(\w+)\([^`]*\)` \| `([a-z-]+)` \|", PAGE, re.MULTILINE))
    kinds = {kind.__name__: kind.__struct_config__.tag for kind in typing.get_args(Fault)}
    assert table == kinds
