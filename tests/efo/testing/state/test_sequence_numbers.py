from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from efo.testing.state.sequence_numbers import DIGITS, Sequence, shard_number_of

MILLIS = st.integers(min_value=0, max_value=2**48 - 1)


def test_the_layout_passes_the_validation_of_kcl():
    value = int(Sequence(77, 1_767_225_600_000).next(1_767_225_600_000))
    assert value.bit_length() == 186
    assert value >> 184 == 2
    assert value >> 4 & 0xFFFFFFFF == 77


@given(shard=st.integers(0, 2**32 - 1), clock=st.lists(MILLIS, min_size=1, max_size=50))
def test_sequence_numbers_increase_even_if_the_clock_goes_back(shard, clock):
    sequence = Sequence(shard, clock[0])
    numbers = [sequence.next(now) for now in clock]
    assert numbers == sorted(set(numbers))
    assert [int(n) for n in numbers] == sorted({int(n) for n in numbers})
    assert {len(n) for n in numbers} == {DIGITS}
    assert {shard_number_of(n) for n in numbers} == {shard}


@pytest.mark.parametrize("text", ["", "0", "1" * 56, "9" * 56, "x" * 56, "4" * 55, "4" * 57, "²" * 56])
def test_a_number_with_another_layout_has_no_shard(text):
    assert shard_number_of(text) is None
