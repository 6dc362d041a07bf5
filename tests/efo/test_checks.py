"""Arguments and settings that are wrong are rejected with what is expected."""

from __future__ import annotations

import functools
import inspect
from math import inf, nan

import pytest

from efo.checks import check_async, check_callable, check_count, check_number, check_text, is_async, name_of, shown
from efo.consumer.handlers.batched import in_thread
from efo.errors import ConfigurationError, KmsError, error_type_of


async def handle(batch):
    """Handle a batch."""


def blocking(batch):
    """Handle a batch, but not as an async function."""


class Processor:
    async def __call__(self, batch): ...

    async def method(self, batch): ...

    def blocking(self, batch): ...


def wrapped(function):
    @functools.wraps(function)
    def call(*args):
        return function(*args)

    return call


ASYNC = [
    handle,
    functools.partial(handle),
    wrapped(handle),
    Processor(),
    Processor().method,
    functools.partial(Processor()),
    in_thread(blocking),
]
NOT_ASYNC = [
    blocking,
    print,
    Processor().blocking,
    lambda batch: handle(batch) or 1,
    functools.partial(blocking),
]


@pytest.mark.parametrize("function", ASYNC, ids=name_of)
def test_an_async_function_is_accepted_in_every_form(function):
    assert is_async(function)
    check_async(function, "handler", "batch")


@pytest.mark.parametrize("function", NOT_ASYNC, ids=name_of)
def test_a_function_that_is_not_async_is_rejected_with_the_way_to_wrap_it(function):
    with pytest.raises(ConfigurationError, match=r"handler .* is not an async function.*efo\.in_thread"):
        check_async(function, "handler", "batch")


async def async_generator(batch):
    yield batch


@pytest.mark.parametrize(
    ("function", "problem"), [(Processor, "is a class: pass a function, or an instance"), (async_generator, "yield")]
)
def test_a_class_and_a_generator_are_rejected_with_what_is_wrong_about_them(function, problem):
    with pytest.raises(ConfigurationError, match=problem):
        check_async(function, "handler", "batch")


def test_the_parameters_are_those_of_a_wrapper_that_has_its_own():
    async def inner(batch, connection): ...

    @functools.wraps(inner)
    async def outer(batch):
        await inner(batch, None)

    check_async(outer, "handler", "batch")
    with pytest.raises(ConfigurationError, match="cannot be called"):
        check_async(outer, "handler", "record", "batch")


def test_an_async_wrapper_of_an_ordinary_function_is_async():
    @functools.wraps(blocking)
    async def outer(batch): ...

    check_async(outer, "handler", "batch")


@pytest.mark.parametrize("value", [None, "handle", 7])
def test_a_value_that_cannot_be_called_is_rejected(value):
    with pytest.raises(ConfigurationError, match="expected an async function of \\(batch\\)"):
        check_async(value, "handler", "batch")


@pytest.mark.parametrize(
    "accepts",
    [lambda: None, lambda _record, _batch, _more: None, lambda *, _batch: None],
    ids=["none", "three", "keyword"],
)
def test_a_function_of_other_parameters_is_rejected(accepts):
    async def function(*args, **kwargs): ...

    function.__signature__ = inspect.signature(accepts)
    with pytest.raises(ConfigurationError, match=r"cannot be called with \(record, batch\)"):
        check_async(function, "record_handler", "record", "batch")


class Unshowable:
    def __repr__(self):
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("value", "text"), [("a", "'a'"), ("a" * 300, "'" + "a" * 199 + "..."), (Unshowable(), "<Unshowable>")]
)
def test_a_message_shows_any_value_within_limits(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("value", [0, -1, 2.0, "4", True, None, 11])
def test_a_count_is_an_integer_from_1_to_its_maximum(value):
    with pytest.raises(ConfigurationError, match=r"slots=.*: expected 1 to 10 of them"):
        check_count("slots", value, maximum=10, unit=" of them")


@pytest.mark.parametrize("value", [-1, nan, inf, "4", True, None])
def test_a_number_is_finite_and_not_negative(value):
    with pytest.raises(ConfigurationError, match=r"delay=.*: expected 0 or more seconds"):
        check_number("delay", value, zero=True, unit=" seconds")


def test_zero_and_infinity_are_numbers_only_where_they_are_allowed():
    check_number("delay", 0, zero=True)
    check_number("delay", inf, infinite=True)
    with pytest.raises(ConfigurationError, match="expected a number above 0"):
        check_number("delay", 0)


@pytest.mark.parametrize(("value", "message"), [("", "name is empty"), (5, "name=5"), (b"x", "name=<bytes>")])
def test_a_text_is_not_empty(value, message):
    with pytest.raises(ConfigurationError, match=f"{message}: expected the name of a stream"):
        check_text("name", value, "the name of a stream")


@pytest.mark.parametrize("value", [5, handle, Processor, async_generator])
def test_an_ordinary_function_is_neither_a_value_nor_async(value):
    with pytest.raises(ConfigurationError, match=r"observer=.*: expected a function of an event"):
        check_callable("observer", value, "a function of an event", "event")


def test_an_ordinary_function_accepts_the_arguments():
    with pytest.raises(ConfigurationError, match=r"cannot be called with \(event\)"):
        check_callable("observer", lambda: None, "a function of an event", "event")


def test_the_type_of_an_error_is_short_whatever_its_class_is_named():
    assert error_type_of(KmsError("KMSDisabledException", "off")) == "kms"
    assert error_type_of(ValueError("secret")) == "ValueError"
    assert len(error_type_of(type("E" * 60_000, (Exception,), {})())) == 128
