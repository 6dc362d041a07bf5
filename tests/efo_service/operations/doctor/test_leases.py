"""The lease store: what its inspection means, and a SQLite file as a whole."""

import pytest

from efo.errors import ConfigurationError, LeaseStoreUnavailableError
from efo.leases.store import Inspection
from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, Lease
from efo_service.exit_codes import Exit
from efo_service.operations.doctor.leases import judge_reading, judge_writing, lease_checks
from efo_service.operations.doctor.running import run_checks

SERVERS = ["dynamodb", "postgres", "redis", "log"]


class Scripted:
    """A store whose inspection returns or raises something."""

    def __init__(self, result):
        self._result = result

    async def inspect(self):
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


async def found(make, store="postgres", path=None):
    return {finding.name: finding.outcome for finding in await run_checks(lease_checks(make, store, path), 60)}


async def test_a_file_that_does_not_exist_yet_passes_and_is_not_created(tmp_path):
    path = tmp_path / "var" / "leases.sqlite"
    outcomes = await found(lambda: SqliteLeaseStore(path, "efo", "orders"), "sqlite", path)
    assert list(outcomes) == ["lease directory", "lease store", "lease store writes"]
    assert {outcome.result for outcome in outcomes.values()} == {"passed"}
    assert list(tmp_path.iterdir()) == []


async def test_the_leases_of_a_running_service_are_read_beside_it(tmp_path):
    path = tmp_path / "leases.sqlite"
    async with SqliteLeaseStore(path, "efo", "orders") as store:
        await store.create(Lease("s", Checkpoint.LATEST))
        outcomes = await found(lambda: SqliteLeaseStore(path, "efo", "orders"), "sqlite", path)
    assert {outcome.result for outcome in outcomes.values()} == {"passed"}
    assert outcomes["lease store"].detail.endswith("1 leases of this application and stream")


async def test_a_file_of_another_program_fails_with_its_remedy(tmp_path):
    path = tmp_path / "leases.sqlite"
    path.write_text("no database " * 100)
    outcomes = await found(lambda: SqliteLeaseStore(path, "efo", "orders"), "sqlite", path)
    assert outcomes["lease store"].result == "failed"
    assert "restore a backup" in outcomes["lease store"].remedy
    assert outcomes["lease store writes"].detail == "lease store failed"


@pytest.mark.parametrize(
    ("error", "code", "remedy"),
    [
        (
            LeaseStoreUnavailableError("lease store postgresql://db:5432/efo: refused; check the server"),
            Exit.UNAVAILABLE,
            "check the server",
        ),
        (
            ConfigurationError("the URL of the lease store is not a PostgreSQL URL"),
            Exit.CONFIGURATION,
            "check the server of",
        ),
    ],
)
async def test_a_server_that_cannot_be_used_fails_with_the_remedy_of_its_error(error, code, remedy):
    outcomes = await found(lambda: Scripted(error))
    assert (outcomes["lease store"].result, outcomes["lease store"].code) == ("failed", code)
    assert outcomes["lease store"].remedy.startswith(remedy)
    assert outcomes["lease store writes"].result == "not tested"


async def test_leases_beside_the_log_have_no_server_of_their_own():
    outcomes = await found(lambda: Scripted(ConfigurationError("there are no AWS credentials")), "log")
    assert outcomes["lease store"].remedy == "check [relay] directory, its store_options and the network"


async def test_a_store_that_cannot_be_made_fails_too():
    def make():
        raise ConfigurationError("no AWS region for the lease table: set region or AWS_REGION")

    outcomes = await found(make, "dynamodb")
    assert outcomes["lease store"].remedy == "set region or AWS_REGION"


@pytest.mark.parametrize("store", ["sqlite", *SERVERS])
def test_a_write_that_is_not_permitted_fails_with_what_to_grant(store):
    outcome = judge_writing(Inspection(exists=True, denied=("UPDATE", "DELETE")), store)
    assert (outcome.result, outcome.code) == ("failed", Exit.UNAVAILABLE)
    assert "UPDATE, DELETE" in outcome.detail
    assert outcome.remedy


@pytest.mark.parametrize(("denied", "result"), [((), "passed"), (None, "not tested")])
def test_a_write_is_permitted_or_only_a_write_would_show_it(denied, result):
    assert judge_writing(Inspection(exists=True, denied=denied), "redis").result == result


@pytest.mark.parametrize(
    ("inspection", "detail"),
    [
        (Inspection(exists=False), "redis can be reached and has no leases yet: `efo run` creates what it needs"),
        (Inspection(exists=True), "redis can be read"),
        (
            Inspection(exists=True, leases=4, version=2),
            "redis can be read, format version 2, 4 leases of this application and stream",
        ),
    ],
)
def test_what_was_read_is_reported(inspection, detail):
    assert judge_reading(inspection, "redis").detail == detail
