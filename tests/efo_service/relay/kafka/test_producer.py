"""Keys get the partitions that Java's producer chooses."""

from __future__ import annotations

import struct

from hypothesis import example, given, strategies as st

from efo_service.relay.kafka.producer import murmur2, partitions


def reference_murmur2(data: bytes) -> int:
    """Return the hash of one key, with the same steps as Kafka's Utils.murmur2."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        mixed = k * m & mask
        mixed = (mixed ^ mixed >> 24) * m & mask
        h = (h * m & mask) ^ mixed
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_hashes_equal_those_in_kafkas_own_test():
    """The values are from Kafka's UtilsTest.testMurmur2, as signed numbers."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert murmur2(list(known)).tolist() == [value & 0xFFFFFFFF for value in known.values()]


@given(st.lists(st.binary(max_size=40)), st.integers(1, 1000))
@example([], 1)
@example([b"", b"\xff" * 1024, b""], 7)
def test_many_keys_are_hashed_like_each_key_alone(keys, count):
    assert murmur2(keys).tolist() == [reference_murmur2(key) for key in keys]
    assert partitions(keys, count).tolist() == [(reference_murmur2(key) & 0x7FFFFFFF) % count for key in keys]
