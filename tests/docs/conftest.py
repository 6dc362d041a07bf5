"""A fake with records, and the environment of a reader who tries the examples of a page beside it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from efo.testing import FakeKinesisThread, FakeSettings
from proofs.ports import free_port
from tests.paths import ROOT

RECORDS = [(f"customer-{n % 9}", json.dumps({"id": n, "price": n / 4}).encode()) for n in range(100)]


@pytest.fixture
def kinesis() -> Iterator[FakeKinesisThread]:
    with FakeKinesisThread(settings=FakeSettings(consumer_creating=0.0)) as fake:
        fake.create_stream("orders", shards=4)
        fake.create_stream("clicks", shards=1)
        fake.put_many("orders", RECORDS)
        yield fake


@pytest.fixture
def reader(kinesis: FakeKinesisThread, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a reader with an empty home, in whose directory are the example configurations."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EFO_", "AWS_", "OTEL_"))}
    return {
        **kept,
        **kinesis.environment,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path_factory.mktemp("home")),
        "PYTHONUNBUFFERED": "1",
        "EFO_SERVICE__PORT": str(free_port()),
    }


@pytest.fixture(autouse=True, scope="module")
def empty_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have an empty home and no variable of AWS in this process, as the readers that are other processes have.

    For a module, since tests of other folders run in this process, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        yield
