"""What is shown of exceptions of other code: facts, and never a text that may quote a secret."""

import errno
import json
import socket
import sqlite3
import ssl
import tomllib

import botocore.exceptions
import h2.exceptions
import msgspec
import pymysql
import pytest

from efo.errors import TransportError
from efo.third_party_errors import chain_of, reason_of

SECRET = "hunter2"


def raised(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - the tests look at it
        return error
    raise AssertionError("it raised nothing")


class Item(msgspec.Struct, forbid_unknown_fields=True):
    number: int
    kind: str = msgspec.field(default="a")


def decode(text, kind=Item):
    return raised(msgspec.json.decode, text.encode(), type=kind)


def client_error(code, status=403):
    response = {"Error": {"Code": code, "Message": SECRET}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(response, "AssumeRole")


class CodedError(Exception):
    sqlstate = "28P01"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (TransportError("as it is"), "as it is"),
        (RuntimeError(SECRET), "RuntimeError"),
        (KeyError(SECRET), "KeyError"),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), "Connection reset by peer (ConnectionResetError)"),
        (OSError(SECRET), "OSError"),
        (socket.gaierror(-2, "Name or service not known"), "the name of the host was not resolved (gaierror)"),
        (ssl.SSLError(1, f"[SSL: {SECRET}] ({SECRET})"), None),
        (client_error("AccessDenied"), "AssumeRole was answered with AccessDenied (HTTP 403) (ClientError)"),
        (client_error(f"{SECRET} {SECRET}"), "AssumeRole was answered with an error (HTTP 403) (ClientError)"),
        (botocore.exceptions.EndpointConnectionError(endpoint_url=f"https://{SECRET}"), "EndpointConnectionError"),
        (
            botocore.exceptions.HTTPClientError(error=OSError(errno.EPIPE, "Broken pipe")),
            "Broken pipe (BrokenPipeError) (HTTPClientError)",
        ),
        (botocore.exceptions.ProfileNotFound(profile="dev"), "profile dev (ProfileNotFound)"),
        (decode('{"number": "x"}'), "Expected `int`, got `str` - at `$.number` (ValidationError)"),
        (decode('{"kind": "x"}'), "Object missing required field `number` (ValidationError)"),
        (decode('{"number": 1, "hunter2": 1}'), "ValidationError"),
        (decode('{"number": '), "Input data was truncated (DecodeError)"),
        (decode("{hunter2"), "JSON is malformed: object keys must be strings (byte 1) (DecodeError)"),
        (raised(json.loads, "hunter2"), "Expecting value: line 1 column 1 (char 0) (JSONDecodeError)"),
        (raised(tomllib.loads, "a = hunter2"), "Invalid value (at line 1, column 5) (TOMLDecodeError)"),
        (raised(b"\xff".decode), "UnicodeDecodeError"),
        (h2.exceptions.ProtocolError(SECRET), "ProtocolError"),
        (raised(sqlite3.connect(":memory:").execute, "SELECT hunter2"), "SQLITE_ERROR (OperationalError)"),
        (
            CodedError(f'password authentication failed for user "{SECRET}"'),
            "28P01, password authentication failed (CodedError)",
        ),
        (CodedError("connection to server at 10.0.0.1, port 5432 failed: Connection refused"), None),
        (pymysql.err.OperationalError(1045, f"Access denied for user '{SECRET}'"), "error 1045 (OperationalError)"),
        (Exception(f"Error 111 connecting to {SECRET}@h:6379. Connection refused."), "Connection refused (Exception)"),
        (
            Exception("invalid username-password pair or user is disabled."),
            "invalid username-password pair (Exception)",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_facts_are_shown_and_texts_are_not(error, shown):
    found = reason_of(error)
    if shown is not None:
        assert found == shown
    assert SECRET not in found
    assert SECRET not in chain_of(error)


def test_the_first_of_several_attempts_to_connect_says_why():
    error = OSError("all attempts to connect to x:1 failed")
    error.__cause__ = ExceptionGroup("", [OSError(errno.ECONNREFUSED, "Connection refused")])
    assert reason_of(error) == "Connection refused (OSError)"


def test_an_exception_whose_text_fails_is_shown_by_its_class():
    class BrokenError(Exception):
        def __str__(self):
            raise ValueError(SECRET)

    assert reason_of(BrokenError()) == "BrokenError"


def test_the_chain_names_classes_and_places():
    def fail():
        try:
            json.loads(SECRET)
        except ValueError as error:
            raise RuntimeError(SECRET) from error

    found = chain_of(raised(fail))
    assert found.startswith("RuntimeError at test_third_party_errors.py:")
    assert ", from JSONDecodeError at decoder.py:" in found
