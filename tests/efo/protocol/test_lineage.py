"""Which leases are missing, and which shard may start: the cases of KCL's tests, and more."""

from dataclasses import replace

import pytest

from efo.model import MAX_HASH_KEY, Checkpoint, ChildShard, HashKeyRange, Lease, Shard
from efo.protocol.lineage import (
    child_leases,
    has_lineage,
    is_startable,
    leases_to_create,
    parent_cycles,
    without_ancestors,
)

BEGUN = Checkpoint("7")


def shard(name, parents=(), *, start, end=None, hashes=(0, MAX_HASH_KEY)):
    parent, adjacent = (*parents, None, None)[:2]
    return Shard(name, HashKeyRange(*map(str, hashes)), str(start), end and str(end), parent, adjacent)


# 0 1  2 3   4    5        6 = 0+1, 7 = 2+3, 8 = 6+7; 5 is split into 9 and 10; 4, 8, 9, 10 are open
# 6    7     |   / \
#   8        4  9   10
GRAPH_A = [
    shard("0", start=11, end=102, hashes=(0, 99)),
    shard("1", start=11, end=102, hashes=(100, 199)),
    shard("2", start=11, end=102, hashes=(200, 299)),
    shard("3", start=11, end=102, hashes=(300, 399)),
    shard("4", start=11, hashes=(400, 499)),
    shard("5", start=11, end=205, hashes=(500, MAX_HASH_KEY)),
    shard("6", "01", start=103, end=205, hashes=(0, 199)),
    shard("7", "23", start=103, end=205, hashes=(200, 399)),
    shard("8", "67", start=206, hashes=(0, 399)),
    shard("9", "5", start=206, hashes=(500, 799)),
    Shard("10", HashKeyRange("800", str(MAX_HASH_KEY)), "206", None, None, "5"),  # it has only an adjacent parent
]
# Alternate merges and splits of the whole hash range: 0,1 > 2 > 3,4 > 5 > 6,7 > 8 > 9,10 (open).
GRAPH_B = [
    shard("0", start=10, end=19),
    shard("1", start=10, end=19),
    shard("2", "01", start=20, end=29),
    shard("3", "2", start=30, end=39),
    shard("4", "2", start=30, end=39),
    shard("5", "34", start=40, end=49),
    shard("6", "5", start=50, end=59),
    shard("7", "5", start=50, end=59),
    shard("8", "67", start=60, end=69),
    shard("9", "8", start=70),
    shard("10", "8", start=70),
]
# 0 > 4,5; 4 > 7,8; 5 > 9,10; 1; 2,3 > 6.
GRAPH_C = [
    shard("0", start=10, end=19),
    shard("1", start=10),
    shard("2", start=10, end=19),
    shard("3", start=10, end=19),
    shard("4", "0", start=20, end=29),
    shard("5", "0", start=20, end=29),
    shard("6", "23", start=20),
    *(shard(name, "4", start=30) for name in "78"),
    *(shard(name, "5", start=30) for name in ("9", "10")),
]
EVERY = [str(number) for number in range(11)]


def leases_of(shards, names, checkpoint=BEGUN):
    """Return leases for the shards of these names, by key."""
    parents = {shard.shard_id: shard.parents for shard in shards}
    return {name: Lease(name, checkpoint, parents=parents.get(name, ())) for name in names}


