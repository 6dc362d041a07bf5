"""The example project: its own tests pass, its files agree, and it stays small enough to be read in ten minutes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from efo_service.config.loading import load_all
from tests.paths import ROOT

EXAMPLE = ROOT / "examples/orders"
README = (EXAMPLE / "README.md").read_text()
COMPOSE = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
MAX_LINES = 400


def run_tests(*arguments: str) -> str:
    """Run tests of the project as its reader does, in an active environment; return their output."""
    paths = [str(EXAMPLE), str(ROOT), str(ROOT / "service")]
    # Spark's Java looks for data sources with the python3 of the PATH.
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", *arguments],
        cwd=EXAMPLE,
        env={
            **os.environ,
            "PATH": programs,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTEST_ADDOPTS": "-p no:asyncio -p no:anyio",
        },
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.page
def test_the_tests_of_the_ledger_pass():
    assert "3 passed" in run_tests("tests/test_ledger.py")


@pytest.mark.e2e
@pytest.mark.page
def test_the_producer_and_the_consumer_in_each_surface_pass_their_tests():
    assert "5 passed" in run_tests("tests/test_programs.py", "-k", "not spark")


@pytest.mark.e2e
@pytest.mark.page
@pytest.mark.spark
def test_the_spark_job_passes_its_test():
    assert "1 passed" in run_tests("tests/test_programs.py", "-k", "spark")


def test_it_can_be_read_in_ten_minutes():
    programs = [*EXAMPLE.glob("orders/*.py"), *EXAMPLE.glob("tests/*.py")]
    assert sum(len(file.read_text().splitlines()) for file in programs) <= MAX_LINES


def test_the_readme_names_every_program():
    programs = {f"orders/{file.name}" for file in EXAMPLE.glob("orders/*.py")} - {"orders/__init__.py"}
    assert set(re.findall(r"`(orders/\w+\.py)`", README)) == programs


def test_there_is_a_program_for_each_surface():
    assert {file.stem for file in EXAMPLE.glob("orders/with_*.py")} == {
        "with_trio",
        "with_asyncio",
        "with_sync",
        "with_processor",
    }


def test_the_configuration_of_the_service_is_valid():
    (settings,) = load_all(EXAMPLE / "efo.toml").streams.values()
    assert settings.kinesis.stream == "orders"


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_of_the_compose_file_runs_something_that_exists(name):
    service = SERVICES[name]
    word = service["command"][0]
    if "entrypoint" in service:
        assert (service["entrypoint"], word in {"fake", "run"}) == (["/opt/efo/bin/efo"], True)
    else:
        assert (EXAMPLE / f"{word.replace('.', '/')}.py").is_file()
    assert set(service.get("depends_on", [])) <= SERVICES.keys()
    assert {volume.partition(":")[0] for volume in service.get("volumes", [])} <= {"data", "./efo.toml"}


def test_all_services_share_the_network_of_the_fake_and_its_address():
    for name, service in SERVICES.items():
        if name != "kinesis":
            assert service["network_mode"] == "service:kinesis"
            assert service["environment"]["AWS_ENDPOINT_URL_KINESIS"] == "http://127.0.0.1:4567"


def test_the_image_is_built_on_efos_image_with_spark_and_has_the_package():
    text = (EXAMPLE / "Dockerfile").read_text()
    assert re.search(r"^FROM efo-spark$", text, re.MULTILINE)
    assert re.search(r"^COPY --chown=10001:10001 orders /app/orders$", text, re.MULTILINE)
    assert 'CMD ["orders.with_trio"]' in text
    assert "/opt/efo" in (ROOT / "Dockerfile").read_text()
