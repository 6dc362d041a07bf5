"""The endpoint of Kinesis: what efo finds is what a client of botocore finds."""

import botocore.config
import botocore.exceptions
import botocore.session
import pytest
from botocore import UNSIGNED

from efo.errors import ConfigurationError
from efo.kinesis.aws.endpoint import find_endpoint

CONFIG = """
[default]
region = eu-west-3
[profile fips]
region = us-east-1
use_fips_endpoint = true
[profile dual]
region = us-east-1
use_dualstack_endpoint = true
[profile global]
region = us-east-1
endpoint_url = https://global.test
[profile both]
region = us-east-1
endpoint_url = https://global.test
services = mine
[profile ignoring]
region = us-east-1
endpoint_url = https://global.test
ignore_configured_endpoint_urls = true
[profile elsewhere]
region = ca-central-1
services = mine
[services mine]
kinesis =
  endpoint_url = https://configured.test:8443
"""


@pytest.fixture(autouse=True)
def configuration(monkeypatch, tmp_path):
    """Return a monkeypatch of an environment that has no other AWS settings than a configuration file."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE",
                 "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_KINESIS"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config"
    path.write_text(CONFIG)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def found(**options):
    return find_endpoint(**{"region": None, "endpoint_url": None, "ca_file": None, "profile": None} | options)


def of_botocore(*, region=None, endpoint_url=None, profile=None):
    session = botocore.session.Session(profile=profile)
    config = botocore.config.Config(signature_version=UNSIGNED)
    meta = session.create_client("kinesis", region_name=region, endpoint_url=endpoint_url, config=config).meta
    return meta.endpoint_url, meta.region_name


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({}, {}),
        ({"region": "eu-central-1"}, {}),
        ({"region": "cn-north-1"}, {}),
        ({"region": "us-gov-west-1"}, {}),
        ({"region": "us-iso-east-1"}, {}),
        ({"region": "fips-us-east-1"}, {}),
        ({"region": "fips-us-east-1", "endpoint_url": "https://given.test"}, {}),
        ({"region": "mars-north-7"}, {}),
        ({"profile": "elsewhere"}, {}),
        ({"profile": "elsewhere", "region": "us-east-2"}, {"AWS_ENDPOINT_URL": "http://env.test"}),
        ({"endpoint_url": "https://given.test"}, {"AWS_ENDPOINT_URL": "http://env.test:1"}),
        ({"endpoint_url": "http://127.0.0.1:4567"}, {}),
        ({}, {"AWS_DEFAULT_REGION": "us-west-2"}),
        ({}, {"AWS_PROFILE": "elsewhere"}),
        ({}, {"AWS_ENDPOINT_URL": "http://env.test:4567"}),
        ({}, {"AWS_ENDPOINT_URL": "http://env.test:4567", "AWS_ENDPOINT_URL_KINESIS": "https://kinesis.test"}),
        ({}, {"AWS_ENDPOINT_URL": ""}),
        ({}, {"AWS_ENDPOINT_URL": "http://env.test:4567", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}),
        ({"profile": "elsewhere"}, {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}),
        ({"profile": "global"}, {}),
        ({"profile": "both"}, {}),
        ({"profile": "ignoring"}, {}),
        ({"profile": "both"}, {"AWS_ENDPOINT_URL": "https://env.test"}),
        ({"profile": "global"}, {"AWS_ENDPOINT_URL_KINESIS": "https://kinesis.test"}),
        ({"profile": "fips"}, {}),
        ({"profile": "fips", "endpoint_url": "https://given.test"}, {}),
        ({"profile": "dual"}, {}),
        ({"profile": "dual"}, {"AWS_USE_FIPS_ENDPOINT": "true"}),
        ({"profile": "fips"}, {"AWS_USE_FIPS_ENDPOINT": "false"}),
        ({"region": "us-gov-west-1"}, {"AWS_USE_FIPS_ENDPOINT": "true"}),
        ({"region": "us-east-1"}, {"AWS_USE_FIPS_ENDPOINT": "true"}),
        ({"region": "us-east-1"}, {"AWS_USE_DUALSTACK_ENDPOINT": "true"}),
    ],
)
def test_the_endpoint_and_the_region_are_those_of_botocore(configuration, options, environment):
    for name, value in environment.items():
        configuration.setenv(name, value)
    endpoint = found(**options)
    assert (f"{endpoint.scheme}://{endpoint.authority}", endpoint.region) == of_botocore(**options)


def test_the_suffix_of_an_isolated_partition_is_that_of_the_newest_rules(configuration):
    """`meta.endpoint_url` of botocore's clients is by older rules, and not what they call."""
    configuration.setenv("AWS_USE_DUALSTACK_ENDPOINT", "true")
    assert found(region="us-iso-east-1").authority == "kinesis.us-iso-east-1.api.aws.ic.gov"


@pytest.mark.parametrize("region", ["eu central", "-", "https://elsewhere.test/"])
def test_an_invalid_region_is_rejected(region):
    with pytest.raises(botocore.exceptions.InvalidRegionError):
        found(region=region, endpoint_url="https://given.test")


def test_an_invalid_endpoint_of_the_environment_is_rejected(configuration):
    configuration.setenv("AWS_ENDPOINT_URL", "env test")
    with pytest.raises(ConfigurationError, match="Invalid endpoint: 'env test'"):
        found()


@pytest.mark.parametrize(
    ("argument", "variable", "expected"), [("a.pem", "b.pem", "a.pem"), (None, "b.pem", "b.pem"), (None, None, None)]
)
def test_the_authorities_are_those_of_the_argument_or_the_environment_or_botocore(
    configuration, argument, variable, expected
):
    if variable:
        configuration.setenv("AWS_CA_BUNDLE", variable)
    endpoint = found(ca_file=argument)
    assert endpoint.ca_file == (expected or botocore.httpsession.get_cert_path(True))
