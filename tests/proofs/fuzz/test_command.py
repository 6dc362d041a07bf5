"""The command: its help and its errors, how it repeats an input, and what it makes of the fuzzer's words."""

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
    """Let this Python code play the fuzzer; give where it leaves its files."""

    def play(code):
        monkeypatch.setattr(importlib.util, "find_spec", lambda _name: True)
        monkeypatch.setattr(session, "ENGINE", (sys.executable, "-c", "import sys\n" + code))
        return tmp_path

    return play


SOUND = """
for n in (2, 1024):
    print(f"#{n}\\tpulse  cov: {n + 40} ft: 99 corp: 3/9b", file=sys.stderr)
print("stat::number_of_executed_units: 1500", file=sys.stderr)
"""
FAILING = """
prefix = next(a for a in sys.argv if a.startswith("-artifact_prefix=")).partition("=")[2]
print("INFO: Seed: 42", file=sys.stderr)
print(" === Uncaught Python exception: ===\\nAssertionError: a cut changes what is read", file=sys.stderr)
open(prefix + "crash-1", "wb").write(b"\\0")
sys.exit(77)
"""


def test_every_target_gives_its_figures(engine, capsys):
    home = engine(SOUND)
    assert command.main(["--home", str(home), "--seconds", "1"]) == 0
    said = last_line(capsys)
    assert said.keys() == TARGETS.keys()
    for name, result in said.items():
        assert (result["executions"], result["failures"], result["branches"]) == (1500, 0, 1064)
        assert {path.read_bytes() for path in (home / "corpus" / name).iterdir()} == set(TARGETS[name].seeds())


def test_a_failure_is_kept_and_the_command_to_repeat_it_is_told(engine, capsys):
    home = engine(FAILING)
    assert command.main(["--home", str(home), "--seconds", "1", "frames"]) == 1
    out, err = capsys.readouterr()
    kept = home / "failed" / "frames" / "crash-1"
    assert f'make fuzz ARGS="--repeat {kept} frames"' in out
    assert json.loads(out.splitlines()[-1])["frames"] | {"seconds": 0} == {
        "executions": 0, "seconds": 0, "failures": 1, "branches": 0, "kept": [str(kept)],
    }  # fmt: skip
    assert "a cut changes what is read" in err
    assert "seed 42" in err


def test_a_fuzzer_that_only_dies_has_failed_too(engine, capsys):
    home = engine("sys.exit(1)")
    assert command.main(["--home", str(home), "--seconds", "1", "frames"]) == 1
    assert last_line(capsys)["frames"]["failures"] == 1


def test_an_input_is_checked_again_without_a_fuzzer(tmp_path, capsys):
    file = tmp_path / "input"
    file.write_bytes(next(iter(TARGETS["http2"].seeds())))
    assert command.main(["--repeat", str(file), "http2"]) == 0
    assert last_line(capsys) == {"http2": {"executions": 1, "seconds": 0.0, "failures": 0, "branches": 0, "kept": []}}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "no target is called nothing. There are: frames, events, aggregates, http2"),
        (["--repeat", "/nowhere/input", "frames"], "is not there"),
        (["--repeat", "/nowhere/input"], "name the one target"),
    ],
)
def test_wrong_arguments(arguments, said, capsys):
    assert command.main(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_seconds_that_are_none(seconds, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main(["--seconds", seconds])
    assert "--seconds" in capsys.readouterr().err


def test_without_atheris_it_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert command.main([]) == 69
    said = capsys.readouterr().err
    assert "CPython 3.11 to 3.13" in said
    assert "make PYTHON=" in said


def test_the_help_has_an_example(capsys):
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    assert "make fuzz SECONDS=600" in capsys.readouterr().out
