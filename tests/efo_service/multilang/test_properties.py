"""The table of properties in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from efo_service.multilang.properties import OPTIONS, ROWS, credentials_of
from tests.paths import ROOT

PAGE = Path(ROOT, "docs", "kcl.md").read_text().splitlines()


def test_the_page_has_each_property_as_it_is():
    rows = [line for line in PAGE if line.startswith("| `") and line.count("|") == 5]
    assert rows == [option.row for option in OPTIONS.values()]


def test_the_page_has_each_form_of_credentials():
    for names, note in ROWS:
        assert f"| {', '.join(f'`{name}`' for name in sorted(names))} | {note} |" in PAGE


ROLE = "arn:aws:iam::123456789012:role/reader"


def found(value, name="awscredentialsprovider"):
    problems = []
    settings, notes = credentials_of(OPTIONS[name], value, problems)
    return settings, notes, problems


@pytest.mark.parametrize(
    ("value", "settings"),
    [
        ("DefaultCredentialsProvider", {}),
        ("DefaultAWSCredentialsProviderChain", {}),
        ("com.amazonaws.auth.profile.ProfileCredentialsProvider|prod", {"kinesis.profile": "prod"}),
        ("ProfileCredentialsProvider", {}),
        (f"StsAssumeRoleCredentialsProvider|{ROLE}", {"kinesis.role_arn": ROLE}),
        (
            f"KclStsAssumeRoleCredentialsProvider|{ROLE}|me|externalId=x1|endpoint=https://sts.example",
            {"kinesis.role_arn": ROLE, "kinesis.role_session_name": "me", "kinesis.external_id": "x1"},
        ),
    ],
)
def test_forms_that_become_settings(value, settings):
    assert found(value) == (settings, [], [])


def test_what_is_in_the_chain_is_reported():
    settings, notes, problems = found("EnvironmentVariableCredentialsProvider,InstanceProfileCredentialsProvider")
    assert (settings, len(notes), problems) == ({}, 2, [])


@pytest.mark.parametrize(
    ("value", "name", "problem"),
    [
        ("StaticCredentialsProvider|AKIA|secret-1", "awscredentialsprovider", "in the environment"),
        ("MyOwnProvider|secret-1", "awscredentialsprovider", "no such provider"),
        (f"StsAssumeRoleCredentialsProvider|{ROLE}|secret-1", "awscredentialsproviderdynamodb", "for Kinesis alone"),
    ],
)
def test_forms_that_are_refused_show_no_argument(value, name, problem):
    _, _, (text,) = found(value, name)
    assert problem in text
    assert "secret-1" not in text
