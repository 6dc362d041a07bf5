"""Settings are checked by their definitions, and documented from them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import pytest

from efo.definitions import check_settings, documented, setting
from efo.errors import ConfigurationError


@documented
@dataclass(frozen=True, kw_only=True)
class Options:
    """Options."""

    wait_seconds: float = setting(1.0, "How long.", above=0, most=5)
    share: float = setting(1.0, "How much.", above=0, infinite=True)
    count: int | None = setting(None, "How many.", least=2, most=9)
    is_on: bool = setting(False, "Whether it is on.")
    mode: str | None = setting(None, "How it reads.", choices=("one", "two"))
    tags: dict[str, str] = setting({}, "Its tags.")
    password: str = setting("", "Its password.", is_secret=True)

    def __post_init__(self) -> None:
        check_settings(self)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wait_seconds": 0}, "wait_seconds=0: expected a number above 0 seconds"),
        ({"wait_seconds": 6.0}, "wait_seconds=6.0: expected at most 5 seconds"),
        ({"wait_seconds": inf}, "wait_seconds=inf"),
        ({"wait_seconds": None}, "wait_seconds=None"),
        ({"share": "x"}, "share='x'"),
        ({"count": 1}, "count=1: expected 2 to 9, or None"),
        ({"count": 10}, "count=10: expected 2 to 9, or None"),
        ({"count": True}, "count=True"),
        ({"is_on": 1}, "is_on=1: expected True or False"),
        ({"mode": "three"}, "mode='three': expected 'one' or 'two', or None"),
    ],
)
def test_a_value_is_checked_by_its_definition(values, message):
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        Options(**values)


def test_the_bounds_themselves_and_none_are_accepted():
    assert Options(wait_seconds=5, share=inf, count=2, mode="one").wait_seconds == 5
    assert Options(wait_seconds=0.001, count=None, mode=None).count is None


def test_a_dict_is_of_one_value_and_takes_no_part_in_the_hash():
    one, other = Options(), Options(tags={"a": "b"})
    one.tags["x"] = "y"
    assert Options().tags == {}
    assert hash(other) == hash(Options())


def test_a_secret_is_not_shown():
    assert "hidden" not in repr(Options(password="hidden"))


def test_the_docstring_has_each_setting_with_its_default():
    assert Options.__doc__ is not None
    assert "`wait_seconds` (1.0): How long." in Options.__doc__
