"""The readers of foreign bytes, fed by Hypothesis with what `make fuzz` feeds them: see fuzz/ for what must hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from efo.protocol import aggregation, eventstream, messages
from proofs.fuzz import aggregates, events, frames

MODULES = {"frames": frames, "events": events, "aggregates": aggregates}


def mutated(module):
    """Its seeds with some bytes replaced, inserted or taken out; and any bytes at all."""
    edit = st.tuples(st.integers(0, 400), st.integers(0, 2), st.binary(max_size=4))

    def apply(seed, edits):
        data = bytearray(seed)
        for at, taken, put in edits:
            at %= len(data) + 1  # noqa: PLW2901 - to a place that there is
            data[at : at + taken] = put
        return bytes(data)

    return st.builds(apply, st.sampled_from(list(module.seeds())), st.lists(edit, max_size=6)) | st.binary(max_size=120)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_the_seeds_hold(module):
    seeds = list(module.seeds())
    assert len(seeds) > 10
    for seed in seeds:
        module.check(seed)


@given(mutated(frames))
def test_any_frames(data):
    frames.check(data)


@given(mutated(events))
def test_any_events(data):
    events.check(data)


@given(mutated(aggregates))
def test_any_aggregates(data):
    aggregates.check(data)


class TestWhatBreaksAProperty:
    """Each property can fail: a reader with a fault of this kind is found by the seeds alone."""

    def broken(self, module):
        found = []
        for seed in module.seeds():
            try:
                module.check(seed)
            except Exception as error:  # noqa: BLE001 - whatever escapes is a failure
                found.append(str(error))
        return found

    def test_a_decoder_that_does_not_check(self, monkeypatch):
        monkeypatch.setattr(eventstream, "crc32", lambda _data: 0)
        monkeypatch.setattr(eventstream, "_check_prelude", lambda *_arguments: None)
        monkeypatch.setattr(eventstream, "_decode", lambda frame: eventstream.Message({}, frame[12:-4], len(frame)))
        assert any("flipped bit" in said for said in self.broken(frames))

    def test_a_decoder_that_reads_a_header_wrongly(self, monkeypatch):
        def decode_value(kind, data, at):
            value, at = right(kind, data, at)
            return (value.upper() if isinstance(value, str) else value), at

        right = eventstream._decode_value
        monkeypatch.setattr(eventstream, "_decode_value", decode_value)
        assert self.broken(frames)

    def test_a_parser_that_takes_an_event_without_a_continuation(self, monkeypatch):
        monkeypatch.setattr(messages, "_parse_event", messages._EVENT.decode)
        assert any("R2" in said for said in self.broken(events))

    def test_a_parser_that_lets_a_foreign_error_through(self, monkeypatch):
        monkeypatch.setattr(messages, "_UNREADABLE", (RecursionError,))
        assert self.broken(events)

    def test_a_parser_that_does_not_look_at_the_shards_range(self, monkeypatch):
        monkeypatch.setattr(aggregation, "hash_key", lambda *_keys: 0)
        assert self.broken(aggregates)