@pytest.mark.parametrize("checkpoint", [BEGUN, Checkpoint.LATEST, Checkpoint.TRIM_HORIZON], ids=str)
@pytest.mark.parametrize(
    ("shards", "initial", "present", "expected"),
    [
        pytest.param(GRAPH_A, Checkpoint.LATEST, "345", "26", id="G1", marks=pytest.mark.scenario("G1")),
        pytest.param(GRAPH_A, Checkpoint.LATEST, "457", "6", id="G2", marks=pytest.mark.scenario("G2")),
        pytest.param(
            GRAPH_A, Checkpoint.LATEST, "26", ["3", "4", "9", "10"], id="G3", marks=pytest.mark.scenario("G3")
        ),
        pytest.param(GRAPH_A, Checkpoint.LATEST, ["4", "9", "10"], "8", id="G4", marks=pytest.mark.scenario("G4")),
        pytest.param(GRAPH_C, Checkpoint.LATEST, ["9", "10"], "1678", id="G5", marks=pytest.mark.scenario("G5")),
        *(
            pytest.param(GRAPH_A, initial, present, "", id=f"{name}-{initial}", marks=pytest.mark.scenario(name))
            for name, present in [("G6", "4567"), ("G7", EVERY), ("G8", ["0", "1", "4", "7", "9", "10"])]
            for initial in (Checkpoint.LATEST, Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP)
        ),
        pytest.param(GRAPH_A, Checkpoint.LATEST, "", ["4", "8", "9", "10"], id="G9", marks=pytest.mark.scenario("G9")),
        *(
            pytest.param(GRAPH_A, initial, present, expected, id=f"{name}-{initial}", marks=pytest.mark.scenario(name))
            for name, present, expected in [
                ("G10", "", "012345"),
                ("G11", "345", "012"),
                ("G12", "457", "01"),
                ("G13", "26", "345"),
                ("G14", ["4", "9", "10"], "0123"),
            ]
            for initial in (Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP)
        ),
        pytest.param(GRAPH_B, Checkpoint.LATEST, "6", "7", id="G15-hole", marks=pytest.mark.scenario("G15")),
        pytest.param(GRAPH_B, Checkpoint.LATEST, "5", "", id="G15-ancestor", marks=pytest.mark.scenario("G15")),
        pytest.param(GRAPH_B, Checkpoint.LATEST, "012345", "", id="G15-ancestors", marks=pytest.mark.scenario("G15")),
        pytest.param(GRAPH_B, Checkpoint.LATEST, "", ["9", "10"], id="G15-latest", marks=pytest.mark.scenario("G15")),
        pytest.param(
            GRAPH_B, Checkpoint.TRIM_HORIZON, "", "01", id="G15-trim-horizon", marks=pytest.mark.scenario("G15")
        ),
        pytest.param([], Checkpoint.LATEST, "", "", id="G16-no-shards", marks=pytest.mark.scenario("G16")),
    ],
)
def test_the_leases_that_reach_every_open_shard_are_created(shards, initial, present, expected, checkpoint):
    missing = leases_to_create(shards, leases_of(shards, present, checkpoint), initial)
    assert sorted(lease.key for lease in missing) == sorted(expected)
    by_id = {shard.shard_id: shard for shard in shards}
    starts = [int(by_id[lease.key].starting_sequence_number) for lease in missing]
    assert starts == sorted(starts)
    for lease in missing:
        shard = by_id[lease.key]
        assert lease == Lease(shard.shard_id, initial, parents=shard.parents, hash_key_range=shard.hash_key_range)


@pytest.mark.scenario("G16")
def test_an_open_child_of_an_open_parent_gets_no_lease():
    """G16: the pages of the listing were read at different times. LATEST would skip the child's first records."""
    torn = [shard("p", start=1), shard("a", "p", start=5), shard("b", "p", start=5)]
    assert leases_to_create(torn, {}, Checkpoint.LATEST) == [
        Lease("p", Checkpoint.LATEST, hash_key_range=torn[0].hash_key_range)
    ]
    merge = [shard("p", start=1), shard("q", start=1, end=4), shard("m", "pq", start=5)]
    assert [lease.key for lease in leases_to_create(merge, {}, Checkpoint.LATEST)] == ["p", "q"]


@pytest.mark.parametrize("initial", [Checkpoint.LATEST, Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP], ids=str)
@pytest.mark.parametrize("checkpoint", [BEGUN, Checkpoint.LATEST, Checkpoint.SHARD_END], ids=str)
def test_an_open_shard_whose_child_has_a_lease_gets_no_lease(initial, checkpoint):
    """The listing is older than the leases. The parent's lease was deleted, or LATEST started with the children."""
    old = [shard("p", start=1), shard("q", start=1)]
    leases = {key: Lease(key, checkpoint, parents=("p",)) for key in "ab"}
    assert [lease.key for lease in leases_to_create(old, leases, initial)] == ["q"]


