"""Each secret of the settings may be in a file of its own."""

from __future__ import annotations

import pytest

from efo.errors import ConfigurationError
from efo_service.config.loading import load_all
from efo_service.config.secret_files import has_file
from efo_service.config.section import section_of, variable
from efo_service.config.settings import Settings

TOKEN = "0123456789abcdef0123"


@pytest.fixture
def loaded(tmp_path):
    """Return a function that loads a file with this text."""

    def load(text):
        (tmp_path / "efo.toml").write_text(f'[kinesis]\nstream = "orders"\n{text}')
        return load_all(tmp_path / "efo.toml")

    return load


def secrets(fields, *names):
    for key, field in fields.items():
        if (section := section_of(field)) is not None:
            yield from secrets(section.model_fields, *names, key)
        elif has_file(field):
            yield (*names, key)


@pytest.mark.parametrize("names", list(secrets(Settings.model_fields)), ids=".".join)
def test_every_secret_may_come_from_a_file_by_its_variable(names, loaded, tmp_path, monkeypatch) -> None:
    content = "http://u:p@proxy:1" if names[-1] == "proxy_url" else f"redis://{TOKEN}"
    (tmp_path / "secret").write_text(f"{content}\n")
    monkeypatch.setenv(f"{variable(*names)}_FILE", "secret")
    configuration = loaded("")
    value = configuration.first
    for name in names:
        value = getattr(value, name)
    assert value.get_secret_value() == content
    assert configuration.secret_files == {tmp_path / "secret"}


def test_a_file_is_named_in_the_configuration_or_for_one_stream(loaded, tmp_path, monkeypatch) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\r\n")
    configuration = loaded('[service]\ntoken_file = "token"')
    assert configuration.service.tokens[0].secret == TOKEN
    (tmp_path / "url").write_text("redis://u:p@h")
    monkeypatch.setenv("EFO_STREAMS__A__LEASES__URL_FILE", str(tmp_path / "url"))
    (tmp_path / "many.toml").write_text('[streams.a.leases]\nstore = "redis"\n[streams.b]')
    streams = load_all(tmp_path / "many.toml").streams
    assert [settings.leases.url and settings.leases.url.get_secret_value() for settings in streams.values()] == [
        "redis://u:p@h",
        None,
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "token_file: .*/token cannot be read: No such file"),
        (b"", "must have one line"),
        (f"{TOKEN}\n{TOKEN}\n".encode(), "must have one line"),
        (b"\xff\xfe\xfd", "is not a text|must have one line"),
        (b"short", "at least 16 ASCII characters"),
        (f"{TOKEN} {TOKEN} {TOKEN}".encode(), "3 tokens: at most 2"),
    ],
)
def test_a_wrong_file_is_a_mistake_that_shows_nothing_of_it(content, message, loaded, tmp_path) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(ConfigurationError, match=message) as error:
        loaded('[service]\ntoken_file = "token"')
    assert TOKEN not in str(error.value)


def test_a_secret_and_its_file_are_not_both_set(loaded, tmp_path, monkeypatch) -> None:
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("EFO_SERVICE__TOKEN", TOKEN)
    with pytest.raises(ConfigurationError, match=r"\[service\] token_file: token is set too \(EFO_SERVICE__TOKEN\)"):
        loaded('[service]\ntoken_file = "token"')
