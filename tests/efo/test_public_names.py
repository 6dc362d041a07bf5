"""`from efo import ...`: which names there are, without any extra installed, and what type checkers make of others."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys

import pytest

import efo

WITHOUT_EXTRAS = """
import sys
for extra in ("psycopg", "redis", "confluent_kafka", "pyarrow", "pydantic", "opentelemetry.sdk", "h11", "cbor2"):
    sys.modules[extra] = None
import efo
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS + code], check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def test_every_name_can_be_imported_without_any_extra():
    names = run("from efo import *\nprint(*sorted(name for name in efo.__all__ if globals()[name] is not None))")
    assert names.split() == sorted(efo.__all__)


@pytest.mark.parametrize("package", ["efo.deserializers", "efo.kinesis", "efo.leases", "efo.telemetry"])
def test_every_name_of_a_public_package_can_be_imported_without_any_extra(package):
    names = run(f"import {package} as package\nfrom {package} import *\nprint(*package.__all__, len(dir(package)) > 3)")
    assert names.split() == [*importlib.import_module(package).__all__, "True"]


def test_efo_itself_has_at_most_eighty_names():
    assert len(efo.__all__) <= 80


def test_help_describes_every_name_without_any_extra():
    text = run("help(efo)")
    assert [name for name in efo.__all__ if name not in text] == []


@pytest.mark.parametrize(
    ("store", "extra"),
    [
        ("PostgresLeaseStore('postgresql://db', 'a', 's')", "postgres"),
        ("RedisLeaseStore('redis://db', 'a', 's')", "redis"),
    ],
)
def test_a_store_whose_driver_is_missing_names_the_extra_when_it_is_made(store, extra):
    code = f"try: efo.leases.{store}\nexcept efo.errors.MissingExtraError as error: print(error)"
    assert f"pip install 'efo[{extra}]'" in run(code)


def test_the_version_is_that_of_the_package():
    assert efo.__version__ == importlib.metadata.version("efo")


def test_hasattr_and_dir_know_the_public_names_and_no_others():
    assert all(hasattr(efo, name) for name in efo.__all__)
    assert set(efo.__all__) <= set(dir(efo))
    assert not hasattr(efo, "Consumr")
    with pytest.raises(ImportError, match="Consumr"):
        exec("from efo import Consumr")  # noqa: S102 - the statement is the subject


@pytest.mark.parametrize(
    "command",
    [
        ["mypy", "--no-incremental", "--cache-dir=/dev/null"],
        ["basedpyright", "--level=error", "--pythonpath", sys.executable],
    ],
    ids=lambda c: c[0],
)
def test_a_type_checker_rejects_a_name_that_does_not_exist_and_knows_the_others(command, tmp_path):
    module = tmp_path / "application.py"
    module.write_text(
        "import efo\n"
        "from efo import Consumr\n"
        "from efo import consume, events\n"
        "number: int = consume\n"
        "gone = events.ShardGone\n"
        "efo.open_consumr\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", *command, str(module)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    errors = [line for line in done.stdout.splitlines() if "error" in line and "application.py:" in line]
    assert [line.split("application.py:")[1].split(":")[0] for line in errors] == ["2", "4", "6"], done.stdout
