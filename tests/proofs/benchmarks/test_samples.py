import pytest

from proofs.benchmarks.readers.samples import Sample, started_at, window


def sample(at, process=1, records=0, cpu=0.0, delays=()):
    return Sample(at, process, records, records * 10, records // 2, cpu, delays)


SAMPLES = [
    sample(0.0, 1),
    sample(1.0, 1, 100, 0.5, [9.0]),
    sample(2.0, 2),
    sample(3.0, 1, 300, 1.5, [1.0, 2.0]),
    sample(3.0, 2, 50, 0.5),
    sample(5.0, 1, 700, 2.5, [3.0]),
    sample(5.0, 2, 150, 1.0, [4.0]),
    sample(9.0, 1, 900, 9.0, [8.0]),
]


def test_a_client_has_started_when_each_of_its_processes_has_read_something():
    assert started_at(SAMPLES, 1) == 0.0
    assert started_at(SAMPLES, 2) == 2.0
    assert started_at(SAMPLES[:2], 2) is None


def test_a_client_has_started_when_its_processes_together_have_read_all_shards():
    samples = [Sample(at, process, 9, 9, 9, 1.0, (), shards) for at, process, shards in
               [(1.0, 1, 2), (2.0, 2, 1), (3.0, 1, 2), (4.0, 2, 3), (5.0, 1, 4)]]  # fmt: skip
    assert started_at(samples, 2, shards=5) == 4.0
    assert started_at(samples, 1, shards=2) == 1.0
    assert started_at(samples, 2, shards=8) is None


def test_a_window_counts_from_the_first_to_the_last_sample_of_each_process_within_it():
    found = window(SAMPLES, 1.0, 6.0)
    assert (found.records, found.payload_bytes, found.events) == (600 + 150, 7500, 300 + 75)
    assert found.cpu_seconds == 2.0 + 1.0
    assert found.records_per_second == 600 / 4 + 150 / 3
    assert found.records_per_cpu_second == 250.0
    assert found.mb_per_cpu_second == 0.0025


def test_delays_are_those_of_the_records_between_the_samples():
    assert window(SAMPLES, 1.0, 6.0).delays_ms == (1.0, 2.0, 3.0, 4.0)


def test_a_process_with_one_sample_is_not_counted():
    assert window(SAMPLES, 3.0, 5.0).records == 400 + 100
    assert window([*SAMPLES, sample(4.0, 3, 1000, 1.0)], 3.0, 5.0).records == 400 + 100


def test_a_window_without_two_samples_is_an_error():
    with pytest.raises(ValueError, match=r"two samples in 0\.5 s"):
        window(SAMPLES, 3.0, 3.5)
