"""The parsers of untrusted bytes, tested with the targets of `make fuzz` and inputs from Hypothesis.

The properties are in proofs/fuzz/.
"""

import pytest
from hypothesis import given, strategies as st

from efo.protocol import aggregation, deaggregation, eventstream, messages
from proofs.fuzz import aggregates, events, frames

MODULES = {"frames": frames, "events": events, "aggregates": aggregates}


def mutated(module):
    """Return a strategy: the module's seeds with some bytes replaced, inserted or removed, or random bytes."""
    edit = st.tuples(st.integers(0, 400), st.integers(0, 2), st.binary(max_size=4))

    def apply(seed, edits):
        data = bytearray(seed)
        for at, removed, inserted in edits:
            at %= len(data) + 1  # noqa: PLW2901 - limit to the length of the data
            data[at : at + removed] = inserted
        return bytes(data)

    return st.builds(apply, st.sampled_from(list(module.seeds())), st.lists(edit, max_size=6)) | st.binary(max_size=120)


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_the_seeds_have_the_properties(module):
    seeds = list(module.seeds())
    assert len(seeds) > 10
    for seed in seeds:
        module.check(seed)


@given(mutated(frames))
def test_mutated_frames_have_the_properties(data):
    frames.check(data)


@given(mutated(events))
def test_mutated_events_have_the_properties(data):
    events.check(data)


@given(mutated(aggregates))
def test_mutated_aggregates_have_the_properties(data):
    aggregates.check(data)


class TestDefectsAreFound:
    """Each property can fail: the seeds alone find a parser with this defect."""

    def failures(self, module):
        errors = []
        for seed in module.seeds():
            try:
                module.check(seed)
            except Exception as error:  # noqa: BLE001 - any exception is a failure
                errors.append(str(error))
        return errors

    def test_a_decoder_without_checks_is_found(self, monkeypatch):
        monkeypatch.setattr(eventstream, "_check_prelude", lambda *_arguments: None)
        monkeypatch.setattr(eventstream, "_check_message", lambda _frame: None)
        assert any("flipped bit" in message for message in self.failures(frames))

    def test_a_decoder_that_changes_header_values_is_found(self, monkeypatch):
        def decode_value(kind, data, at):
            value, at = original(kind, data, at)
            return (value.upper() if isinstance(value, str) else value), at

        original = eventstream._decode_value
        monkeypatch.setattr(eventstream, "_decode_value", decode_value)
        assert self.failures(frames)

    def test_a_parser_that_accepts_an_event_without_a_continuation_is_found(self, monkeypatch):
        monkeypatch.setattr(messages, "_parse_event", messages._EVENT.decode)
        assert any("R2" in message for message in self.failures(events))

    def test_a_parser_that_leaks_a_decode_error_is_found(self, monkeypatch):
        monkeypatch.setattr(messages, "DECODE_ERRORS", (RecursionError,))
        assert self.failures(events)

    def test_a_parser_that_ignores_the_hash_key_range_is_found(self, monkeypatch):
        monkeypatch.setattr(aggregation.HashRangeFilter, "keeps", lambda _filter, keys: [True for _ in keys])
        assert any("expected" in message for message in self.failures(aggregates))

    def test_a_parser_that_ignores_explicit_hash_keys_and_tags_is_found(self, monkeypatch):
        monkeypatch.setattr(deaggregation, "_full_records", deaggregation._plain_records)
        assert any("expected" in message for message in self.failures(aggregates))

    def test_a_parser_that_accepts_every_partition_key_is_found(self, monkeypatch):
        monkeypatch.setattr(deaggregation, "MAX_PARTITION_KEY", 1000)
        assert any("damaged" in message for message in self.failures(aggregates))

    def test_a_parser_that_numbers_each_chunk_from_zero_is_found(self, monkeypatch):
        original = deaggregation._user_records
        monkeypatch.setattr(deaggregation, "_user_records", lambda *arguments: original(*arguments[:3], 0))
        assert any("expected" in message for message in self.failures(aggregates))
