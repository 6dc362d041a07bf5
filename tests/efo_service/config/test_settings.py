from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from efo.errors import ConfigurationError
from efo.model import Position
from efo_service.config.loading import load, load_all
from efo_service.config.rendering import changed, defaults, resolved, resolved_all, to_toml
from efo_service.config.section import proxy_text
from efo_service.config.settings import Settings
from efo_service.config.streams import Configuration
from tests.paths import ROOT

ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"


@pytest.fixture
def load_text(tmp_path):
    def load_text(text: str) -> Settings:
        path = tmp_path / "efo.toml"
        path.write_text(text)
        load_text.path = path
        return load(path)

    return load_text


def test_a_stream_name_is_the_only_required_setting(load_text):
    settings = load_text('[kinesis]\nstream = "orders"')
    assert settings.kinesis.stream_name == settings.topic == "orders"
    assert settings.consumer.fan_out_consumer == "efo"
    assert settings.consumer.position == Position.trim_horizon()
    assert settings.leases.worker_id is None


def test_the_topic_is_the_stream_name_of_an_arn(load_text):
    assert load_text(f'[kinesis]\nstream = "{ARN}"').topic == "orders"


def test_settings_are_frozen(load_text):
    settings = load_text('[kinesis]\nstream = "orders"')
    with pytest.raises(ValueError, match="frozen"):
        settings.service.port = 1


def test_the_environment_overrides_the_file(load_text, monkeypatch):
    monkeypatch.setenv("EFO_SERVICE__PORT", "9090")
    monkeypatch.setenv("EFO_CONSUMER__CONSUMER_NAME", "")  # an empty variable counts as not set
    settings = load_text('[kinesis]\nstream = "a"\n[service]\nport = 1\nhost = "0.0.0.0"')
    assert (settings.service.port, settings.service.host) == (9090, "0.0.0.0")  # noqa: S104 - the value under test
    assert settings.consumer.fan_out_consumer == "efo"


def test_the_environment_alone_is_enough(monkeypatch):
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_SERVICE_PORT", "tcp://10.0.0.1:80")  # Kubernetes sets this for a Service named efo-service
    assert load(None).kinesis.stream == "orders"


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ('"LATEST"', Position.latest()),
        ('"2026-01-01T01:00:00+01:00"', Position.at_timestamp(1767225600.0)),
        ("2026-01-01T00:00:00Z", Position.at_timestamp(1767225600.0)),
    ],
)
def test_initial_position_takes_names_and_times(load_text, position, expected):
    settings = load_text(f'[kinesis]\nstream = "a"\n[consumer]\ninitial_position = {position}')
    assert settings.consumer.position == expected


@pytest.mark.parametrize("written", ["2026-01-31", '"2026-01-31"', "2026-01-31T12:00:00", '"2026-01-31 12:00"'])
def test_a_time_without_a_zone_is_refused_with_a_value_that_loads(load_text, written):
    with pytest.raises(ConfigurationError, match="has no time zone") as caught:
        load_text(f'[kinesis]\nstream = "a"\n[consumer]\ninitial_position = {written}')
    advice = re.search(r"write (\S+) for UTC", str(caught.value))[1]
    settings = load_text(f'[kinesis]\nstream = "a"\n[consumer]\ninitial_position = "{advice}"')
    assert datetime.fromisoformat(advice).replace(tzinfo=None) == datetime.fromisoformat(written.strip('"'))
    assert settings.consumer.position == Position.at_timestamp(datetime.fromisoformat(advice).timestamp())