@pytest.mark.parametrize("initial", [Checkpoint.LATEST, Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP], ids=str)
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param(HashKeyRange("0", "99"), ["b"], id="overlaps-one-shard"),
        pytest.param(HashKeyRange("50", "150"), [], id="overlaps-both-shards"),
        pytest.param(HashKeyRange("50", "100"), [], id="ends-at-the-first-key-of-the-other"),
        pytest.param(HashKeyRange("99", "150"), [], id="begins-at-the-last-key-of-the-other"),
        pytest.param(None, [], id="unknown-range"),
    ],
)
def test_a_shard_that_shares_hash_keys_with_a_newer_lease_gets_no_lease(initial, keys, expected):
    """The listing is generations older than the lease. The leases in between were deleted, or LATEST left them out."""
    old = [shard("a", start=1, hashes=(0, 99)), shard("b", start=1, hashes=(100, MAX_HASH_KEY))]
    leases = {"x": Lease("x", BEGUN, parents=("m",), hash_key_range=keys)}
    assert [lease.key for lease in leases_to_create(old, leases, initial)] == expected
    later = [*old, shard("x", start=9)]
    assert "b" in [lease.key for lease in leases_to_create(later, leases, initial)]


FAMILY = [
    shard("a", start=1, end=9),
    shard("b", start=1, end=9),
    shard("m", "ab", start=10, end=19),
    shard("x", "m", start=20),
]


@pytest.mark.parametrize("initial", [Checkpoint.LATEST, Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP], ids=str)
@pytest.mark.parametrize(
    ("leases", "expected"),
    [
        pytest.param({"a": Checkpoint.SHARD_END, "b": Checkpoint.SHARD_END}, ["m"], id="closed-child"),
        pytest.param(
            {"a": Checkpoint.SHARD_END, "b": Checkpoint.SHARD_END, "m": Checkpoint.SHARD_END}, ["x"], id="open-child"
        ),
        pytest.param({"m": Checkpoint.SHARD_END}, ["x"], id="grandparent-leases-deleted"),
        pytest.param({"a": Checkpoint.SHARD_END, "b": BEGUN}, [], id="other-parent-will-create-it"),
    ],
)
@pytest.mark.scenario("G53")
def test_the_child_of_finished_parents_is_created_at_trim_horizon(leases, expected, initial):
    """A finished lease creates no more children, and the children may have been unknown at the end of the parent."""
    shards = leases_of(FAMILY, leases)
    leases = {key: Lease(key, checkpoint, parents=shards[key].parents) for key, checkpoint in leases.items()}
    missing = leases_to_create(FAMILY, leases, initial)
    assert [(lease.key, lease.checkpoint) for lease in missing] == [(key, Checkpoint.TRIM_HORIZON) for key in expected]


def test_a_parent_with_a_lease_counts_even_if_it_is_no_longer_listed():
    """It passed its retention. Its reader detects that, and LATEST must not skip the child."""
    child = shard("c", "p", start=10)
    assert leases_to_create([child], leases_of([child], "p"), Checkpoint.LATEST) == []
    finished = {"p": Lease("p", Checkpoint.SHARD_END)}
    (lease,) = leases_to_create([child], finished, Checkpoint.LATEST)
    assert (lease.key, lease.checkpoint) == ("c", Checkpoint.TRIM_HORIZON)


@pytest.mark.parametrize("initial", [Checkpoint.LATEST, Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP], ids=str)
@pytest.mark.scenario("G38")
def test_the_missing_lease_of_a_merged_shards_parent_is_created(initial):
    """A worker crashed between creating the leases of a and b. Then a ended and created m."""
    leases = {"a": Lease("a", Checkpoint.SHARD_END), "m": Lease("m", Checkpoint.TRIM_HORIZON, parents=("a", "b"))}
    (lease,) = leases_to_create(FAMILY, leases, initial)
    assert (lease.key, lease.checkpoint) == ("b", initial)
    begun = leases | {"m": Lease("m", BEGUN, parents=("a", "b"))}  # the lease of b was deleted
    assert leases_to_create(FAMILY, begun, initial) == []


def test_a_lineage_of_thousands_of_generations_does_not_recurse():
    chain = [shard("0", start=0, end=0)]
    chain += [shard(str(n), [str(n - 1)], start=n, end=n) for n in range(1, 5000)]
    chain += [shard("5000", ["4999"], start=5000)]
    assert [lease.key for lease in leases_to_create(chain, {}, Checkpoint.TRIM_HORIZON)] == ["0"]
    assert [lease.key for lease in leases_to_create(chain, {}, Checkpoint.LATEST)] == ["5000"]


RANGE = HashKeyRange("0", "9")


