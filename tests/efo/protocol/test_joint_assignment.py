"""Joint assignment: several lease tables are balanced between workers as one."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, strategies as st

from efo.model import Checkpoint, Lease
from efo.protocol.assignment.view import AssignmentPlan
from efo.protocol.joint_assignment import JointAssignment


def lease(key: str, owner: str | None = None, **fields: object) -> Lease:
    return Lease(key, Checkpoint.TRIM_HORIZON, owner=owner, **fields)


class Worker:
    """A worker that reads several tables, and moves leases as its plans say."""

    def __init__(self, name: str, tables: dict[str, dict[str, Lease]], **options: object) -> None:
        self.name = name
        self._tables = tables
        self._options = options
        joint = JointAssignment()
        self.assignments = {table: joint.table(table) for table in tables}

    def step(self, table: str) -> int:
        """Plan for one table, and make its moves. Return their number."""
        rows = self._tables[table]
        plan = self.assignments[table].assign(list(rows.values()), self.name, **self._options)
        moves = (*plan.take, *plan.steal)
        for moved in moves:
            rows[moved.key] = replace(rows[moved.key], owner=self.name)
        return len(moves)

    @property
    def is_outdated(self) -> bool:
        return any(assignment.is_outdated for assignment in self.assignments.values())

    def held(self) -> int:
        return sum(row.owner == self.name for rows in self._tables.values() for row in rows.values())


def streams(count: int, shards: int = 1) -> dict[str, dict[str, Lease]]:
    return {f"s{n}": {f"shard-{m}": lease(f"shard-{m}") for m in range(shards)} for n in range(count)}


def test_a_plan_of_one_table_has_the_leases_of_that_table_as_they_were_given():
    tables = streams(3)
    worker = Worker("a", tables)
    plan = worker.assignments["s1"].assign(list(tables["s1"].values()), "a")
    assert plan.take == (tables["s1"]["shard-0"],)
    assert plan.steal == ()


def test_of_ten_streams_with_one_shard_each_two_workers_keep_five_each():
    tables = streams(10)
    workers = [Worker("a", tables), Worker("b", tables)]
    for table in tables:  # the first one is alone, and takes everything
        workers[0].step(table)
    assert workers[0].held() == 10
    for _ in range(20):
        for table in tables:
            for worker in workers:
                worker.step(table)
    assert [worker.held() for worker in workers] == [5, 5]


@given(
    shards=st.lists(st.integers(0, 4), min_size=1, max_size=8),
    names=st.permutations(["a", "b", "c"]).flatmap(lambda names: st.integers(1, 3).map(lambda n: names[:n])),
    data=st.data(),
)
def test_the_shares_of_all_workers_differ_by_one_at_most_once_nothing_moves(shards, names, data):
    tables = {f"s{n}": {f"shard-{m}": lease(f"shard-{m}") for m in range(count)} for n, count in enumerate(shards)}
    workers = [Worker(name, tables) for name in names]
    turns = [(worker, table) for worker in workers for table in tables]
    for _ in range(60):
        order = data.draw(st.permutations(turns))
        if not sum(worker.step(table) for worker, table in order) and not any(worker.is_outdated for worker in workers):
            break
    else:
        raise AssertionError("the moves do not end")
    held = [worker.held() for worker in workers]
    assert sum(held) == sum(shards)
    assert max(held) - min(held) <= 1


def test_the_most_leases_of_a_worker_are_counted_in_all_tables():
    tables = streams(4, shards=3)
    worker = Worker("a", tables, max_leases=5)
    for _ in range(3):
        for table in tables:
            worker.step(table)
    assert worker.held() == 5


def test_shards_of_the_same_id_in_two_tables_are_not_confused():
    tables = {"one": {"shard-0": lease("shard-0", "b")}, "two": {"shard-0": lease("shard-0")}}
    worker = Worker("a", tables)
    first = worker.assignments["one"].assign(list(tables["one"].values()), "a", expired={"shard-0"})
    second = worker.assignments["two"].assign(
        list(tables["two"].values()), "a", eligible=lambda row: row is not tables["two"]["shard-0"]
    )
    assert first.take == (tables["one"]["shard-0"],)
    assert second.take == ()


def test_a_child_goes_to_the_worker_that_read_its_parent_in_its_own_table():
    """Parents are qualified too: else the parent of the other table would decide."""
    parent = replace(lease("parent", "a"), checkpoint=Checkpoint.SHARD_END)
    tables = {
        "one": {"parent": parent, "child": lease("child", parents=("parent",)), "other": lease("other")},
        "two": {"parent": replace(parent, owner="b"), "kept": lease("kept", "b")},
    }
    worker = Worker("a", tables)
    worker.step("two")
    plan = worker.assignments["one"].assign(list(tables["one"].values()), "a")
    assert plan.take[0].key == "child"


def test_a_plan_is_outdated_when_another_table_changes_its_owners_and_not_by_a_renewal():
    tables = streams(2)
    worker = Worker("a", tables)
    one, two = worker.assignments.values()
    for table in ("s0", "s1", "s0", "s1", "s0"):
        worker.step(table)
    assert not one.is_outdated
    tables["s1"]["shard-0"] = replace(tables["s1"]["shard-0"], counter=7)
    worker.step("s1")
    assert not one.is_outdated
    tables["s1"]["shard-0"] = replace(tables["s1"]["shard-0"], owner="b")
    two.assign(list(tables["s1"].values()), "a")
    assert one.is_outdated


def test_a_plan_is_outdated_whatever_else_has_changed_since():
    tables = streams(3)
    worker = Worker("a", tables)
    for table in (*tables, *tables):
        worker.step(table)
    first, second, third = worker.assignments.values()
    assert first.assign(list(tables["s0"].values()), "a") == AssignmentPlan()
    assert not first.is_outdated
    tables["s1"]["new"] = lease("new")
    assert worker.step("s1") == 1  # it is seen, and taken
    assert first.is_outdated
    first.assign(list(tables["s0"].values()), "a")
    second.leave()
    tables["s2"]["shard-0"] = lease("shard-0", "b")
    third.observe(list(tables["s2"].values()), ())
    assert first.is_outdated


def test_a_table_without_a_plan_is_outdated():
    assert JointAssignment().table("s").is_outdated


def test_a_table_that_is_left_does_not_count_any_more():
    tables = streams(2)
    worker = Worker("a", tables, max_leases=1)
    worker.step("s0")
    worker.step("s1")
    worker.step("s0")
    assert worker.held() == 1
    left = next(table for table, rows in tables.items() if rows["shard-0"].owner == "a")
    (other,) = tables.keys() - {left}
    assert worker.step(other) == 0
    worker.assignments[left].leave()
    assert worker.assignments[other].is_outdated
    assert worker.step(other) == 1


def test_the_limit_of_a_scan_is_that_of_each_table():
    """A table that is not scanned for long, as its store hangs, must not use up the limit of the others."""
    tables = {"a": streams(1, shards=4)["s0"], "b": streams(1, shards=4)["s0"]}
    worker = Worker("w", tables, max_leases_per_scan=2)
    assert [worker.step("a"), worker.step("b"), worker.step("b"), worker.step("b"), worker.step("a")] == [2, 2, 2, 0, 2]


def test_former_leases_come_back_beyond_the_limit_of_a_scan():
    tables = {"a": {f"shard-{n}": lease(f"shard-{n}", "w") for n in range(3)}}
    worker = Worker("w", tables, max_leases_per_scan=1, previously_held={f"shard-{n}" for n in range(3)})
    assert worker.step("a") == 3


def test_a_table_that_takes_no_more_counts_with_what_is_still_held_and_none_of_it_is_planned():
    """Its free leases would else fill the plans of the others, and nobody would take them."""
    tables = streams(2, shards=4)
    worker = Worker("a", tables, max_leases=5)
    worker.step("s0")
    rows = tables["s0"]
    for key in ("shard-0", "shard-1", "shard-2"):  # released, as its stream is drained
        rows[key] = replace(rows[key], owner=None)
    worker.assignments["s0"].observe(list(rows.values()), {"shard-2"})
    assert not worker.assignments["s0"].is_outdated
    assert worker.step("s1") == 4
    assert worker.step("s1") == 0  # with the one that is still held, these are five


def test_leases_of_other_workers_in_a_table_that_takes_no_more_are_not_stolen():
    tables = {"s0": {f"shard-{n}": lease(f"shard-{n}", "b") for n in range(4)}, **streams(0)}
    worker = Worker("a", tables)
    worker.assignments["s0"].observe(list(tables["s0"].values()), ())
    tables["s1"] = {"shard-0": lease("shard-0", "b")}
    worker.assignments["s1"] = worker.assignments["s0"]._joint.table("s1")
    assert worker.step("s1") == 1
