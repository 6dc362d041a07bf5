from __future__ import annotations

from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from efo_service.object_store.url import StoreUrl, log_root, parse_url


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("s3://logs", ("s3", "logs", "")),
        ("s3://logs/", ("s3", "logs", "")),
        ("S3://logs/a/b/", ("s3", "logs", "a/b")),
        ("gs://my.logs/efo", ("gs", "my.logs", "efo")),
        ("az://container/team=x/efo", ("az", "container", "team=x/efo")),
    ],
)
def test_urls(text, parts) -> None:
    url = parse_url(text)
    assert (url.scheme, url.bucket, url.prefix) == parts
    assert parse_url(str(url)) == url


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://logs/efo", "is no URL of a log: expected s3://bucket/prefix"),
        ("S3a://logs/efo", "or a directory; s3a:// and s3n:// are Hadoop's names of s3://"),
        ("s3:///efo", "has no valid bucket"),
        ("s3://key:secret@logs/efo", "has no valid bucket"),
        ("s3://logs/a//b", "'' is not valid in a prefix"),
        ("s3://logs/../b", "'..' is not valid in a prefix"),
        ("s3://logs/a b", "'a b' is not valid in a prefix"),
        ("s3://logs/a?versionId=1", "is no URL of a log"),
        ("s3://key:a/b-secret@logs/efo", "has no valid bucket"),
        ("s3://key:a?b-secret@logs/efo", "is no URL of a log"),
        ("s3://logs/key:secret@x", "is not valid in a prefix"),
        ("az://logs/efo?sv=2024&sig=secret", "'az://logs/efo?...' is no URL of a log"),
        ("https://a.example/logs#secret", "'https://a.example/logs?...' is no URL of a log"),
    ],
)
def test_wrong_urls_are_refused_without_their_secrets(text, message) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url(text)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"secret_access_key": "x"}, "no option 'secret_access_key'.*Credentials come from the environment"),
        ({"use_emulator": True}, "s3:// has no option 'use_emulator'"),
        ({"region": 7}, "region is a text"),
        ({"allow_http": "yes"}, "allow_http is true or false"),
        ({"timeout_seconds": 0}, "timeout_seconds is a number above 0"),
        ({"timeout_seconds": True}, "timeout_seconds is a number above 0"),
        ({"timeout_seconds": 1e18}, "timeout_seconds is a number above 0, at most 3600"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds is a number above 0"),
        ({"endpoint": "localhost:9000"}, "endpoint is a URL such as"),
        ({"endpoint": "not a url"}, "endpoint is a URL such as"),
        ({"endpoint": "https://"}, "endpoint is a URL such as"),
        ({"endpoint": "https://x:port"}, "endpoint is a URL such as"),
        ({"endpoint": "https://x?a=1"}, "endpoint is a URL such as"),
        ({"endpoint": "http://x:9000"}, "endpoint is without TLS: use https://, or set allow_http"),
        ({"endpoint": "https://user:password@x"}, "endpoint has an '@': credentials come from the environment"),
    ],
)
def test_wrong_options_are_refused(options, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_url("s3://logs/efo", options)


def test_a_directory_is_no_url_and_has_no_options(tmp_path) -> None:
    assert log_root(str(tmp_path)) == tmp_path
    assert log_root("file:///var/log") == Path("/var/log")
    assert isinstance(log_root("gs://logs/efo", {"endpoint": "https://x"}), StoreUrl)
    with pytest.raises(ConfigurationError, match="are for a log on an object store"):
        log_root("/var/log", {"region": "eu-west-1"})
