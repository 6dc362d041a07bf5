"""What an operator does about an error."""

from efo.protocol.remedies import REMEDIES, remedy


def test_a_remedy_is_that_of_the_type_of_an_error_and_others_have_none():
    assert {name: remedy(name) for name in REMEDIES} == REMEDIES
    assert remedy("no such type") == ""
