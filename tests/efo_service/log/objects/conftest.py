from collections.abc import Callable

import pytest

from tests.efo_service.log.objects.logs import Log


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def make_log() -> Callable[[], Log]:
    return Log