STREAM = '[kinesis]\nstream = "a"\n'
POSITION = f"{STREAM}[consumer]\ninitial_position = "
WRONG = {
    "unknown key": (f"{STREAM}regoin = 1", "3: [kinesis] regoin: unknown key: did you mean 'region'?"),
    "unknown table": (f"{STREAM}[servce]", "3: [servce]: unknown table: did you mean 'service'?"),
    "unknown key without a similar one": (
        f"{STREAM}[leases]\nxyz = 1",
        "4: [leases] xyz: unknown key: expected one of store, ",
    ),
    "top-level key": ('stream = "a"', "1: [stream]: unknown table: expected one of kinesis, "),
    "missing table": ("[service]", "[kinesis]: missing: write [kinesis] stream"),
    "missing key": ("[kinesis]", "[kinesis] stream: missing: write [kinesis] stream"),
    "short ARN": (f'[kinesis]\nstream = "{ARN[:-7]}"', "2: [kinesis] stream: 'arn:aws:kinesis:eu-west-1:"),
    "consumer ARN": (f'[kinesis]\nstream = "{ARN}/consumer/c:1"', "is the ARN of a consumer: use the ARN or the name"),
    "tags that AWS refuses": (
        f'{STREAM}[consumer]\nconsumer_tags = {{ team = "a|b" }}',
        "4: [consumer] consumer_tags: the tag 'team' has the char",
    ),
    "tags of nobody": (
        f'{STREAM}[consumer]\nconsumer_tags = {{ team = "a" }}\nread_mode = "polling"',
        "consumer_tags has no effect with read_mode",
    ),
    "an ephemeral consumer of nobody": (
        f'{STREAM}[consumer]\nephemeral = true\nread_mode = "polling"',
        "ephemeral has no effect with read_mode",
    ),
    "stream name": ('[kinesis]\nstream = "a b"', "2: [kinesis] stream: 'a b' is not the name of a stream"),
    "two regions": (f'[kinesis]\nstream = "{ARN}"\nregion = "x"', "1: [kinesis]: region 'x' is not that of the"),
    "endpoint without a scheme": (f'{STREAM}endpoint_url = "h:1"', "3: [kinesis] endpoint_url: not an endpoint"),
    "endpoint port too large": (
        f'{STREAM}endpoint_url = "https://h:99999"',
        "3: [kinesis] endpoint_url: not an end",
    ),
    "endpoint port not a number": (f'{STREAM}endpoint_url = "https://h:abc"', "3: [kinesis] endpoint_url: not an end"),
    "endpoint port 0": (f'{STREAM}endpoint_url = "https://h:0/"', "3: [kinesis] endpoint_url: not an endpoint"),
    "endpoint with a malformed host": (
        f'{STREAM}endpoint_url = "https://[::1"',
        "3: [kinesis] endpoint_url: not an endpoint",
    ),
    "missing file": (f'{STREAM}ca_file = "ca.pem"', "3: [kinesis] ca_file: no such file: expected the path"),
    "time without a zone": (
        f"{POSITION}2026-01-01T00:00:00",
        "4: [consumer] initial_position: the time '2026-01-01T00",
    ),
    "position in the future": (
        f"{POSITION}2999-01-01T00:00:00Z",
        "4: [consumer] initial_position: '2999-01-01T00:00:00+00:00': 2999-01-01T00:00:00Z is in the future",
    ),
    "unknown position": (f'{POSITION}"start"', "'start' is not a position"),
    "not a number": (f'{STREAM}[service]\nport = "x"', "4: [service] port: expected a valid int"),
    "not positive": (f"{STREAM}[service]\ndrain_seconds = 0", "4: [service] drain_seconds: expected"),
    "infinite": (f"{STREAM}[service]\ndrain_seconds = inf", "4: [service] drain_seconds: expected"),
    "dead letters in the records' topic": (
        f'{STREAM}[relay]\ndead_letters = "a"',
        "efo.toml: [relay] dead_letters 'a' is",
    ),
    "dead letters without a place": (
        f'{STREAM}[relay]\non_refused_record = "dead_letter"',
        'on_refused_record = "dead_letter" needs dead_letters',
    ),
    "dead letters that are never used": (
        f'{STREAM}[relay]\ndead_letters = "b"\non_refused_record = "skip"',
        'dead_letters is never used with on_refused_record = "skip"',
    ),
    "not a table": ("kinesis = 1", "kinesis is a table: write [kinesis]"),
    "not TOML": ("[kinesis\n", "not TOML: "),
    "nested": ("[kinesis]\nstream = " + "[" * 5000, "a value is nested too deep"),
    "nested and closed": ("[pipeline]\nspark_options = " + "[" * 5000 + "]" * 5000, "a value is nested too deep"),
    "digits": ("[service]\nport = " + "9" * 6000, "a number has too many digits"),
    "infinity": ('[kinesis]\nstream = "s"\n[relay]\nretention_hours = 1e400', ":4: [relay] retention_hours: expected"),
    "long path": (f'[kinesis]\nstream = "s"\nca_file = "/{"x" * 5000}"', "is not a path: File name too long"),
    "long directory": (f'[kinesis]\nstream = "s"\n[relay]\ndirectory = "/{"x" * 5000}"', ":4: [relay] directory: '/xx"),
    "null in a path": ('[kinesis]\nstream = "s"\n[leases]\npath = "a\\u0000"', "is not a path: embedded null"),
}


