"""`efo leases`, `efo shards` and `efo consumers` as an operator uses them, with a SQLite file and FakeKinesis."""

import json
import os

import pytest
import trio

from efo.leases.stores.sqlite.store import SqliteLeaseStore
from efo.model import Checkpoint, Lease
from efo.testing import FakeKinesisThread
from efo_service.cli import call
from efo_service.exit_codes import Exit
from tests.environment import use_fake

FIRST, SECOND = "shardId-000000000000", "shardId-000000000001"


@pytest.fixture(scope="module")
def kinesis():
    with FakeKinesisThread() as fake:
        fake.create_stream("orders", shards=2)
        yield fake


@pytest.fixture(autouse=True)
def environment(kinesis, tmp_path, monkeypatch):
    use_fake(
        monkeypatch,
        kinesis,
        KINESIS__STREAM="orders",
        LEASES__PATH=tmp_path / "leases.sqlite",
        LEASES__FAILOVER_SECONDS=0.1,
    )


@pytest.fixture
def with_store(tmp_path):
    """Return a function that runs `work` with the application's lease store."""

    def run(work):
        async def opened():
            async with SqliteLeaseStore(tmp_path / "leases.sqlite", "efo", os.environ["EFO_KINESIS__STREAM"]) as store:
                return await work(store)

        return trio.run(opened)

    return run


@pytest.fixture
def leases(with_store):
    """Create two leases, the first of a dead worker; return a function that reads them."""

    async def create(store):
        await store.create(Lease(FIRST, Checkpoint("5"), owner="dead", counter=3))
        await store.create(Lease(SECOND, Checkpoint.TRIM_HORIZON))

    with_store(create)

    async def read(store):
        return {lease.key: lease for lease in await store.list()}

    return lambda: with_store(read)


@pytest.fixture
def efo(capsys):
    """Return a function that calls a command, and returns its exit code, the JSON of its last line, and stderr."""

    def run(*arguments):
        code = call([*arguments, "--json"])
        output = capsys.readouterr()
        return code, json.loads(output.out.splitlines()[-1]) if output.out else None, output.err

    return run


def test_leases_are_listed_and_shown(leases, efo, capsys):
    code, output, _ = efo("leases", "list")
    assert (code, [lease["lease_key"] for lease in output["leases"]]) == (Exit.OK, [FIRST, SECOND])
    code, output, _ = efo("leases", "show", FIRST)
    assert (code, output["checkpoint"], output["lease_owner"]) == (Exit.OK, "5", "dead")
    assert call(["leases", "list"]) == Exit.OK
    shown = capsys.readouterr().out
    assert "2 leases" in shown
    assert "TRIM_HORIZON" in shown
    assert call(["leases", "show", SECOND]) == Exit.OK
    assert "checkpoint" in capsys.readouterr().out


def test_the_lease_of_a_dead_worker_can_be_released_reset_and_deleted(leases, efo):
    assert efo("leases", "release", FIRST, "--yes")[:2] == (Exit.OK, {"released": [FIRST]})
    assert leases()[FIRST].owner is None
    code, reset, stderr = efo("leases", "reset", FIRST, "--to", "77", "--yes")
    assert (code, reset) == (Exit.OK, {"reset": [FIRST]})
    assert 'sink = "log" keeps the position of each shard itself' in stderr
    assert leases()[FIRST].checkpoint == Checkpoint("77")
    assert efo("leases", "reset", "--all", "--to", "latest", "--yes")[0] == Exit.OK
    assert {lease.checkpoint.sequence_number for lease in leases().values()} == {"LATEST"}
    assert all(lease.latest_at is not None for lease in leases().values())
    assert efo("leases", "delete", SECOND, "--yes")[:2] == (Exit.OK, {"deleted": [SECOND]})
    assert set(leases()) == {FIRST}


def test_a_reset_of_all_shards_creates_missing_leases(leases, efo):
    assert efo("leases", "delete", SECOND, "--yes")[0] == Exit.OK
    assert efo("leases", "reset", "--all", "--to", "trim_horizon", "--yes")[:2] == (Exit.OK, {"reset": [FIRST, SECOND]})
    assert {key: lease.checkpoint for key, lease in leases().items()} == {
        FIRST: Checkpoint.TRIM_HORIZON,
        SECOND: Checkpoint.TRIM_HORIZON,
    }


def test_without_a_confirmation_nothing_is_changed(leases, efo):
    before = leases()
    code, output, stderr = efo("leases", "delete", "--all")
    assert (code, output) == (Exit.USAGE, None)
    assert "--yes" in stderr
    assert leases() == before


def test_the_lease_of_a_living_worker_is_refused_without_force(leases, with_store, efo, monkeypatch):
    """The worker renews whenever the leases are listed, so that its counter changes."""
    listed = SqliteLeaseStore.list

    async def list_and_renew(store):
        rows = await listed(store)
        for row in rows:
            if row.owner:
                await store.renew(row)
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(SqliteLeaseStore, "list", list_and_renew)
        code, _, stderr = efo("leases", "reset", "--all", "--to", "trim_horizon", "--yes")
    assert code == Exit.USAGE
    assert "dead" in stderr
    assert "--force" in stderr
    assert leases()[FIRST].checkpoint == Checkpoint("5")


