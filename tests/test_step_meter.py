"""The meter of CPU time itself: it can fail, and it measures the right tasks."""

import time

import pytest
import trio

from tests.step_meter import BOUND, Step, StepMeter, slowest_step, slowness

HERE = (__name__,)


def burn(seconds):
    began = time.thread_time()
    while time.thread_time() < began + seconds:
        pass


async def measured(task, meter):
    with meter.measure():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(task, name="the task")


async def test_the_slowest_step_is_found_with_the_name_of_its_task():
    async def task():
        burn(0.002)
        await trio.lowlevel.checkpoint()
        burn(0.02)
        await trio.lowlevel.checkpoint()

    meter = StepMeter(HERE)
    await measured(task, meter)
    assert meter.slowest.seconds >= 0.02
    assert meter.slowest.task == "the task"
    assert meter.steps == 3


async def test_time_that_a_task_sleeps_is_no_cpu_time():
    async def task():
        time.sleep(0.06)  # noqa: ASYNC251 - what the meter must not count

    meter = StepMeter(HERE)
    await measured(task, meter)
    assert 0 < meter.slowest.seconds < BOUND


async def test_tasks_of_other_modules_and_of_the_fake_are_left_out():
    async def task():
        burn(0.001)

    for meter in (StepMeter(), StepMeter(HERE, but=HERE)):
        await measured(task, meter)
        assert meter.steps == 0


async def test_a_scenario_is_run_again_if_it_exceeds_the_bound_and_the_better_run_counts():
    runs = []

    async def scenario(meter):
        runs.append(meter)
        meter.steps, meter.slowest = 1, Step(BOUND * (3 - len(runs)), "task")

    assert await slowest_step(scenario, slowness=lambda: 1.0) == Step(BOUND, "task")
    assert len(runs) == 2


async def test_three_runs_beyond_the_bound_are_enough():
    runs = []

    async def scenario(meter):
        runs.append(meter)
        meter.steps, meter.slowest = 1, Step(BOUND * (6 - len(runs)), "task")

    assert await slowest_step(scenario, slowness=lambda: 1.0) == Step(BOUND * 3, "task")
    assert len(runs) == 3


async def test_a_slow_machine_has_as_much_more_time():
    async def scenario(meter):
        meter.steps, meter.slowest = 1, Step(BOUND * 4, "task")

    paces = iter([1.0, 4.0])  # it became slow during the run
    assert await slowest_step(scenario, slowness=lambda: next(paces)) == Step(BOUND, "task")


def test_no_machine_is_fast_enough_to_lower_the_bound():
    assert slowness() >= 1.0


async def test_a_scenario_without_a_step_proves_nothing():
    async def scenario(meter):
        with meter.measure():
            await trio.lowlevel.checkpoint()

    with pytest.raises(AssertionError, match="no step"):
        await slowest_step(scenario)