@pytest.mark.parametrize(("text", "expected"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_refused_with_the_location_of_the_error(load_text, tmp_path, text, expected):
    with pytest.raises(ConfigurationError) as caught:
        load_text(text)
    assert expected in str(caught.value)
    assert str(tmp_path / "efo.toml") in str(caught.value)


def test_all_wrong_settings_are_reported_together(load_text):
    with pytest.raises(ConfigurationError) as caught:
        load_text('[kinesis]\nstream = "a b"\n[service]\nport = -1\n[leases]\nstore = "redis"')
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("EFO_KINESI__STREAM", "environment EFO_KINESI__STREAM: unknown section: did you mean 'kinesis'?"),
        ("EFO_KINESIS__REGOIN", "environment EFO_KINESIS__REGOIN: unknown key: did you mean 'region'?"),
        ("EFO_SERVICE__PORT", "environment EFO_SERVICE__PORT: expected a valid integer"),
        ("EFO_SERVICE", "environment: the value of service cannot be read"),
    ],
)
def test_a_wrong_environment_variable_is_refused_by_name(load_text, monkeypatch, name, expected):
    monkeypatch.setenv(name, "abc")
    with pytest.raises(ConfigurationError) as caught:
        load_text('[kinesis]\nstream = "a"')
    assert expected in str(caught.value)


@pytest.mark.parametrize("name", ["EFO_PIPELINE__SPARK_OPTIONS", "EFO_LEASES", "EFO_PIPELINE"])
@pytest.mark.parametrize("value", ["[" * 5000, "[" * 5000 + "]" * 5000])
def test_a_variable_that_is_nested_too_deep_is_refused_by_name(monkeypatch, name, value):
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        load(None)
    assert str(caught.value) == f"environment {name}: the value is nested too deep"


def test_conflicting_environment_variables_are_refused(monkeypatch):
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    monkeypatch.setenv("EFO_RELAY__DEAD_LETTERS", "orders")
    with pytest.raises(ConfigurationError, match=r"environment: \[relay\] dead_letters 'orders' is also"):
        load(None)


def test_a_credential_is_refused_and_not_shown_in_the_error(load_text):
    with pytest.raises(ConfigurationError, match="credentials are not settings") as caught:
        load_text('[kinesis]\nstream = "a"\naws_secret_access_key = "hunter2"\nendpoint_url = "https://me:hunter2@h"')
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"\xff\xfe", "it is UTF-16 text: save it as UTF-8"),
        (STREAM.encode("utf-16"), "it is UTF-16 text"),
        (STREAM.encode("utf-16-le"), "it is UTF-16 text"),
        (STREAM.encode() + "# caf\xe9\n".encode("latin-1"), "line 3: it is not UTF-8 text, but maybe Latin-1"),
    ],
)
def test_an_unreadable_file_is_refused(tmp_path, content, reason):
    path = tmp_path / "efo.toml"
    if content:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"efo\.toml: cannot read the configuration: {reason}"):
        load(path)


@pytest.mark.parametrize("breaks", ["\n", "\r\n"])
def test_a_byte_order_mark_and_line_breaks_of_windows_are_accepted(tmp_path, breaks):
    path = tmp_path / "efo.toml"
    path.write_bytes(b"\xef\xbb\xbf" + f"{STREAM}region = 'eu-west-1'\n".replace("\n", breaks).encode())
    assert load(path).kinesis.region == "eu-west-1"
    path.write_bytes(b"\xef\xbb\xbf" + f"{STREAM}regoin = 1\n".replace("\n", breaks).encode())
    with pytest.raises(ConfigurationError, match=r"efo\.toml:3: \[kinesis\] regoin: unknown key"):
        load(path)


PROXY = "http://proxy.test:3128"


def proxies_of(settings):
    dynamodb, cloudwatch = settings.leases.dynamodb, settings.cloudwatch
    return [proxy_text(each.proxy_url, settings.kinesis.proxy_url) for each in (settings.kinesis, dynamodb, cloudwatch)]


def test_a_proxy_is_for_all_services_unless_they_have_their_own(load_text):
    assert proxies_of(load_text(STREAM)) == [None] * 3
    assert proxies_of(load_text(f'{STREAM}proxy_url = "{PROXY}"')) == [PROXY] * 3
    assert proxies_of(load_text(f'{STREAM}proxy_url = ""')) == [""] * 3
    other = f'{STREAM}proxy_url = "{PROXY}"\n[leases.dynamodb]\nproxy_url = ""\n[cloudwatch]\nproxy_url = "other:1"'
    assert proxies_of(load_text(other)) == [PROXY, "", "other:1"]