def test_leases_are_exported_to_a_file_and_imported_from_it(leases, efo, capsys, tmp_path):
    path = tmp_path / "leases.json"
    assert call(["leases", "export", "--output", str(path)]) == Exit.OK
    assert call(["leases", "export", "--output", str(path)]) == Exit.USAGE
    assert "choose a new file" in capsys.readouterr().err
    assert efo("leases", "delete", "--all", "--yes", "--force")[0] == Exit.OK
    code, output, _ = efo("leases", "import", str(path), "--yes")
    assert (code, output) == (Exit.OK, {"created": 2, "changed": 0, "same": 0})
    assert efo("leases", "reset", SECOND, "--to", "9", "--yes")[0] == Exit.OK
    code, _, stderr = efo("leases", "import", str(path), "--yes")
    assert code == Exit.USAGE
    assert SECOND in stderr
    assert efo("leases", "import", str(path), "--yes", "--overwrite")[1] == {"created": 0, "changed": 1, "same": 1}
    assert leases()[SECOND].checkpoint == Checkpoint.TRIM_HORIZON


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["leases", "show", "shardId-9"], Exit.USAGE, "efo leases list"),
        (["leases", "delete", "--yes"], Exit.USAGE, "--all"),
        (["leases", "reset", FIRST, "--to", "tomorrow", "--yes"], Exit.USAGE, "--to tomorrow"),
        (["leases", "reset", "--all", "--to", "7", "--yes"], Exit.USAGE, "one shard"),
        (["leases", "reset", "--all", "--to", "2999-01-01T00:00:00Z", "--yes"], Exit.USAGE, "future"),
        (["leases", "import", "missing.json"], Exit.USAGE, "missing.json"),
        (["leases", "import", __file__], Exit.CONFIGURATION, "efo leases export"),
        (["consumers", "deregister", "nobody", "--yes"], Exit.USAGE, "efo consumers list"),
    ],
)
def test_a_wrong_request_is_refused_and_nothing_is_changed(leases, efo, arguments, code, message):
    before = leases()
    exit_code, _, stderr = efo(*arguments)
    assert (exit_code, leases()) == (code, before)
    assert message in " ".join(stderr.split())
    assert "Traceback" not in stderr


def test_shards_shows_the_tree_with_states_owners_and_lags(kinesis, with_store, efo, capsys, monkeypatch):
    monkeypatch.setenv("EFO_KINESIS__STREAM", "tree")
    kinesis.create_stream("tree", shards=1)
    children = kinesis.split("tree", FIRST)
    kinesis.put("tree", "k", b"1")

    async def create(store):
        await store.create(Lease(FIRST, Checkpoint.SHARD_END))
        await store.create(Lease(children[0], Checkpoint.TRIM_HORIZON, owner="ann", parents=(FIRST,)))

    with_store(create)
    code, output, _ = efo("shards")
    assert code == Exit.OK
    shards = {shard["shard_id"]: shard for shard in output["shards"]}
    assert [shards[key]["state"] for key in (FIRST, *children)] == ["finished", "consuming", "no_lease"]
    assert [shards[key]["depth"] for key in (FIRST, *children)] == [0, 1, 1]
    assert shards[children[0]]["owner"] == "ann"
    assert shards[children[0]]["millis_behind_latest"] is not None
    assert shards[FIRST]["millis_behind_latest"] is None
    assert call(["shards", "--no-lag"]) == Exit.OK
    assert f"  {children[0]}" in capsys.readouterr().out


def test_consumers_are_registered_listed_and_deregistered(kinesis, efo, capsys):
    code, output, _ = efo("consumers", "register", "billing")
    assert (code, output["status"]) == (Exit.OK, "ACTIVE")
    assert efo("consumers", "register", "--tags", "team=orders")[1]["name"] == "efo"
    arns = {one["name"]: one["arn"] for one in efo("consumers", "list")[1]["consumers"]}
    assert {name: kinesis.call(lambda fake, arn=arn: fake.tags(arn)) for name, arn in arns.items()} == {
        "billing": {},
        "efo": {"team": "orders"},
    }
    assert efo("consumers", "register", "third", "--tags", "aws:team=orders")[0] == Exit.USAGE
    code, output, _ = efo("consumers", "list")
    assert (code, {one["name"]: one["own"] for one in output["consumers"]}) == (
        Exit.OK,
        {"billing": False, "efo": True},
    )
    assert call(["consumers", "list"]) == Exit.OK
    assert "billing" in capsys.readouterr().out
    assert efo("consumers", "janitor", "*", "--older-than", "1", "--yes")[1] == {"deregistered": []}
    assert efo("consumers", "janitor", "--match", "*", "--older-than", "0")[0] == Exit.USAGE
    for command in (("janitor", "--match", "*", "--older-than", "0"), ("deregister", "billing"), ("deregister", "efo")):
        code, output, stderr = efo("consumers", *command, "--yes")
        assert (code, output) == (Exit.USAGE, None)
        assert "nothing shows whether workers use them" in stderr
    found = efo("consumers", "janitor", "--match", "*", "--older-than", "0", "--yes", "--force")
    assert found[1] == {"deregistered": ["billing"]}
    assert efo("consumers", "deregister", "efo", "--yes", "--force")[1] == {"deregistered": ["efo"]}


