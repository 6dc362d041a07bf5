"""Each provider of botocore's chain: what it has, and what is reported if it fails. The services are on loopback."""

import logging
import os
import sys
import time

import pytest

from efo.aws import chain as module
from efo.aws.chain import Chain
from efo.aws.clock import ServiceClock
from efo.aws.explanations import ChainError
from efo.aws.role import AssumedRole
from efo.errors import ConfigurationError
from proofs.local_servers.credential_services import (
    OUTAGES,
    PROVIDERS,
    CredentialServices,
    log_in,
    serve_credentials,
    sso,
)

SECRET = "hunter2"


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """Return a monkeypatch with an empty home, and without a variable of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    cache = str(tmp_path / ".aws" / "sso" / "cache")  # botocore reads HOME when it is imported
    monkeypatch.setattr("botocore.credentials.SSOProvider._SSO_TOKEN_CACHE_DIR", cache)
    monkeypatch.setattr("botocore.tokens.SSOTokenProvider._SSO_TOKEN_CACHE_DIR", cache)
    return monkeypatch


@pytest.fixture
def services():
    with serve_credentials(CredentialServices(prefix=SECRET)) as served:
        yield served


@pytest.fixture
def set_up(environment, tmp_path, services):
    def set_up(provider):
        for name, value in PROVIDERS[provider](tmp_path, services).items():
            environment.setenv(name, value)

    return set_up


def load(role=None, region="eu-west-1", **options):
    return Chain(None, region, role, ServiceClock()).load(is_first=False, **options)


def failure(**options):
    with pytest.raises(ChainError) as raised:
        load(**options)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None
    return raised.value


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_is_asked_once_by_a_server_that_compares_paths(provider, set_up, services):
    set_up(provider)
    before = len(services.asked)
    loaded = load()
    assert loaded.provider == provider
    assert loaded.credentials.access_key.startswith("AK")
    if provider != "shared-credentials-file":
        assert loaded.credentials.token.startswith(SECRET)
        assert loaded.seconds == pytest.approx(3600, abs=30)
    assert len(services.asked) - before <= {"iam-role": 3}.get(provider, 1)


@pytest.mark.parametrize("provider", ["assume-role-with-web-identity", "container-role", "sso", "assume-role"])
@pytest.mark.parametrize("outage", OUTAGES)
def test_a_wrong_answer_of_a_service_is_reported_with_the_service_and_without_its_text(
    provider, outage, set_up, services, environment
):
    set_up(provider)
    environment.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    status, text, kind = OUTAGES[outage]
    services.outage = status, text.replace("no<", f"{SECRET}<") if "Error" in text else text + SECRET, kind
    error = failure()
    service = {"sso": "SSO", "container-role": "the endpoint"}.get(provider, "AWS STS")
    assert service in str(error)
    assert "Kinesis" not in str(error)
    if status >= 500:
        assert error.is_unavailable


@pytest.mark.parametrize("provider", ["assume-role-with-web-identity", "container-role", "sso", "assume-role"])
def test_a_service_that_is_not_there_is_named_and_unavailable(provider, environment, tmp_path):
    with serve_credentials() as gone:
        variables = PROVIDERS[provider](tmp_path, gone)
    for name, value in variables.items():
        environment.setenv(name, value)
    environment.setattr("botocore.utils.ContainerMetadataFetcher.SLEEP_TIME", 0)
    error = failure()
    assert "cannot be reached" in str(error)
    assert error.is_unavailable


def test_a_token_file_that_is_missing_is_named(set_up, tmp_path):
    set_up("assume-role-with-web-identity")
    (tmp_path / "token").unlink()
    error = failure()
    assert str(tmp_path / "token") in str(error)
    assert "No such file or directory" in str(error)
    assert "AWS_WEB_IDENTITY_TOKEN_FILE" in str(error)
    assert not error.is_unavailable


@pytest.mark.parametrize("seconds", [-10, None], ids=["expired", "never logged in"])
def test_without_a_session_of_sso_the_login_command_is_reported(seconds, environment, tmp_path, services):
    for name, value in sso(tmp_path, services).items():
        environment.setenv(name, value)
    if seconds is None:
        for path in (tmp_path / ".aws/sso/cache").iterdir():
            path.unlink()
    else:
        log_in(tmp_path, SECRET, seconds)
    assert "run aws sso login --profile corp" in str(failure())


@pytest.mark.parametrize(
    ("command", "reported"),
    [
        ("/nowhere/command --x", "/nowhere/command: No such file or directory"),
        (f"echo {SECRET}", "what the command printed are no credentials (JSONDecodeError)"),
        ("echo {}", "what the command printed are no credentials"),
        ("echo []", "what the command printed are no credentials"),
        (f"sh -c 'echo {SECRET} >&2; exit 3'", "the command ended with status 3"),
        ("sh -c 'read line; echo $line; exit 4'", "the command ended with status 4"),
    ],
)
def test_a_command_that_fails_is_reported_without_its_output(command, reported, environment, tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(f"[default]\ncredential_process = {command}\n")
    assert reported in str(failure())
    assert "credential_process" in str(failure())


@pytest.mark.parametrize("is_source", [False, True], ids=["own", "of a source profile"])
def test_a_command_that_does_not_end_is_killed(is_source, environment, tmp_path):
    environment.setattr(module, "PROCESS_SECONDS", 0.2)
    environment.setenv("AWS_PROFILE", "top" if is_source else "base")
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(
        "[profile base]\ncredential_process = sleep 1000\n"
        "[profile top]\nrole_arn = arn:aws:iam::123456789012:role/r\nsource_profile = base\n"
    )
    started = time.monotonic()
    assert "the command did not end" in str(failure())
    assert time.monotonic() - started < 60


def test_efo_never_asks_for_a_code_of_a_device(environment, tmp_path, services):
    environment.setenv("AWS_PROFILE", "top")
    environment.setattr(sys, "stdin", None)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(
        "[profile base]\naws_access_key_id = AK\naws_secret_access_key = SK\n[profile top]\nsource_profile = base\n"
        "role_arn = arn:aws:iam::123456789012:role/r\nmfa_serial = arn:aws:iam::123456789012:mfa/me\n"
    )
    assert "mfa_serial" in str(failure())


@pytest.mark.parametrize(
    ("profile", "config", "reported"),
    [
        ("nope", "", "profile nope"),
        ("x", "[profile x]\nrole_arn = arn\nsource_profile = y\n", 'source_profile "y"'),
        ("x", "[profile x]\naws_access_key_id = AK\n", "aws_secret_access_key"),
        ("x", "[profile x]\nsso_account_id = 1\n", "sso_start_url"),
        ("x", "not ini", "config"),
    ],
)
def test_a_wrong_profile_is_reported(profile, config, reported, environment, tmp_path):
    environment.setenv("AWS_PROFILE", profile)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text(config)
    assert reported.lower() in str(failure()).lower()


def test_a_key_without_its_secret_is_named(environment):
    environment.setenv("AWS_ACCESS_KEY_ID", "AK")
    assert "AWS_SECRET_ACCESS_KEY" in str(failure())


def test_no_credentials_at_all_are_reported_with_what_to_do(environment):
    assert "AWS_PROFILE" in str(failure())
    assert "'default'" in str(failure())


@pytest.mark.parametrize("provider", ["custom-process", "container-role", "assume-role", "shared-credentials-file"])
def test_credentials_with_control_characters_are_refused_by_the_name_of_the_part(provider, set_up, services, tmp_path):
    services.prefix = f"{SECRET}\x1b"
    if provider == "container-role":
        services.container_token = None
        set_up(provider)
        services.container_token = None
        (tmp_path / "pod-token").write_text("x")
    elif provider == "assume-role":
        services.prefix = f"{SECRET}&#9;"
        set_up(provider)
        (tmp_path / ".aws/config").write_text((tmp_path / ".aws/config").read_text().replace("&#9;", ""))
    else:
        set_up(provider)
    if provider == "shared-credentials-file":
        with pytest.raises(ConfigurationError, match="aws_secret_access_key of the profile 'default'") as raised:
            load()
        assert SECRET not in str(raised.value)
    else:
        assert "the secret access key has white space or control characters" in str(failure())


@pytest.mark.parametrize("provider", ["assume-role-with-web-identity", "assume-role"])
@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("eu-west-1", "sts.eu-west-1.amazonaws.com"),
        ("cn-north-1", "sts.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "sts.us-gov-west-1.amazonaws.com"),
    ],
)
def test_sts_is_that_of_the_region(provider, region, host, set_up, environment):
    set_up(provider)
    environment.delenv("AWS_ENDPOINT_URL_STS")
    environment.setattr("socket.getaddrinfo", _refuse)
    error = failure(region=region)
    assert f"AWS STS at {host} cannot be reached" in str(error)


def test_the_global_sts_is_used_if_botocores_own_setting_asks_for_it(set_up, environment):
    set_up("assume-role-with-web-identity")
    environment.delenv("AWS_ENDPOINT_URL_STS")
    environment.setenv("AWS_STS_REGIONAL_ENDPOINTS", "legacy")
    environment.setattr("socket.getaddrinfo", _refuse)
    assert "AWS STS at sts.amazonaws.com" in str(failure(region="us-east-1"))


def _refuse(host, *_, **__):
    raise OSError(-2, "Name or service not known")


def test_a_role_is_assumed_in_the_region_with_the_credentials_of_the_chain(set_up, services):
    set_up("shared-credentials-file")
    os.environ["AWS_ENDPOINT_URL_STS"] = services.url
    loaded = load(AssumedRole("arn:aws:iam::123456789012:role/reader", "external-7"))
    (asked,) = services.asked
    assert loaded.provider == "assume-role"
    assert (asked.action, asked.parameters["ExternalId"], asked.signed_for) == (
        "AssumeRole", "external-7", "eu-west-1/sts",
    )  # fmt: skip
    assert "Credential=AKFILE/" in asked.authorization


@pytest.mark.parametrize("skew", [600, -600])
def test_a_wrong_clock_is_corrected_for_sts(skew, set_up, services):
    services.skew = skew
    set_up("assume-role")
    loaded = load()
    assert len(services.asked) == 2
    assert loaded.seconds == pytest.approx(3600, abs=30)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_nothing_of_the_credentials_is_logged_and_no_traceback(provider, set_up, services, caplog):
    for name in (None, "botocore", "botocore.parsers", "botocore.auth", "botocore.endpoint", "urllib3"):
        caplog.set_level(logging.DEBUG, name)
    set_up(provider)
    load()
    if provider in {"assume-role", "assume-role-with-web-identity", "sso"}:
        services.outage = 503, SECRET, "text/plain"
        failure()
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("uri", ["http://example.com/x", "http://10.0.0.1/x"])
def test_a_container_endpoint_that_is_not_allowed_is_reported(uri, environment):
    environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", uri)
    assert "AWS_CONTAINER_CREDENTIALS_FULL_URI names a host" in str(failure())


def test_a_token_of_the_container_with_a_newline_is_reported(set_up, tmp_path):
    set_up("container-role")
    (tmp_path / "pod-token").write_text(f"{SECRET}\n")
    assert "AWS_CONTAINER_AUTHORIZATION_TOKEN" in str(failure())