@pytest.mark.scenario("G37")
def test_the_end_of_a_split_creates_both_children_at_trim_horizon():
    children = [ChildShard("a", ("p",), RANGE), ChildShard("b", ("p",), RANGE)]
    leases = {"p": Lease("p", Checkpoint.LATEST, owner="ann", counter=9)}
    expected = [Lease(key, Checkpoint.TRIM_HORIZON, parents=("p",), hash_key_range=RANGE) for key in "ab"]
    assert child_leases(children, leases) == expected
    assert child_leases(children, leases | {"a": expected[0]}) == expected[1:]


@pytest.mark.scenario("G38")
def test_the_end_of_either_parent_creates_the_child_of_a_merge_once():
    child = ChildShard("m", ("a", "b"), RANGE)
    (lease,) = child_leases([child], {"a": Lease("a", BEGUN)})
    assert lease == Lease("m", Checkpoint.TRIM_HORIZON, parents=("a", "b"), hash_key_range=RANGE)
    assert child_leases([child], {"a": Lease("a", Checkpoint.SHARD_END), "b": Lease("b", BEGUN), "m": lease}) == []


@pytest.mark.parametrize(
    ("parents", "leases", "expected"),
    [
        pytest.param("", {}, True, id="no parents"),
        pytest.param("a", {"a": BEGUN}, False, id="G43: parent being read"),
        pytest.param("a", {"a": Checkpoint.SHARD_END}, True, id="parent finished"),
        pytest.param("a", {}, True, id="G42: parent gone, or not read because of LATEST"),
        pytest.param("ab", {}, True, id="both parents gone or not read"),
        pytest.param("ab", {"a": Checkpoint.SHARD_END, "b": Checkpoint.SHARD_END}, True, id="both parents finished"),
        pytest.param("ab", {"a": Checkpoint.SHARD_END, "b": BEGUN}, False, id="one parent being read"),
        pytest.param("ab", {"a": Checkpoint.SHARD_END}, False, id="the other parent's lease is late"),
        pytest.param("ab", {"a": BEGUN}, False, id="one being read, the other without a lease"),
    ],
)
@pytest.mark.scenario("G38", "G42", "G43")
def test_a_shard_starts_when_its_parents_are_finished_or_not_read(parents, leases, expected):
    leases = {key: Lease(key, checkpoint) for key, checkpoint in leases.items()}
    lease = Lease("c", Checkpoint.TRIM_HORIZON, parents=tuple(parents))
    assert is_startable(lease, leases | {"c": lease}) is expected


def test_a_shard_that_has_begun_starts_without_the_deleted_lease_of_a_parent():
    lease = Lease("c", BEGUN, parents=("a", "b"))
    assert is_startable(lease, {"a": Lease("a", Checkpoint.SHARD_END), "c": lease})


def test_a_finished_shard_does_not_start():
    lease = Lease("c", Checkpoint.SHARD_END)
    assert not is_startable(lease, {"c": lease})


@pytest.mark.parametrize("initial", [Checkpoint.LATEST, Checkpoint.TRIM_HORIZON, Checkpoint.AT_TIMESTAMP], ids=str)
@pytest.mark.parametrize(
    ("listed", "present"),
    [
        pytest.param("mx", {"a": Checkpoint.SHARD_END, "m": Checkpoint.TRIM_HORIZON}, id="the merge is listed"),
        pytest.param(
            "x", {"a": Checkpoint.SHARD_END, "m": Checkpoint.TRIM_HORIZON}, id="only the child of the merge is listed"
        ),
        pytest.param("mx", {"a": Checkpoint.SHARD_END}, id="the merge has no lease yet"),
    ],
)
@pytest.mark.scenario("G44")
def test_a_parent_that_no_longer_exists_gets_a_finished_lease(listed, present, initial):
    """G44: of two parents, one passed its retention before it had a lease."""
    leases = {
        key: Lease(key, checkpoint, parents=("a", "b") if key == "m" else ()) for key, checkpoint in present.items()
    }
    assert not is_startable(Lease("m", Checkpoint.TRIM_HORIZON, parents=("a", "b")), leases)
    missing = leases_to_create([shard for shard in FAMILY if shard.shard_id in listed], leases, initial)
    assert missing[0] == Lease("b", Checkpoint.SHARD_END, children=("m",))
    leases |= {lease.key: lease for lease in missing}
    assert is_startable(leases["m"], leases)