def test_an_empty_variable_is_no_proxy(load_text, monkeypatch):
    """Other empty variables are as if they were not set."""
    monkeypatch.setenv("EFO_KINESIS__PROXY_URL", "")
    monkeypatch.setenv("EFO_LEASES__DYNAMODB__PROXY_URL", "")
    assert proxies_of(load_text(f'{STREAM}proxy_url = "{PROXY}"\n[cloudwatch]\nproxy_url = "{PROXY}"')) == [
        "",
        "",
        PROXY,
    ]
    monkeypatch.setenv("EFO_KINESIS__STREAM", "orders")
    assert proxies_of(load(None)) == [""] * 3
    text = (
        f'[leases]\npath = "l"\n[kinesis]\nproxy_url = "{PROXY}"\n[streams.a]\n[streams.b.kinesis]\nproxy_url = "b:1"'
    )
    monkeypatch.delenv("EFO_KINESIS__STREAM")
    with pytest.raises(ConfigurationError, match="choose one with --stream"):
        load_text(text)
    monkeypatch.setenv("EFO_STREAMS__B__KINESIS__PROXY_URL", "")
    streams = load_all(Path(load_text.path)).streams
    assert [proxy_text(streams[name].kinesis.proxy_url) for name in "ab"] == ["", ""]


def test_the_credentials_of_a_proxy_come_from_the_environment_alone_and_are_shown_nowhere(load_text, monkeypatch):
    url = "http://user:hunter2@proxy.test:3128"
    monkeypatch.setenv("EFO_KINESIS__PROXY_URL", url)
    settings = load_text(STREAM)
    assert settings.kinesis.proxy == url
    shown = f"{settings!r} {to_toml(resolved(settings))}"
    assert "hunter2" not in shown
    assert "http://***@proxy.test:3128" in shown
    monkeypatch.delenv("EFO_KINESIS__PROXY_URL")
    with pytest.raises(
        ConfigurationError, match=r"\[kinesis\] proxy_url has a user .*EFO_KINESIS__PROXY_URL"
    ) as refused:
        load_text(f'{STREAM}proxy_url = "{url}"')
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("value", ["socks5://hunter2.test", "http://hunter2 ", "http://user:hunter2"])
def test_a_wrong_proxy_is_refused_without_its_text(load_text, value):
    with pytest.raises(ConfigurationError, match=r"3: \[kinesis\] proxy_url: proxy_url ") as refused:
        load_text(f'{STREAM}proxy_url = "{value}"')
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "expected"), [("::", "::"), ("[::]", "::"), ("[::1]", "::1"), ("localhost", "localhost")]
)
def test_a_host_may_have_the_brackets_of_a_url(load_text, host, expected):
    assert load_text(f'{STREAM}[service]\nhost = "{host}"').service.host == expected


@pytest.mark.parametrize("host", [" ", "*", "http://localhost", " ::", "127.0.0.1/8"])
def test_a_host_that_is_none_is_refused(load_text, host):
    with pytest.raises(ConfigurationError, match=r"4: \[service\] host: not an address: write 127\.0\.0\.1"):
        load_text(f'{STREAM}[service]\nhost = "{host}"')


def test_efo_full_toml_is_current():
    assert (ROOT / "config/efo.full.toml").read_text() == defaults(), "run: efo check-config --defaults"


@pytest.mark.parametrize("name", ["efo.toml", "efo.full.toml"])
def test_the_example_files_load(name):
    assert load(ROOT / "config" / name).kinesis.stream == "orders"


def test_efo_full_toml_has_the_default_values(load_text):
    full, empty = load(ROOT / "config/efo.full.toml"), load_text('[kinesis]\nstream = "orders"')
    for settings in (full, empty):
        configuration = Configuration.of(settings)
        assert changed(configuration, configuration.service.directory) == {"kinesis": {"stream": "orders"}}
    assert resolved(full).keys() == resolved(empty).keys()


