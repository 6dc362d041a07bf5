import mmap
import os
import threading

import trio

from proofs.soak.chart import draw
from proofs.soak.samples import COUNTS, lag_of, parse_threads, read_sample
from proofs.soak.service import Counter
from proofs.soak.slopes import ALLOWANCES, growth

PUTS = [(10.0, 100), (20.0, 200), (30.0, 200), (40.0, 300)]


def test_the_lag_is_the_age_of_the_oldest_record_that_the_log_does_not_hold():
    assert lag_of(PUTS, 0, 50.0) == 40.0
    assert lag_of(PUTS, 99, 50.0) == 40.0
    assert lag_of(PUTS, 100, 50.0) == 30.0
    assert lag_of(PUTS, 200, 50.0) == 10.0
    assert lag_of(PUTS, 300, 50.0) == 0.0
    assert lag_of(PUTS, 301, 50.0) == 0.0  # the log was read after the server reported
    assert lag_of([], 0, 50.0) == 0.0


def test_threads_are_read_from_the_status_of_the_process():
    assert parse_threads("Name:\tx\nVmRSS:\t1 kB\nThreads:\t12\nSigQ:\t0/1\n") == 12


def test_a_sample_holds_what_a_process_uses(tmp_path):
    tasks = tmp_path / "tasks"
    tasks.write_bytes(COUNTS.pack(7, 99))
    sample = read_sample(os.getpid(), tasks, at=1.0, lag=0.5)
    with tasks.open("rb"):
        more = read_sample(os.getpid(), tasks, at=1.0, lag=0.5)
    assert (sample.at, sample.tasks, sample.blocks, sample.lag) == (1.0, 7, 99, 0.5)
    assert sample.threads >= threading.active_count()
    assert sample.rss > 1
    assert more.descriptors == sample.descriptors + 1


def test_tasks_are_counted_in_shared_memory(tmp_path):
    path = tmp_path / "tasks"
    path.write_bytes(bytes(COUNTS.size))

    def count():
        return COUNTS.unpack(path.read_bytes())[0]

    async def main():
        before = count()
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(trio.sleep_forever)
            assert count() == before + 5
            nursery.cancel_scope.cancel()
        assert count() == before
        await trio.sleep(0.001)
        assert COUNTS.unpack(path.read_bytes())[1] > 10_000

    with path.open("r+b") as file, mmap.mmap(file.fileno(), COUNTS.size) as memory:
        trio.run(main, instruments=[Counter(memory)])
        assert count() == 0


def test_the_chart_has_a_panel_for_each_measurement_and_says_what_has_grown():
    series = {name: [(float(at), float(at if name == "rss" else 1)) for at in range(600)] for name in ALLOWANCES}
    growths = {name: growth(samples, ALLOWANCES[name]) for name, samples in series.items()}
    svg = draw(series, growths)
    assert svg.count("<polyline") == 2 * len(ALLOWANCES)
    assert "rss MB: +399.00 over the fitted time, allowed 51.98" in svg
    assert "tasks: +0.00 over" in svg
    assert svg.count("#b91c1c") == 2  # the title and the line of rss
