"""The command: on a small project of its own, and what it keeps about this one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proofs.mutants.__main__ import EFO, main
from proofs.mutants.named import StaleEntryError
from proofs.mutants.run import Project, make_plan
from proofs.mutants.targets import LEFT_OUT, TARGETS, Target
from tests.paths import ROOT

MODULE = """
def limited(count):
    if count > 9:
        count = 9
    return count
"""
TESTS = """
from house.room import limited

def test_a_small_count_stays():
    assert limited(3) == 3

def test_a_large_count_is_limited():
    assert limited(10) == 9
"""
BOUNDARY = """
[[equivalent]]
path = "house/room.py"
function = "limited"
before = "if count > 9:"
after = "if (count >= 9):"
reason = "9 becomes 9."
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Return a project of one module, whose tests notice all mutants but the one of its boundary."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # its tests need no plugins: a quick start
    root = tmp_path / "checkout"
    for path, text in {"house/__init__.py": "", "house/room.py": MODULE, "tests/house/test_room.py": TESTS}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Project(root, (Target("house", "tests/house"),), (), tmp_path / "named.toml")


def command(project, capsys, *arguments: str) -> tuple[int, dict, str]:
    """Run the command on all mutants; return its status, its line of JSON and what it printed before."""
    status = main(["--jobs", "1", *arguments], project)
    *table, last = capsys.readouterr().out.splitlines()
    return status, json.loads(last), "\n".join(table)


def test_mutants_are_killed_survivors_are_listed_and_the_code_stays(project, capsys) -> None:
    status, summary, table = command(project, capsys, "--seed", "7")
    assert status == 1  # 9 becomes 9, and no test has exactly 10: `> 10` is noticed, `>= 9` is not
    assert summary == {
        "mutants": 5,
        "sampled": 5,
        "killed": 4,
        "killed_by_simulation": 0,
        "survived": 1,
        "timeouts": 0,
        "equivalent": 0,
        "ratio": 0.8,
        "seed": 7,
    }
    assert "survived: house/room.py:3 limited (boundary)" in table
    assert "    - if count > 9:\n    + if (count >= 9):" in table
    assert (project.root / "house/room.py").read_text() == MODULE


@pytest.mark.runner
def test_a_mutant_named_equivalent_is_not_tried(project, capsys) -> None:
    project.named.write_text(BOUNDARY)
    status, summary, _ = command(project, capsys)
    assert status == 0
    assert (summary["sampled"], summary["killed"], summary["equivalent"], summary["ratio"]) == (5, 4, 1, 1.0)


@pytest.mark.runner
def test_the_mutants_named_equivalent_are_tried_on_demand(project, capsys) -> None:
    project.named.write_text(BOUNDARY)
    assert command(project, capsys, "--equivalents")[0] == 0
    project.named.write_text(BOUNDARY.replace("(count >= 9)", "(count <= 9)"))
    assert command(project, capsys, "--equivalents")[0] == 1


@pytest.mark.runner
def test_what_no_test_notices_is_tried_by_the_proof(project, capsys) -> None:
    status, summary, _ = command(replace(project, proof=("-c", "import house.room")), capsys)
    assert (status, summary["survived"], summary["killed_by_simulation"]) == (1, 1, 0)
    proof = "from house.room import limited; assert type(limited(9.0)) is float"
    status, summary, _ = command(replace(project, proof=("-c", proof)), capsys)
    assert (status, summary["survived"], summary["killed_by_simulation"], summary["killed"]) == (0, 0, 1, 5)


@pytest.mark.runner
def test_a_proof_that_does_not_end_is_a_timeout(project, capsys, monkeypatch) -> None:
    monkeypatch.setattr("proofs.mutants.trial._PROOF_SECONDS", 1)
    proof = "from house.room import limited\nwhile type(limited(9.0)) is int: pass"
    _, summary, _ = command(replace(project, proof=("-c", proof)), capsys)
    assert (summary["timeouts"], summary["survived"]) == (1, 0)


def test_a_proof_that_fails_without_a_mutant_ends_the_run(project, capsys) -> None:
    assert main(["--jobs", "1"], replace(project, proof=("-c", "raise SystemExit(1)"))) == 2
    assert "the proof fails without a mutant" in capsys.readouterr().err


@pytest.mark.runner
def test_a_constant_that_may_have_other_values_is_not_mutated(project, capsys) -> None:
    (project.root / "house/room.py").write_text(f"SIZE: int = 7\n{MODULE}")
    assert command(project, capsys)[1]["mutants"] == 6
    assert command(replace(project, tunable=frozenset({"house.room.SIZE"})), capsys)[1]["mutants"] == 5


@pytest.mark.runner
def test_a_planted_mutant_is_tried_beside_the_sample(project, capsys) -> None:
    project.named.write_text(
        '[[planted]]\npath = "house/room.py"\nbefore = "count = 9"\nafter = "count = 8"\ndefect = "one less"\n'
    )
    status, summary, table = command(project, capsys, "--sample", "1", "--seed", "3")
    assert (summary["sampled"], status) == (2, 0 if summary["killed"] == 2 else 1)
    assert "(planted)" not in table


