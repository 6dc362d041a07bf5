"""efo reads servers that others wrote. The short form, of those that start quickly, all at once: up to a minute."""

from __future__ import annotations

import os
from functools import partial

import pytest
import trio

from proofs.interop.servers.running import ServerError
from proofs.interop.servers.servers import SERVERS
from proofs.interop.servers.stream import CREDENTIALS
from proofs.interop.servers.trial import SHORT, Report, attempt

QUICK = ("kinesis-mock", "ministack")
RECORDS = 200

pytestmark = pytest.mark.foreign


@pytest.fixture(scope="module")
def outcomes():
    """Return what came of each server that is installed."""
    found: dict[str, Report | ServerError] = {}

    async def one(server):
        try:
            found[server.name] = await attempt(server, SHORT, RECORDS, partial(print, f"[{server.name}]"))
        except ServerError as error:
            found[server.name] = error

    async def all_of_them():
        async with trio.open_nursery() as nursery:
            for server in SERVERS:
                if server.name in QUICK and server.is_installed and server.missing() is None:
                    nursery.start_soon(one, server)

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("AWS_")]:
            patch.delenv(name)
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        trio.run(all_of_them)
    return found


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_lost_doubled_or_out_of_order(outcomes, name):
    if name not in outcomes:
        pytest.skip(f"{name} is not installed: make foreign-install ARGS={name}")
    report = outcomes[name]
    assert isinstance(report, Report), report
    assert {
        exercise: str(finding) for exercise, finding in report.findings.items() if finding.outcome == "failed"
    } == {}
    assert report.verdict.is_right, report.verdict
    assert report.verdict.records >= RECORDS


def test_each_thing_is_done_by_some_server(outcomes):
    if len(outcomes) < len(QUICK):
        pytest.skip("not all servers are installed: make foreign-install")
    done = {
        name for report in outcomes.values() for name, finding in report.findings.items() if finding.outcome == "ok"
    }
    assert done == {"renewal", *SHORT}
