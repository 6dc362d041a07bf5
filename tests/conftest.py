"""Configuration and fixtures of all tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator

import hypothesis
import pytest
import structlog
import trio

from efo.settings import ReadMode
from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.local_servers.running import Servers
from tests.workers import workers_read_by

# Hypothesis uses the same examples in each run, without deadlines. HYPOTHESIS_PROFILE=explore tries many random ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A background job of a shell ignores SIGINT. The processes that tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


LONG_FILES = ("tests/efo_service/spark/", "tests/efo_service/relay/kafka/", "tests/proofs/simulation/test_seeds.py")


def _rank(item: pytest.Item) -> int:
    if item.location[0].startswith(LONG_FILES):
        return 0
    return 1 if item.get_closest_marker("e2e") else 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that take long, so that none of them is left at the end, when the other processes are idle.

    Skip the Spark tests by name if Java is missing. No other tests need it.
    """
    items.sort(key=_rank)
    spark = [item for item in items if item.get_closest_marker("spark")]
    if not spark:
        return
    try:
        find_java()
    except JavaMissingError as error:
        for item in spark:
            item.add_marker(pytest.mark.skip(reason=str(error)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason to skip: a missing server skips many tests."""
    reasons = Counter(report.longrepr[2] for report in terminalreporter.stats.get("skipped", ()))
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} skipped: {reason.removeprefix('Skipped: ')}")


@pytest.fixture(autouse=True)
def same_schedule() -> None:
    """Make trio's scheduling deterministic: by default it shuffles the tasks that are ready."""
    trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING = True
    trio._core._run._r.seed(0)


@pytest.fixture(autouse=True)
def default_logging() -> Iterator[None]:
    """Undo what a test has configured of structlog: another one may look for lines of all levels."""
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def same_umask() -> Iterator[None]:
    """Restore the process's umask, which commands set: a server's user could not read files of later tests."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(params=["fanout", "polling"])
def read_mode(request: pytest.FixtureRequest) -> Iterator[ReadMode]:
    """Run the test once for each way to read, with the workers of `tests.workers`."""
    with workers_read_by(request.param):
        yield request.param


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Return the real servers, which all tests of a run share."""
    with Servers() as servers:
        yield servers
