"""The plugin that notes which functions each test calls: what a run then leaves out could not notice the mutant."""

from __future__ import annotations

import pytest

from proofs.mutants.operators import Mutant, mutants_of
from proofs.mutants.targets import Target
from proofs.mutants.trial import SURVIVED, Copy

MODULE = """
import contextlib

LIMIT = 3

class Room:
    size = 2

    @property
    def is_full(self):
        return self.size > 1

async def waits():
    return 1 + 1

def outer():
    def inner():
        return 2 + 2
    return inner

def imported_early():
    return 5 + 5

VALUE = imported_early()

def never():
    return 9 + 9
"""
NEAR = "def test_nothing():\n    pass\n"
OTHERS = """
import subprocess, sys, threading
from house.room import Room, outer, waits

def test_full():
    assert Room().is_full

def test_in_a_thread():
    thread = threading.Thread(target=outer())
    thread.start()
    thread.join()

def test_waits():
    try:
        waits().send(None)
    except StopIteration as end:
        assert end.value == 2

def test_process():
    subprocess.run([sys.executable, "-c", ""], check=True)
"""


@pytest.fixture
def copy(tmp_path, monkeypatch) -> Copy:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    files = {
        "house/__init__.py": "",
        "house/room.py": MODULE,
        "tests/house/test_room.py": NEAR,
        "tests/house/test_z.py": OTHERS,
    }
    for path, text in files.items():
        (tmp_path / "checkout" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / path).write_text(text)
    return Copy(tmp_path / "checkout", tmp_path / "copy", ())


def test_a_mutant_is_judged_by_the_tests_that_call_its_function(copy) -> None:
    near, others = Target("house", "tests/house").judges(copy.root, "house/room.py")
    baseline = copy.baseline([*near, *others])

    def callers(function: str, operator: str = "arithmetic") -> set[str]:
        mutant = next(one for one in mutants() if one.function == function and one.operator == operator)
        tests = baseline.callers(mutant, others).get("tests/house/test_z.py", [])
        return {test.partition("::test_")[2] for test in tests}

    def mutants() -> list[Mutant]:
        return mutants_of("house/room.py", MODULE.encode())

    assert callers("Room.is_full", "boundary") == {"full", "process"}
    assert callers("waits") == {"waits", "process"}
    assert callers("outer.inner") == {"in_a_thread", "process"}
    assert callers("never") == {"process"}
    everyone = {"full", "in_a_thread", "waits", "process"}
    assert callers("imported_early") == everyone  # the result may be in a variable
    assert callers("", "constant") == everyone
    assert callers("Room", "constant") == everyone
    unnoticed = next(one for one in mutants() if one.function == "never")
    assert copy.try_out(unnoticed, near, others, baseline).outcome == SURVIVED
    noticed = next(one for one in mutants() if one.function == "waits")
    assert copy.try_out(noticed, near, others, baseline).by == "tests/house/test_z.py::test_waits"
