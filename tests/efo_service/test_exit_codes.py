from __future__ import annotations

import pytest

from efo.errors import (
    ConfigurationError,
    LeaseStoreUnavailableError,
    NotHttp2Error,
    ProxyError,
    ThrottledError,
    TlsError,
    TransportError,
    WrongEndpointError,
)
from efo_service.errors import DrainDeadlineError, UnavailableError
from efo_service.exit_codes import Exit, code_of, report


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), Exit.CONFIGURATION),
        (DrainDeadlineError("x"), Exit.DRAIN_DEADLINE),
        (UnavailableError("x"), Exit.UNAVAILABLE),
        (TransportError("x"), Exit.UNAVAILABLE),
        (WrongEndpointError("x"), Exit.CONFIGURATION),
        (NotHttp2Error("x"), Exit.CONFIGURATION),
        (TlsError("x"), Exit.CONFIGURATION),
        (ProxyError("x"), Exit.CONFIGURATION),
        (LeaseStoreUnavailableError("x"), Exit.UNAVAILABLE),
        (ThrottledError("LimitExceededException", "x"), Exit.UNAVAILABLE),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
        (ValueError("x"), Exit.INTERNAL),
        (ExceptionGroup("", [ConfigurationError("x")]), Exit.CONFIGURATION),
        (ExceptionGroup("", [UnavailableError("x"), ExceptionGroup("", [ValueError("x")])]), Exit.INTERNAL),
    ],
)
def test_each_error_has_its_exit_code(error, code):
    assert code_of(error) is code


def test_an_expected_error_is_one_message_without_a_traceback(capsys):
    assert report(ExceptionGroup("", [UnavailableError("port [8080] is taken")])) == Exit.UNAVAILABLE
    assert capsys.readouterr().err == "efo: port [8080] is taken\n"


def test_a_repeated_message_is_printed_once(capsys):
    report(ExceptionGroup("", [UnavailableError("no port"), UnavailableError("no port")]))
    assert capsys.readouterr().err == "efo: no port\n"


def test_an_internal_error_shows_its_traceback(capsys):
    with pytest.raises(ValueError, match="surprise") as caught:
        int("surprise")
    assert report(caught.value) == Exit.INTERNAL
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "\nValueError\n" in shown
    assert "invalid literal" not in shown
    assert "defect" in shown


def test_a_package_that_an_image_is_without_is_a_sentence_and_no_defect(capsys):
    missing = ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow")
    wrapped = ImportError("Cannot import module")  # as cyclopts does
    wrapped.__cause__ = missing
    for error in (missing, wrapped, ExceptionGroup("", [missing])):
        assert report(error) == Exit.UNAVAILABLE
        shown = capsys.readouterr().err
        assert shown.startswith("efo: pyarrow is not installed: ")
        assert "Traceback" not in shown
    assert code_of(ModuleNotFoundError("No module named 'efo.x'", name="efo.x")) is Exit.INTERNAL
