from __future__ import annotations

import json

import pytest

from proofs.interop.servers import __main__ as command
from proofs.interop.servers.comparison import Comparison
from proofs.interop.servers.launcher import ServerError
from proofs.interop.servers.results import HTTP_500, OK, Result
from proofs.interop.servers.runner import Report
from proofs.interop.servers.servers import SERVERS

CORRECT = Comparison(1000, 0, 0, 0)


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs the command with these outcomes, by server, and returns exit status and stdout."""
    monkeypatch.setattr(command.stream, "set_credentials", lambda: None)

    async def install(_server):
        pass

    def run(outcomes, *arguments):
        async def run_checks(server, _checks, _records, _progress):
            outcome = outcomes[server.name]
            if isinstance(outcome, Exception):
                raise outcome
            comparison, results = outcome
            return Report(server, comparison, 4, results)

        monkeypatch.setattr(command, "install", install)
        monkeypatch.setattr(command, "run_checks", run_checks)
        monkeypatch.setattr(command.sys, "argv", ["foreign", *arguments])
        return command.main(), capsys.readouterr().out

    return run


def test_stdout_is_a_table_and_a_line_of_json(run):
    results = {"renewal": OK, "unknown shard": HTTP_500}
    status, out = run({server.name: (CORRECT, results) for server in SERVERS})
    assert status == 0
    *table, last = out.splitlines()
    assert json.loads(last)["ministack"] == {
        "version": "1.5.33",
        "records": 1000,
        "lost": 0,
        "duplicated": 0,
        "order_violations": 0,
        "renewals": 4,
        "exercises": {"renewal": "ok", "unknown shard": "lacking"},
    }
    assert [line.split() for line in table if line.startswith("ministack ")] == [
        ["ministack", "1.5.33"],
        ["ministack", "1000", "0", "0", "0", "4"],
    ]
    assert sum("not supported by the server: the call fails with HTTP 500" in line for line in table) == len(SERVERS)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        pytest.param((CORRECT, {"split": OK}), 0, id="passed"),
        pytest.param((Comparison(999, 1, 0, 0), {}), 1, id="lost"),
        pytest.param((Comparison(1001, 0, 1, 0), {}), 1, id="duplicated"),
        pytest.param((Comparison(1000, 0, 0, 1), {}), 1, id="out of order"),
        pytest.param((CORRECT, {"split": Result("failed", "why")}), 1, id="failed check"),
        pytest.param(
            ServerError("ministack cannot be downloaded: not found: make\nand more"), 69, id="unavailable server"
        ),
    ],
)
def test_exit_status_by_outcome(run, outcome, status):
    assert run({"ministack": outcome}, "ministack", "--json")[0] == status


def test_an_unavailable_server_is_reported_with_the_others(run):
    outcomes = {"ministack": ServerError("not found: make\nmore"), "localstack": (CORRECT, {})}
    status, out = run(outcomes, "ministack", "localstack")
    assert status == 69
    assert json.loads(out.splitlines()[-1])["ministack"] == {"unavailable": "not found: make"}
    assert json.loads(out.splitlines()[-1])["localstack"]["lost"] == 0


def test_an_unknown_server_is_rejected(run, capsys):
    with pytest.raises(SystemExit) as stopped:
        run({}, "localstak")
    assert stopped.value.code == 2
    assert "unknown server localstak: choose from kinesis-mock, ministack, localstack" in capsys.readouterr().err


def test_the_help_text_has_an_example(run, capsys):
    with pytest.raises(SystemExit):
        run({}, "--help")
    assert "example: python -m proofs.interop.servers ministack kinesis-mock" in capsys.readouterr().out
