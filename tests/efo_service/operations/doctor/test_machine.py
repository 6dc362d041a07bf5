"""Disks, directories, ports and Java of this machine."""

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from efo.protocol.native import ChosenStep
from efo_service.errors import UnavailableError
from efo_service.exit_codes import Exit
from efo_service.operations.doctor import machine
from efo_service.operations.doctor.machine import (
    MIB,
    decoder_check,
    directory_problem,
    disk_check,
    existing_parent,
    java_check,
    judge_disk,
    port_check,
)
from efo_service.operations.doctor.running import run_checks
from efo_service.spark.errors import JavaMissingError
from proofs.ports import free_port


async def outcome_of(check):
    [finding] = await run_checks([check], 60)
    return finding.outcome


@pytest.fixture
def listening():
    """Return a port on which another program listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def no_answer(host, port, path):
    raise UnavailableError(f"no response from http://{host}:{port}{path}")


async def test_a_free_port_passes_and_stays_free(listening):
    free = free_port()
    for _ in range(2):
        outcome = await outcome_of(port_check("port", "127.0.0.1", free, "[service] port", no_answer))
        assert (outcome.result, outcome.detail) == ("passed", f"127.0.0.1:{free} is free")
    assert (await outcome_of(port_check("port", "127.0.0.1", 0, "[service] port", None))).result == "passed"


@pytest.mark.parametrize(
    ("body", "result"),
    [('{"status": "alive"}', "passed"), ("<h1>It works!</h1>", "failed"), ('{"status": "UP"}', "failed")],
)
async def test_a_port_on_which_efo_serves_passes(listening, body, result):
    outcome = await outcome_of(
        port_check("port", "127.0.0.1", listening, "[service] host and port", lambda *_: (200, body))
    )
    assert outcome.result == result
    if result == "failed":
        assert outcome.detail.endswith("another program has it")
        assert outcome.remedy == "choose another [service] host and port"
        assert outcome.code == Exit.UNAVAILABLE


@pytest.mark.parametrize("http_get", [no_answer, None])
async def test_a_port_of_a_program_that_is_silent_fails(listening, http_get):
    assert (await outcome_of(port_check("port", "127.0.0.1", listening, "port", http_get))).result == "failed"


async def test_an_address_of_another_machine_fails():
    outcome = await outcome_of(port_check("port", "192.0.2.1", 8080, "[service] host and port", no_answer))
    assert outcome.result == "failed"
    assert "another program" not in outcome.detail


@pytest.mark.parametrize(("free", "result"), [(99 * MIB, "failed"), (100 * MIB, "passed")])
def test_a_disk_needs_free_space(free, result):
    outcome = judge_disk(Path("/data"), free, 2048 * MIB, 100 * MIB)
    assert outcome.result == result
    assert outcome.detail == f"{free // MIB} of 2,048 MiB are free at /data"


async def test_the_disk_of_a_path_that_does_not_exist_yet_is_that_of_its_parent(tmp_path):
    outcome = await outcome_of(disk_check("disk", tmp_path / "a" / "b", 1))
    assert outcome.result == "passed"
    assert outcome.detail.endswith(f"free at {tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_can_be_created_is_no_problem_and_is_not_created(tmp_path):
    assert directory_problem(tmp_path) is None
    assert directory_problem(tmp_path / "a" / "b") is None
    assert list(tmp_path.iterdir()) == []


def test_the_nearest_existing_parent_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert existing_parent(Path("a/b")) == tmp_path
    assert existing_parent(Path("/no-such-directory/x")) == Path("/")


def test_a_file_in_the_place_of_a_directory_is_a_problem(tmp_path):
    (tmp_path / "file").write_text("")
    problem = directory_problem(tmp_path / "file" / "log")
    assert problem is not None
    assert problem.detail == f"{tmp_path / 'file'} is not a directory"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_rights_is_a_problem(tmp_path):
    tmp_path.chmod(0o500)
    problem = directory_problem(tmp_path / "log")
    assert problem is not None
    assert str(tmp_path) in problem.remedy


def test_a_user_without_rights_is_reported_which_directory(tmp_path, monkeypatch):
    """As the test above, also for root."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    problem = directory_problem(tmp_path / "log")
    assert problem is not None
    assert problem.detail == f"this user may not create files in {tmp_path}"
    assert str(tmp_path) in problem.remedy


def test_a_read_only_file_system_is_a_problem(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    problem = directory_problem(tmp_path)
    assert problem is not None
    assert "read-only" in problem.detail


@pytest.mark.parametrize(
    ("decoder", "result"),
    [
        (ChosenStep(object(), "native: efo-native 1"), "passed"),
        (ChosenStep(None, "python: efo-native is not installed"), "not tested"),
        (ChosenStep(None, "python: efo-native 0 is installed", "remove it"), "failed"),
    ],
)
async def test_the_decoder_fails_if_efo_native_is_there_and_cannot_be_used(decoder, result, monkeypatch):
    monkeypatch.setattr(machine, "DECODER", decoder)
    outcome = await outcome_of(decoder_check())
    assert (outcome.result, outcome.detail, outcome.remedy or "") == (result, decoder.detail, decoder.remedy)


async def test_java_is_tested_only_for_a_pipeline():
    assert (await outcome_of(java_check(None))).result == "not tested"
    assert (await outcome_of(java_check(lambda: "Java 21 at /bin/java"))).detail == "Java 21 at /bin/java"


async def test_a_missing_java_fails_with_how_to_install_it():
    def find_java():
        raise JavaMissingError("no java on PATH. Spark needs Java 17 or newer. Install it (apt-get install x)")

    outcome = await outcome_of(java_check(find_java))
    assert outcome.result == "failed"
    assert outcome.remedy == "Install it (apt-get install x)"
