"""What tests of networks share: an authority for certificates, and an environment with credentials alone."""

import os

import pytest
import trustme

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority, tmp_path_factory):
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@pytest.fixture
def aws_environment(monkeypatch, tmp_path):
    """Return a monkeypatch of an environment with credentials and a region alone."""
    for name in [*os.environ]:
        if name.startswith("AWS_") or name.upper() in {*PROXIES, "REQUESTS_CA_BUNDLE"}:
            monkeypatch.delenv(name)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    return monkeypatch