def test_a_consumer_of_dead_workers_is_deregistered_and_that_of_living_ones_is_not(efo, with_store, tmp_path):
    async def create(store):
        await store.create(Lease(FIRST, Checkpoint("5"), owner="dead", counter=3))

    with_store(create)
    efo("consumers", "register")
    code, _, stderr = efo("consumers", "deregister", "efo", "--yes", "--leases", f"{tmp_path}/elsewhere.sqlite")
    assert code == Exit.USAGE
    assert f"{tmp_path}/elsewhere.sqlite has no leases" in stderr
    assert efo("consumers", "deregister", "efo", "--yes")[1] == {"deregistered": ["efo"]}


@pytest.mark.parametrize(
    "command",
    [
        ("leases", "list"),
        ("leases", "show", FIRST),
        ("leases", "export"),
        ("leases", "release", "--all", "--yes"),
        ("leases", "reset", "--all", "--to", "-1h", "--yes"),
        ("leases", "delete", "--all", "--yes"),
        ("shards",),
    ],
)
def test_a_command_beside_the_workers_directory_fails_and_creates_nothing(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EFO_LEASES__PATH")
    assert call([*command]) == Exit.USAGE
    assert f"{tmp_path}/var/leases.sqlite does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_export_of_no_leases_writes_nothing(leases, efo, tmp_path, capsys):
    assert leases()
    assert call(["leases", "export", "--application", "other", "--output", f"{tmp_path}/backup.json"]) == Exit.USAGE
    assert "has no leases of the application other on the stream orders" in capsys.readouterr().err
    assert not (tmp_path / "backup.json").exists()


def test_the_leases_of_a_program_are_read_without_a_configuration(tmp_path, monkeypatch, efo):
    for name in ("EFO_KINESIS__STREAM", "EFO_LEASES__PATH"):
        monkeypatch.delenv(name)

    async def create():
        async with SqliteLeaseStore(tmp_path / "app.sqlite", "billing", "orders") as store:
            await store.create(Lease(FIRST, Checkpoint("5")))

    trio.run(create)
    of = ("--application", "billing", "--stream", "orders", "--leases", f"sqlite:{tmp_path}/app.sqlite")
    code, output, _ = efo("leases", "list", *of)
    assert (code, [lease["lease_key"] for lease in output.pop("leases")]) == (Exit.OK, [FIRST])
    assert output == {"application": "billing", "stream": "orders", "store": f"{tmp_path}/app.sqlite"}
    nodes = efo("shards", *of, "--no-lag")[1]["shards"]
    assert [node["checkpoint"] for node in nodes if node["shard_id"] == FIRST] == ["5"]
    assert efo("leases", "reset", "--all", "--to", "-15m", "--yes", *of)[0] == Exit.OK
    assert efo("leases", "list", *of)[1]["leases"][0]["checkpoint"] == "AT_TIMESTAMP"


EVIL = "\x1b]0;owned\x07shard\x1b[2J\r\n\x9b2J\u202e\x7f"


@pytest.mark.parametrize(
    "arguments",
    [
        ("leases", "list"),
        ("leases", "show", EVIL),
        ("leases", "show", f"{EVIL}unknown"),
        ("leases", "release", EVIL, "--yes", "--force"),
        ("leases", "reset", EVIL, "--to", "trim_horizon", "--yes", "--force"),
        ("leases", "delete", EVIL, "--yes", "--force"),
        ("leases", "export"),
        ("shards",),
    ],
)
def test_names_of_a_lease_store_cannot_change_the_terminal(arguments, with_store, capsys):
    async def create(store):
        await store.create(Lease(EVIL, Checkpoint("5"), owner=EVIL, parents=(f"{EVIL}parent",), counter=3))

    with_store(create)
    call([*arguments])
    output = capsys.readouterr()
    text = output.out + output.err
    assert "owned" in text
    assert [line for line in text.splitlines() if not line.isprintable()] == []


def test_an_import_refuses_a_key_that_is_no_id_of_a_shard(leases, efo, tmp_path, with_store):
    async def create(store):
        await store.create(Lease(EVIL, Checkpoint("5")))

    with_store(create)
    file = tmp_path / "export.json"
    assert efo("leases", "export", f"--output={file}")[0] in {None, Exit.OK, Exit.USAGE}
    if not file.exists():  # export has no --json
        assert call(["leases", "export", f"--output={file}"]) in {None, Exit.OK}
    code, _, error = efo("leases", "import", str(file), "--yes")
    assert code is Exit.CONFIGURATION
    assert "is not a shard's id" in error
    assert error.isascii()
    assert "\x1b" not in error
