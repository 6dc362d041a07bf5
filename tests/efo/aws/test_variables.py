"""Values that cannot be right are refused by their names."""

import pytest

from efo.aws.variables import check_credentials, check_variables
from efo.errors import ConfigurationError

SECRET = "hunter2"
NAMES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS",
    "AWS_ENDPOINT_URL_DYNAMODB", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CA_BUNDLE", "AWS_CONFIG_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT",
)  # fmt: skip
VALUES = ("{}\n", " {}", "{}\t", "{}\r\n", "a\x00{}", "{}\x7f", "{}\u200b", "\ufeff{}", "{}\xa0")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", VALUES)
def test_blanks_around_a_value_and_control_characters_are_refused_without_the_value(name, value):
    with pytest.raises(ConfigurationError, match=f"environment {name}: ") as raised:
        check_variables({name: value.format(SECRET), "AWS_RETRY_MODE": "standard"})
    assert SECRET not in str(raised.value)


def test_all_of_them_are_named_at_once():
    with pytest.raises(ConfigurationError, match="environment AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY: "):
        check_variables({"AWS_SECRET_ACCESS_KEY": "a\n", "AWS_ACCESS_KEY_ID": "b\n", "AWS_REGION": "eu-west-1"})


@pytest.mark.parametrize("name", ["HOME", "AWS_SOMETHING_OF_MINE", "NOT_AWS_REGION", "AWS_ENDPOINT_URLS"])
def test_other_variables_are_nobodys_business(name):
    check_variables(
        {name: "x\n", "AWS_CONFIG_FILE": "/a b/c", "AWS_PROFILE": "", "AWS_CA_BUNDLE": "/Zertifikate/ä.pem"}
    )


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (("AK", "s/+=", "t"), None),
        (("AK", "s", None), None),
        (("AK ", "s", None), "the access key id has white space"),
        (("AK", "s\n", None), "the secret access key has white space"),
        (("AK", "s", "t\r"), "the session token has white space"),
        (("AK", "", None), "the secret access key is empty"),
        (("AK", "ü", None), "the secret access key has white space or control"),
    ],
)
def test_credentials_of_any_provider_are_checked(values, problem):
    found = check_credentials(*values)
    assert found is None if problem is None else found.startswith(problem)
