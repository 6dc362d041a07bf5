"""What is drawn fits into a terminal, without a cut identifier."""

from __future__ import annotations

from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from efo_service.top.drawing import draw, draw_within, format_seconds, header
from efo_service.top.view import view
from tests.efo_service.top.samples import sample, shard


def drawn(content, console: Console) -> list[str]:
    console.print(content)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def terminal(width: int, height: int) -> Console:
    return Console(file=StringIO(), width=width, height=height, highlight=False, markup=False)


def many(count: int, problems=()):
    return view(sample(0.0, *(shard(f"shardId-{number:012}") for number in range(count)), problems=problems))


def test_the_header_is_about_the_whole_service():
    shown = view(sample(0.0, shard("a"), shard("b", condition="frozen"), problems=["b: frozen"]))
    assert header(shown) == "billing, worker w-1: not ready; lease table known; shards: 1 current, 1 frozen"
    supervisor = sample(0.0, workers=({}, {}), worker=None)
    assert header(view(supervisor)) == "billing, 2 workers: ready; lease table known; shards: none"


def test_problems_come_before_the_shards_and_brackets_are_no_markup():
    lines = drawn(draw(view(sample(0.0, shard("a[0]", 75.0), problems=["a[0]: frozen"]))), terminal(200, 50))
    assert lines[1] == "! a[0]: frozen"
    assert lines[3].split()[:4] == ["shard", "condition", "subscription", "lag"]
    assert lines[4].split() == ["a[0]", "current", "live", "1m15s", "-", "-", "1.5s", "0.0s"]


@pytest.mark.parametrize(("state", "shown"), [("live", "polled"), ("waiting", "polled, waiting")])
def test_a_polled_shard_has_no_subscription_but_is_polled(state, shown):
    polled = replace(shard("a"), subscription=state, read_mode="polling")
    row = drawn(draw(view(sample(0.0, polled))), terminal(200, 50))[-1]
    assert [part.strip() for part in row.split("  ") if part][:3] == ["a", "current", shown]


def test_the_shards_of_several_workers_are_reported_with_their_workers():
    shown = view(sample(0.0, shard("a", worker="w-2"), workers=({}, {}), worker=None))
    *_, titles, row = drawn(draw(shown), terminal(200, 50))
    assert titles.split()[:2] == ["shard", "worker"]
    assert row.split()[:3] == ["a", "w-2", "current"]


@pytest.mark.parametrize("height", [12, 24])
def test_a_terminal_with_few_lines_shows_the_first_shards_and_counts_the_others(height):
    console = terminal(200, height)
    lines = drawn(draw_within(many(30), console), console)
    assert len(lines) == height - 1
    shown = [line for line in lines if line.startswith("shardId-")]
    assert len(shown) == height - 5
    assert lines[-1] == f"{30 - len(shown)} more shards not shown"


def test_a_narrow_terminal_shows_as_many_shards_as_fit():
    console = terminal(50, 24)
    lines = drawn(draw_within(many(30), console), console)
    assert len(lines) <= 23
    assert lines[-1].endswith(" more shards not shown")


def test_a_terminal_without_a_line_for_shards_counts_them():
    console = terminal(200, 5)
    assert drawn(draw_within(many(30), console), console)[-1] == "30 shards not shown"


def test_a_terminal_with_enough_lines_shows_every_shard():
    console = terminal(200, 14)
    lines = drawn(draw_within(many(10), console), console)
    assert len(lines) == 13
    assert lines[-1].startswith("shardId-000000000009")


def test_a_narrow_terminal_folds_identifiers_instead_of_cutting_them():
    console = terminal(60, 50)
    lines = drawn(draw_within(many(1), console), console)
    assert "…" not in "".join(lines)
    assert "shardId-000000000000" in "".join(line.split(" ")[0] for line in lines[1:])


def test_problems_leave_half_of_the_lines_to_the_shards():
    console = terminal(200, 21)
    lines = drawn(draw_within(many(30, [f"problem {number}" for number in range(30)]), console), console)
    assert len(lines) == 20
    assert sum(line.startswith("! problem") for line in lines) > 3
    assert any(line.startswith("! ") and line.endswith(" more problems") for line in lines)
    assert sum(line.startswith("shardId-") for line in lines) >= 8


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0.0s"), (59.94, "59.9s"), (60, "1m00s"), (3599.9, "59m59s"), (7384, "2h03m"), (90000, "1d01h")],
)
def test_a_duration_has_its_two_largest_units(seconds, text):
    assert format_seconds(seconds) == text
