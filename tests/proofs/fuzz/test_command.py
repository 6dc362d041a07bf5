"""`python -m proofs.fuzz`: its help, its errors, how it repeats an input, and how it reads the fuzzer's output."""

import importlib.util
import json
import sys

import pytest

import proofs.fuzz.__main__ as command
from proofs.fuzz import session
from proofs.fuzz.targets import TARGETS


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def engine(monkeypatch, tmp_path):
    """Run the given Python code as the fuzzer, and return the directory for its files."""

    def replace_fuzzer(code):
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: True)
        monkeypatch.setattr(session, "ENGINE", (sys.executable, "-c", "import sys\n" + code))
        return tmp_path

    return replace_fuzzer


SUCCEEDING = """
for n in (2, 1024):
    print(f"#{n}\\tpulse  cov: {n + 40} ft: 99 corp: 3/9b", file=sys.stderr)
print("stat::number_of_executed_units: 1500", file=sys.stderr)
"""
FAILING = """
prefix = next(a for a in sys.argv if a.startswith("-artifact_prefix=")).partition("=")[2]
print("INFO: Seed: 42", file=sys.stderr)
print(" === Uncaught Python exception: ===\\nAssertionError: cuts change what is decoded", file=sys.stderr)
open(prefix + "crash-1", "wb").write(b"\\0")
sys.exit(77)
"""


def test_each_target_has_its_results_in_the_json_line(engine, capsys):
    home = engine(SUCCEEDING)
    assert command.main(["--home", str(home), "--seconds", "1"]) == 0
    results = last_line(capsys)
    assert results.keys() == TARGETS.keys()
    for name, result in results.items():
        assert (result["executions"], result["failures"], result["branches"]) == (1500, 0, 1064)
        assert {path.read_bytes() for path in (home / "corpus" / name).iterdir()} == set(TARGETS[name].seeds())


def test_a_failed_input_is_kept_and_the_command_to_repeat_it_is_printed(engine, capsys):
    home = engine(FAILING)
    assert command.main(["--home", str(home), "--seconds", "1", "frames"]) == 1
    out, err = capsys.readouterr()
    kept = home / "failed" / "frames" / "crash-1"
    assert f'make fuzz ARGS="--repeat {kept} frames"' in out
    assert json.loads(out.splitlines()[-1])["frames"] | {"seconds": 0} == {
        "executions": 0, "seconds": 0, "failures": 1, "branches": 0, "kept": [str(kept)],
    }  # fmt: skip
    assert "cuts change what is decoded" in err
    assert "seed 42" in err


def test_a_fuzzer_that_exits_with_an_error_is_a_failure(engine, capsys):
    home = engine("sys.exit(1)")
    assert command.main(["--home", str(home), "--seconds", "1", "frames"]) == 1
    assert last_line(capsys)["frames"]["failures"] == 1


def test_repeat_checks_an_input_without_the_fuzzer(tmp_path, capsys):
    file = tmp_path / "input"
    file.write_bytes(next(iter(TARGETS["http2"].seeds())))
    assert command.main(["--repeat", str(file), "http2"]) == 0
    assert last_line(capsys) == {"http2": {"executions": 1, "seconds": 0.0, "failures": 0, "branches": 0, "kept": []}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "unknown target: nothing: the targets are frames, events, aggregates, http2"),
        (["--repeat", "/nowhere/input", "frames"], "does not exist"),
        (["--repeat", "/nowhere/input"], "name exactly one target"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message, capsys):
    assert command.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_seconds_below_one_or_not_a_number_are_rejected(seconds, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--seconds", seconds])
    assert "--seconds" in capsys.readouterr().err


def test_without_atheris_an_error_names_the_supported_pythons(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert command.main([]) == 69
    err = capsys.readouterr().err
    assert "CPython 3.11 to 3.13" in err
    assert "make PYTHON=" in err


def test_the_help_has_an_example(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    assert "make fuzz SECONDS=600" in capsys.readouterr().out
