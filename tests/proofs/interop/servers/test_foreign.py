"""efo reads third-party servers: the short checks on those that start quickly, in parallel, in up to a minute."""

from __future__ import annotations

import os
from functools import partial

import pytest
import trio

from proofs.interop.servers.launcher import ServerError
from proofs.interop.servers.runner import SHORT_CHECKS, Report, run_checks
from proofs.interop.servers.servers import SERVERS
from proofs.interop.servers.stream import CREDENTIALS

QUICK = ("kinesis-mock", "ministack")
RECORDS = 200

pytestmark = [pytest.mark.foreign, pytest.mark.runner]


@pytest.fixture(scope="module")
def outcomes():
    """Return the outcome of each installed server."""
    outcomes: dict[str, Report | ServerError] = {}

    async def check(server):
        try:
            outcomes[server.name] = await run_checks(server, SHORT_CHECKS, RECORDS, partial(print, f"[{server.name}]"))
        except ServerError as error:
            outcomes[server.name] = error

    async def check_all():
        async with trio.open_nursery() as nursery:
            for server in SERVERS:
                if server.name in QUICK and server.is_installed and server.missing() is None:
                    nursery.start_soon(check, server)

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.upper().startswith("AWS_")]:
            patch.delenv(name)
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        trio.run(check_all)
    return outcomes


@pytest.mark.parametrize("name", QUICK)
def test_nothing_is_lost_duplicated_or_out_of_order(outcomes, name):
    if name not in outcomes:
        pytest.skip(f"{name} is not installed: make third-party-servers-install ARGS={name}")
    report = outcomes[name]
    assert isinstance(report, Report), report
    assert {check: str(result) for check, result in report.results.items() if result.outcome == "failed"} == {}
    assert report.comparison.passed, report.comparison
    assert report.comparison.records >= RECORDS


def test_every_check_is_ok_on_some_server(outcomes):
    if len(outcomes) < len(QUICK):
        pytest.skip("not all servers are installed: make third-party-servers-install")
    ok = {name for report in outcomes.values() for name, result in report.results.items() if result.outcome == "ok"}
    assert ok == {"renewal", *SHORT_CHECKS}
