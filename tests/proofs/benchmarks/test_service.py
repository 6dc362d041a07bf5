from proofs.benchmarks.readers.service import sample_of

METRICS = """\
# HELP messaging_client_consumed_messages_total Records that the handler has processed.
# TYPE messaging_client_consumed_messages_total counter
messaging_client_consumed_messages_total{shard="shardId-000000000000"} 1200.0
messaging_client_consumed_messages_total{shard="shardId-000000000001"} 300.0
messaging_process_duration_seconds_count 7.0
process_cpu_seconds_total 3.25
"""


def test_the_records_of_all_shards_and_the_cpu_time_are_read_from_the_metrics():
    found = sample_of(METRICS, 7, 200)
    assert (found.process, found.records, found.payload_bytes, found.cpu_seconds) == (7, 1500, 300_000, 3.25)


def test_a_service_that_has_relayed_nothing_has_no_records():
    assert sample_of("process_cpu_seconds_total 3.25\n", 7, 200).records == 0
