"""The remedies in the messages of efo's errors."""

import pytest

from efo_service.operations.doctor.outcomes import split_advice


@pytest.mark.parametrize(
    ("message", "detail", "remedy"),
    [
        (
            "the certificate of host:443 is not trusted: expired; set ca_file to the authority that signed it",
            "the certificate of host:443 is not trusted: expired",
            "set ca_file to the authority that signed it",
        ),
        (
            "no AWS region: set region or AWS_REGION, or use the stream's ARN",
            "no AWS region",
            "set region or AWS_REGION, or use the stream's ARN",
        ),
        (
            "no java on PATH, and JAVA_HOME is not set. Spark needs Java 17 or newer. Install it, or set JAVA_HOME",
            "no java on PATH, and JAVA_HOME is not set. Spark needs Java 17 or newer",
            "Install it, or set JAVA_HOME",
        ),
        (
            "lease store x: the role lacks INSERT on efo_lease: as the owner of the table, GRANT INSERT TO the role",
            "lease store x: the role lacks INSERT on efo_lease",
            "as the owner of the table, GRANT INSERT TO the role",
        ),
        ("cannot resolve host: Name or service not known", "cannot resolve host: Name or service not known", ""),
        ("reset, checked: settings are used", "reset, checked: settings are used", ""),
    ],
)
def test_the_remedy_of_a_message_is_found(message, detail, remedy):
    assert split_advice(message) == (detail, remedy)