@pytest.mark.runner
def test_an_endless_test_is_a_timeout(project, capsys, monkeypatch) -> None:
    monkeypatch.setattr("proofs.mutants.trial._MIN_TEST_SECONDS", 3)
    (project.root / "house/room.py").write_text("def f(n):\n    while n < 3:\n        n = n + 1\n    return n\n")
    (project.root / "tests/house/test_room.py").write_text(
        "from house.room import f\n\ndef test_it_counts_to_three():\n    assert f(0) == 3\n"
    )
    _, summary, _ = command(project, capsys)
    assert summary["timeouts"] == 1  # n - 1 never reaches 3
    assert summary["killed"] + summary["timeouts"] == summary["sampled"] - summary["survived"]


@pytest.mark.runner
def test_a_test_that_waits_for_ever_is_a_timeout(project, capsys, monkeypatch) -> None:
    monkeypatch.setattr("proofs.mutants.trial._IDLE_SECONDS", 1)
    (project.root / "house/room.py").write_text("def f(gate):\n    gate.set()\n")
    (project.root / "tests/house/test_room.py").write_text(
        "import threading\nfrom house.room import f\n\n"
        "def test_the_gate_opens():\n    gate = threading.Event()\n    f(gate)\n    gate.wait()\n"
    )
    _, summary, _ = command(project, capsys)
    assert (summary["timeouts"], summary["sampled"]) == (1, 1)


@pytest.mark.runner
def test_a_test_that_is_slow_but_neither_loops_nor_waits_is_no_timeout(project, capsys, monkeypatch) -> None:
    """As on a busy machine: the clock alone never ends a test."""
    monkeypatch.setattr("proofs.mutants.trial._IDLE_SECONDS", 1)
    monkeypatch.setattr("proofs.mutants.trial._MIN_TEST_SECONDS", 20)
    (project.root / "house/room.py").write_text("def f():\n    return 1 < 2\n")
    (project.root / "tests/house/test_room.py").write_text(
        "import time\nfrom house.room import f\n\ndef test_it_takes_its_time():\n    f()\n"
        "    end = time.process_time() + 0.4\n"
        "    while time.process_time() < end:\n        time.sleep(0.01)\n        sum(range(100_000))\n"
    )
    _, summary, _ = command(project, capsys, "--sample", "1")
    assert summary["timeouts"] == 0
    assert summary["survived"] == summary["sampled"]


@pytest.mark.runner
def test_a_test_that_fails_without_a_mutant_judges_none(project, capsys) -> None:
    with (project.root / "tests/house/test_room.py").open("a") as file:
        file.write("\ndef test_that_fails():\n    assert limited(3) == 4\n")
    status, summary, table = command(project, capsys)
    assert (status, summary["killed"], summary["survived"]) == (1, 4, 1)
    assert "left out, since it fails without a mutant: tests/house/test_room.py::test_that_fails" in table


def test_a_broken_test_file_and_a_missing_one_end_the_run(project, capsys) -> None:
    (project.root / "tests/house/test_room.py").write_text("def broken(:")
    assert main(["--jobs", "1"], project) == 2
    assert "do not run without a mutant" in capsys.readouterr().err
    (project.root / "tests/house/test_room.py").unlink()
    assert main(["--jobs", "1"], project) == 2
    assert "tests/house has no tests for house" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (BOUNDARY.replace("count > 9", "count > 8"), "no mutant fits"),
        (BOUNDARY + "occurrence = 2\n", "no mutant fits"),
        (BOUNDARY + 'occurrence = "2"\n', "expected an integer"),
        (BOUNDARY.replace("9 becomes 9.", ""), "reason is empty"),
        (BOUNDARY.replace('function = "limited"\n', ""), "expected the texts"),
        ('[[planted]]\npath = "house/room.py"\nbefore = "count"\nafter = ""\ndefect = "x"\n', "exactly once"),
    ],
)
def test_a_stale_entry_ends_the_run(project, capsys, entry, message) -> None:
    project.named.write_text(entry)
    assert main(["--jobs", "1"], project) == 2
    assert message in capsys.readouterr().err


@pytest.mark.runner
def test_a_seed_repeats_its_sample_and_another_has_another() -> None:
    one, again, other = (make_plan(EFO, sample=40, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.tried != other.tried
    assert len(one.tried) + len(one.equivalent) >= 40


def test_the_named_mutants_of_this_project_fit_its_code() -> None:
    try:
        plan = make_plan(EFO, sample=300, seed=0)
    except StaleEntryError as error:
        pytest.fail(str(error))
    assert plan.total > 3_000
    for mutant in (*plan.tried, *plan.equivalent):
        compile(mutant.apply((ROOT / mutant.path).read_bytes()), mutant.path, "exec")


def test_the_named_test_files_exist() -> None:
    for target in TARGETS:
        modules = {path.rpartition("/")[2].removesuffix(".py") for path in target.modules(ROOT)}
        assert set(target.neighbours) <= modules
        named = [*target.own, *(path for paths in target.neighbours.values() for path in paths)]
        assert [path for path in named if not (ROOT / path).exists()] == []
    for test in LEFT_OUT:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text()