def test_a_parent_newer_than_the_listing_gets_no_finished_lease():
    """The listing is older than the merges. The lease of 6 is created when 0 and 1 end; those of 7 and 8 came earlier.

    The parents of 7 are open in that listing, but 7 is finished, so they get no leases.
    """
    leases = {
        **leases_of(GRAPH_A, "01"),
        "7": Lease("7", Checkpoint.SHARD_END, parents=("2", "3")),
        "8": Lease("8", Checkpoint.TRIM_HORIZON, parents=("6", "7"), hash_key_range=HashKeyRange("0", "399")),
    }
    before_the_merges = [replace(shard, ending_sequence_number=None) for shard in GRAPH_A[:6]]
    assert [lease.key for lease in leases_to_create(before_the_merges, leases, Checkpoint.TRIM_HORIZON)] == ["4", "5"]
    assert not is_startable(leases["8"], leases)


@pytest.mark.parametrize(
    ("open_then", "kept", "begun"),
    [
        ("0 1 2 3 4 5", "0 1 2 3 4 5 6 7 8 9 10", "0 1 2 3 4 5"),
        ("6 7 4 5", "4 5 6 7 8 9 10", "4 5 6 7"),
        ("8 4 9 10", "4 8 9 10", "4 8 9 10"),
        ("6 7", "4 5 6 7 8 9 10", "4 5 6 7"),  # 4 and 5 may not have been open, but are no ancestors
        ("unknown", "0 1 2 3 4 5 6 7 8 9 10", "0 1 2 3 4 5"),
    ],
)
def test_a_start_at_a_timestamp_leaves_out_shards_that_had_ended_by_then(open_then, kept, begun):
    rest = without_ancestors(GRAPH_A, open_then.split())
    assert {shard.shard_id for shard in rest} == set(kept.split())
    leases = leases_to_create(rest, {}, Checkpoint.AT_TIMESTAMP)
    assert {lease.key for lease in leases} == set(begun.split())
    assert {lease.checkpoint for lease in leases} == {Checkpoint.AT_TIMESTAMP}


class TestDamagedRows:
    @staticmethod
    def leases(**parents):
        return {key: Lease(key, Checkpoint.TRIM_HORIZON, parents=tuple(of)) for key, of in sorted(parents.items())}

    @pytest.mark.parametrize(
        ("parents", "cycles"),
        [
            ({"a": "", "b": "a", "c": "b", "d": "bc"}, []),
            ({"a": "a"}, [("a",)]),
            ({"a": "b", "b": "a"}, [("a", "b")]),
            ({"a": "b", "b": "c", "c": "b"}, [("b", "c")]),
            ({"a": "b", "b": "c", "c": "a", "d": "a", "e": "e"}, [("a", "b", "c"), ("e",)]),
            ({"a": "z"}, []),
        ],
    )
    def test_leases_that_are_their_own_ancestors_are_found_once(self, parents, cycles):
        leases = self.leases(**parents)
        assert parent_cycles(leases) == cycles
        for cycle in cycles:
            assert not any(is_startable(leases[key], leases) for key in cycle)

    def test_a_circle_with_a_finished_lease_ends(self):
        leases = self.leases(a="b", b="a")
        leases["a"] = replace(leases["a"], checkpoint=Checkpoint.SHARD_END)
        assert parent_cycles(leases) == []
        assert is_startable(leases["b"], leases)

    def test_a_long_line_of_ancestors_is_no_circle(self):
        leases = self.leases(**{f"s{n:05}": [f"s{n + 1:05}"] for n in range(5_000)})
        assert parent_cycles(leases) == []
        assert parent_cycles(leases | self.leases(s05000=["s04999"])) == [("s04999", "s05000")]

    def test_a_newer_lease_without_parents_does_not_keep_shards_from_their_leases(self):
        """It cannot be of a descendant: of another stream, or written by hand."""
        junk = Lease("9", Checkpoint.TRIM_HORIZON)
        created = leases_to_create([shard("1", start=1)], {"9": junk}, Checkpoint.TRIM_HORIZON)
        assert [lease.key for lease in created] == ["1"]
        child = replace(junk, parents=("8",))
        assert leases_to_create([shard("1", start=1)], {"9": child}, Checkpoint.TRIM_HORIZON) == []

    def test_a_lease_has_lineage_if_it_is_listed_or_a_parent_has_a_lease(self):
        leases = self.leases(a="", b="a", c="z", d="")
        assert [key for key in leases if has_lineage(leases[key], leases, {"d"})] == ["b", "d"]
