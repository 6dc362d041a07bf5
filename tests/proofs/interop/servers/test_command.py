from __future__ import annotations

import json

import pytest

from proofs.interop.servers import __main__ as command
from proofs.interop.servers.findings import HTTP_500, OK, Finding
from proofs.interop.servers.judgement import Verdict
from proofs.interop.servers.running import ServerError
from proofs.interop.servers.servers import SERVERS
from proofs.interop.servers.trial import Report

RIGHT = Verdict(1000, 0, 0, 0)


@pytest.fixture
def run(monkeypatch, capsys):
    """Return a function that runs the command with these outcomes, by server, and returns its status and output."""
    monkeypatch.setattr(command.stream, "set_credentials", lambda: None)

    async def install(_server):
        pass

    def run(outcomes, *arguments):
        async def attempt(server, _exercises, _records, _say):
            outcome = outcomes[server.name]
            if isinstance(outcome, Exception):
                raise outcome
            verdict, findings = outcome
            return Report(server, verdict, 4, findings)

        monkeypatch.setattr(command, "install", install)
        monkeypatch.setattr(command, "attempt", attempt)
        monkeypatch.setattr(command.sys, "argv", ["foreign", *arguments])
        return command.main(), capsys.readouterr().out

    return run


def test_a_table_and_a_line_of_json(run):
    findings = {"renewal": OK, "unknown shard": HTTP_500}
    status, out = run({server.name: (RIGHT, findings) for server in SERVERS})
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
    assert sum("not supported by the server: it fails with HTTP 500" in line for line in table) == len(SERVERS)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ((RIGHT, {"split": OK}), 0),
        ((Verdict(999, 1, 0, 0), {}), 1),
        ((Verdict(1001, 0, 1, 0), {}), 1),
        ((Verdict(1000, 0, 0, 1), {}), 1),
        ((RIGHT, {"split": Finding("failed", "why")}), 1),
        (ServerError("ministack cannot be fetched: not found: make\nand more"), 69),
    ],
)
def test_exit_status(run, outcome, status):
    assert run({"ministack": outcome}, "ministack", "--json")[0] == status


def test_a_server_that_cannot_be_had_is_named_beside_the_others(run):
    outcomes = {"ministack": ServerError("not found: make\nmore"), "localstack": (RIGHT, {})}
    status, out = run(outcomes, "ministack", "localstack")
    assert status == 69
    assert json.loads(out.splitlines()[-1])["ministack"] == {"unavailable": "not found: make"}
    assert json.loads(out.splitlines()[-1])["localstack"]["lost"] == 0


def test_a_name_that_is_none(run, capsys):
    with pytest.raises(SystemExit) as stopped:
        run({}, "localstak")
    assert stopped.value.code == 2
    assert "no server is called localstak; there are kinesis-mock, ministack, localstack" in capsys.readouterr().err


def test_help_has_an_example(run, capsys):
    with pytest.raises(SystemExit):
        run({}, "--help")
    assert "example: python -m proofs.interop.servers ministack kinesis-mock" in capsys.readouterr().out
