"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest
import trio

from efo_service.spark.errors import JavaMissingError
from efo_service.spark.java import find_java
from proofs.local_servers.running import Servers

# Hypothesis takes the same examples each time, and asserts no times. HYPOTHESIS_PROFILE=explore looks further.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# A job in a shell's background ignores SIGINT, and so would all processes that tests start and mean to interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the Spark tests by name where there is no Java for them: everything else runs without."""
    spark = [item for item in items if item.get_closest_marker("spark")]
    if not spark:
        return
    try:
        find_java()
    except JavaMissingError as error:
        for item in spark:
            item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture(autouse=True)
def same_schedule() -> None:
    """Let trio wake tasks in the same order each time: it shuffles those that are ready, by a generator of its own."""
    trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING = True
    trio._core._run._r.seed(0)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """Real servers, which all tests of a run share."""
    with Servers() as servers:
        yield servers
