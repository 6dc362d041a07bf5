"""The forms of AwsCredentialsProvider: which of them the AWS chain has, and which become settings. Pure."""

from __future__ import annotations

from typing import Any, Final

from efo_service.multilang.options import Option

_CHAIN: Final = frozenset({"DefaultCredentialsProvider", "DefaultAWSCredentialsProviderChain"})
_IN_CHAIN: Final = frozenset(
    {
        "EnvironmentVariableCredentialsProvider",
        "InstanceProfileCredentialsProvider",
        "ContainerCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper",
        "WebIdentityTokenFileCredentialsProvider",
        "WebIdentityTokenCredentialsProvider",
        "ProcessCredentialsProvider",
    }
)
_PROFILE: Final = frozenset({"ProfileCredentialsProvider"})
_ROLE: Final = frozenset(
    {
        "StsAssumeRoleCredentialsProvider",
        "KclStsAssumeRoleCredentialsProvider",
        "KclSTSAssumeRoleSessionCredentialsProvider",
        "STSAssumeRoleSessionCredentialsProvider",
    }
)
_SECRETS: Final = frozenset(
    {
        "StaticCredentialsProvider",
        "KclStaticCredentialsProvider",
        "BasicAWSCredentials",
        "AwsBasicCredentials",
        "PropertiesFileCredentialsProvider",
        "ClasspathPropertiesFileCredentialsProvider",
        "SystemPropertiesCredentialsProvider",
        "SystemPropertyCredentialsProvider",
    }
)
_EXTERNAL_ID: Final = "externalid="
ROWS: Final = (
    (_CHAIN, "The AWS chain."),
    (_IN_CHAIN, "The AWS chain, which has it; one that comes before it in the chain goes first."),
    (_PROFILE, "With `|name`: that profile. Without: that of `AWS_PROFILE`."),
    (
        _ROLE,
        "`|role ARN|session name`, and `|externalId=...`. Another endpoint of STS is that of the AWS configuration.",
    ),
    (_SECRETS, "Refused: secrets belong into the environment, which the AWS chain reads."),
)
"""The forms, and what they are for efo: a table of docs/kcl.md."""


def credentials_of(option: Option, value: str, problems: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that the value of such a property becomes, and notes on it. Adds to `problems`.

    A value is a list of providers, of which KCL uses the first that has credentials. The values of their arguments are
    not shown: some are secrets.
    """
    section, settings, notes = option.setting.removesuffix(".profile"), {}, []
    for provider in value.split(","):
        name, *arguments = (part.strip() for part in provider.split("|"))
        name = name.rpartition(".")[2]
        if name in _CHAIN:
            continue
        if name in _IN_CHAIN:
            notes.append(f"{option.name}: {name} is asked in its turn by the AWS chain")
        elif name in _PROFILE:
            if arguments and arguments[0]:
                settings[f"{section}.profile"] = arguments[0]
        elif name in _ROLE and section == "kinesis" and arguments:
            settings |= _role(arguments)
        elif name in _ROLE:
            problems.append(f"{option.name}: efo assumes a role for Kinesis alone: use a profile with role_arn")
        elif name in _SECRETS:
            problems.append(
                f"{option.name}: {name} reads secrets where others can: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                " in the environment, and DefaultCredentialsProvider here"
            )
        else:
            problems.append(f"{option.name}: efo knows no such provider of credentials; see the table in docs/kcl.md")
    return settings, notes


def _role(arguments: list[str]) -> dict[str, Any]:
    arn, *others = arguments
    settings = {"kinesis.role_arn": arn}
    for number, other in enumerate(others):
        if other.lower().startswith(_EXTERNAL_ID):
            settings["kinesis.external_id"] = other[len(_EXTERNAL_ID) :]
        elif number == 0 and "=" not in other:
            settings["kinesis.role_session_name"] = other
    return settings