def test_relative_paths_are_relative_to_the_file_and_not_to_where_efo_is_started(load_text, tmp_path, monkeypatch):
    text = '[kinesis]\nstream = "s"\n[relay]\ndirectory = "../log"\n[pipeline]\noutput = "s3a://a/b"'
    monkeypatch.chdir("/")
    settings = load_text(text)
    assert settings.leases.path == tmp_path / "var/leases.sqlite"
    assert settings.relay.directory == tmp_path / "../log"
    assert (settings.pipeline.output, settings.pipeline.checkpoint) == ("s3a://a/b", f"{tmp_path}/var/checkpoint")
    monkeypatch.setenv("EFO_SERVICE__DIRECTORY", "/srv")
    assert load_text(text).leases.path == Path("/srv/var/leases.sqlite")
    assert load_text(f'{text}\n[service]\ndirectory = "data"').leases.path == Path("/srv/var/leases.sqlite")
    monkeypatch.delenv("EFO_SERVICE__DIRECTORY")
    assert load_text(f'{text}\n[service]\ndirectory = "data"').leases.path == tmp_path / "data/var/leases.sqlite"


def test_what_differs_from_the_defaults_and_what_is_not_set_can_be_shown(load_text):
    loaded = load_text('[kinesis]\nstream = "s"\n[leases]\npath = "var/leases.sqlite"\n[service]\nport = 1')
    configuration = Configuration.of(loaded)
    service = {"port": 1}
    assert changed(configuration, configuration.service.directory) == {"kinesis": {"stream": "s"}, "service": service}
    other = changed(configuration, Path("/etc"))["service"]
    assert other == {**service, "directory": str(configuration.service.directory)}
    assert "# retention_hours is not set: forever.\n" in to_toml(resolved_all(configuration, unset=True))


def test_the_output_of_check_config_loads_to_the_same_settings(load_text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path('a "b".pem').touch()
    first = load_text(f'[kinesis]\nstream = "{ARN}"\nca_file = "a \\"b\\".pem"')
    assert load_text(to_toml(resolved(first))) == first


@pytest.mark.parametrize(("access", "mode"), [("none", 0o600), ("read", 0o640), ("write", 0o660)])
def test_group_access_sets_the_modes_of_new_files(load_text, access, mode):
    settings = load_text(f'[kinesis]\nstream = "s"\n[service]\ngroup_access = "{access}"')
    assert 0o666 & ~settings.service.umask == mode


@pytest.mark.parametrize(
    ("relay", "action"),
    [
        ({}, "isolate"),
        ({"dead_letters": "refused"}, "dead_letter"),
        ({"dead_letters": "refused", "on_refused_record": "dead_letter"}, "dead_letter"),
        ({"on_refused_record": "skip"}, "skip"),
        ({"on_refused_record": "stop"}, "stop"),
    ],
)
def test_a_refused_record_isolates_its_shard_unless_there_is_a_place_for_it(relay, action) -> None:
    assert Settings(kinesis={"stream": "a"}, relay=relay).relay.refused_record_action == action


TOKEN = "correct-horse-battery-staple"


def test_the_token_comes_from_the_environment_alone_and_is_shown_nowhere(load_text, monkeypatch):
    monkeypatch.setenv("EFO_SERVICE__TOKEN", TOKEN)
    settings = load_text(STREAM)
    assert settings.service.address.token == TOKEN
    assert TOKEN not in repr(settings)
    monkeypatch.delenv("EFO_SERVICE__TOKEN")
    with pytest.raises(ConfigurationError, match=r"\[service\] token is a secret: .* EFO_SERVICE__TOKEN") as refused:
        load_text(f'{STREAM}[service]\ntoken = "{TOKEN}"')
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("short", "a token has at least 16"),
        (" " + TOKEN, "the value has white space around it"),
        (TOKEN + "\n", "the value has white space around it"),
        ("ä" * 20, "a token has at least 16"),
    ],
)
def test_a_token_that_could_be_guessed_or_mistyped_is_refused(load_text, monkeypatch, token, why):
    monkeypatch.setenv("EFO_SERVICE__TOKEN", token)
    with pytest.raises(ConfigurationError, match=f"EFO_SERVICE__TOKEN: {why}") as refused:
        load_text(STREAM)
    assert token not in str(refused.value)


def test_the_files_of_tls_belong_together(load_text, tmp_path):
    for name in ("a.crt", "a.key", "ca.pem"):
        (tmp_path / name).write_text("")
    for line in (f'certificate_file = "{tmp_path}/a.crt"', f'client_ca_file = "{tmp_path}/ca.pem"'):
        with pytest.raises(ConfigurationError, match=r"belong together|needs certificate_file"):
            load_text(f"{STREAM}[service]\n{line}")
    both = f'certificate_file = "{tmp_path}/a.crt"\nkey_file = "{tmp_path}/a.key"'
    assert load_text(f"{STREAM}[service]\n{both}").service.tls.certificate == tmp_path / "a.crt"
