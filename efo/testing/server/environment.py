"""Environment variables with which AWS SDKs and tools use the fake."""

from __future__ import annotations

from efo.testing.server.listener import Address


def environment(address: Address, region: str = "us-east-1") -> dict[str, str]:
    """Return the environment variables for a fake at this address.

    All SDKs read the AWS_ variables. Node.js reads the certificate authority from NODE_EXTRA_CA_CERTS, Go from
    SSL_CERT_FILE; Java needs a trust store. The credentials are not real.
    """
    variables = {
        "AWS_ENDPOINT_URL_KINESIS": address.url,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": "fake",
        "AWS_SECRET_ACCESS_KEY": "fake",
    }
    if address.ca_file is not None:
        variables |= dict.fromkeys(("AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"), str(address.ca_file))
    return variables
