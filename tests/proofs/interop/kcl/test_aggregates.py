from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from proofs.interop.clients.transcript import ReportedRecord, Transcript
from proofs.interop.kcl.aggregates import RECORDS, User, compare, user_of

PUT = {
    ("s-0", "5", 0): User("a", "17", b"1"),
    ("s-0", "5", 1): User("b", None, b""),
    ("s-1", "6", 0): User("c", "18", b"3"),
}
READ = [
    ReportedRecord("s-0", "5", "a", b"1", "0", "17"),
    ReportedRecord("s-0", "5", "b", b"", "1"),
    ReportedRecord("s-1", "6", "c", b"3"),  # put alone: Kinesis does not return its explicit hash key
]


def test_what_was_put_and_read_once_passes():
    found = compare(PUT, READ, 4)
    assert found.passed
    assert (found.records, found.aggregates, found.explicit_hash_keys, found.repeated) == (3, 1, 1, 4)


@pytest.mark.parametrize(
    ("read", "figure"),
    [
        (READ[:2], "lost"),
        ([*READ, READ[1]], "duplicated"),
        ([*READ, changed(READ[0], sub="2", data=b"never put")], "unexpected"),
        ([changed(READ[0], key="x"), *READ[1:]], "wrong"),
        ([changed(READ[0], data=b"x"), *READ[1:]], "wrong"),
        ([changed(READ[0], explicit=None), READ[1], changed(READ[2], explicit="18")], "wrong"),
    ],
)
def test_each_difference_is_a_failure(read, figure):
    found = compare(PUT, read)
    assert getattr(found, figure) > 0
    assert not found.passed


def test_only_what_the_producer_sent_again_may_be_read_twice():
    read = [
        *READ,
        changed(READ[0], shard="s-2", sequence="4"),
    ]  # where it arrived first
    found = compare(PUT, read, repeated=1)
    assert (found.read_twice, found.unexpected) == (1, 0)
    assert found.passed
    assert not compare(PUT, read, repeated=0).passed


def test_without_aggregates_or_explicit_hash_keys_nothing_is_shown():
    found = compare(PUT, READ)
    assert not replace(found, aggregates=0).passed
    assert not replace(found, explicit_hash_keys=0).passed


def test_the_program_prints_the_members_of_user_records():
    transcript = Transcript()
    transcript.add_line(b'{"record":{"shard":"s","sequence":"1","sub":"3","key":"k","explicit":null,"data":"YQ=="}}')
    assert transcript.records == [ReportedRecord("s", "1", "k", b"a", "3")]


def test_the_user_records_differ_in_what_an_aggregate_keeps():
    users = [user_of(number) for number in range(RECORDS)]
    assert {user.explicit is None for user in users} == {True, False}
    assert all(user.explicit is None or 0 <= int(user.explicit) < 2**128 for user in users)
    assert {bool(user.data) for user in users} == {True, False}
