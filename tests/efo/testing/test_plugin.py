"""The pytest plugin in a separate pytest run, as users have it."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester):
    """Return a function that runs pytest on a test file in a separate process."""

    def run(text, *arguments):
        pytester.makepyfile(textwrap.dedent(text))
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    return run


def test_the_in_memory_fake_works_with_trio_and_virtual_time(run):
    result = run(
        """
        import pytest, trio
        from collections import defaultdict
        from efo import open_consumer
        from efo.testing import When
        from efo.testing.faults import Reset

        @pytest.mark.trio
        async def test_mine(fake_kinesis, efo_stream, efo_load, efo_faults, autojump_clock):
            efo_faults.add(Reset(), When(nth=1))
            expected = efo_load(500, keys=7)
            received = defaultdict(list)

            async def read(shard):
                async for batch in shard:
                    for record in batch.records:
                        received[record.partition_key].append(record.data)
                    shard.ack(batch)
                    if sum(map(len, received.values())) == 500:
                        consumer.drain()

            async with open_consumer(
                fake_kinesis.kinesis(efo_stream), application="mine", leases="memory:"
            ) as consumer:
                await consumer.run(read)
            assert received == expected
            assert len(efo_faults.fired) == 2
        """
    )
    result.assert_outcomes(passed=1)


def test_the_served_fake_works_with_a_synchronous_client(run):
    result = run(
        """
        import botocore.session
        import pytest
        from efo.testing import When
        from efo.testing.faults import Refuse

        @pytest.fixture
        def client(fake_kinesis_server, monkeypatch):
            for name, value in fake_kinesis_server.environment.items():
                monkeypatch.setenv(name, value)
            return botocore.session.Session().create_client("kinesis")

        def test_mine(fake_kinesis_server, client):
            fake_kinesis_server.create_stream("orders", shards=3)
            client.put_record(StreamName="orders", Data=b"x", PartitionKey="k")
            assert sum(map(len, fake_kinesis_server.records("orders").values())) == 1
            assert len(client.list_shards(StreamName="orders")["Shards"]) == 3
            parent = fake_kinesis_server.open_shards("orders")[0]
            assert len(fake_kinesis_server.split("orders", parent)) == 2

        def test_my_retries(fake_kinesis_server, client):
            fake_kinesis_server.create_stream("orders")
            fake_kinesis_server.inject(Refuse(status=500), When(operation="ListShards", times=2))
            assert len(client.list_shards(StreamName="orders")["Shards"]) == 1
            assert len(fake_kinesis_server.fired) == 2

        def test_errors_are_raised(fake_kinesis_server):
            with pytest.raises(Exception, match="ResourceNotFound"):
                fake_kinesis_server.put("missing", "k", b"")
        """
    )
    result.assert_outcomes(passed=3)


def test_a_fixture_can_replace_the_settings(run):
    result = run(
        """
        import pytest
        from efo.testing import FakeSettings

        @pytest.fixture
        def efo_fake_settings():
            return FakeSettings(region="eu-central-1")

        def test_mine(fake_kinesis_server):
            assert ":eu-central-1:" in fake_kinesis_server.create_stream("s")
        """
    )
    result.assert_outcomes(passed=1)


def test_pytest_lists_the_fixtures(run):
    shown = run("", "--fixtures").stdout.str()
    for name in ("fake_kinesis", "fake_kinesis_server", "efo_stream", "efo_load", "efo_faults", "efo_fake_settings"):
        assert f"\n{name} --" in shown or f"\n{name} -- " in shown, name


def test_the_plugin_can_be_disabled(run):
    result = run("def test_mine(fake_kinesis_server): pass", "-p", "no:efo")
    result.assert_outcomes(errors=1)
    assert "fixture 'fake_kinesis_server' not found" in result.stdout.str()


def test_importing_the_plugin_imports_no_large_modules():
    script = "import efo.testing.plugin, sys; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    result = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert set(result.stdout.split()) & {"trio", "h2", "msgspec", "ssl", "h11", "aiobotocore"} == set()
