"""What AWS' SDKs and tools read from the environment to use the fake."""

from __future__ import annotations

from efo.testing.server.listener import Address


def environment(address: Address, region: str = "us-east-1") -> dict[str, str]:
    """Return environment variables for a fake at this address.

    The first three are of the SDKs in general; NODE_EXTRA_CA_CERTS and SSL_CERT_FILE are how Node.js and Go are told
    of the authority. Java takes it by a trust store only. The credentials are made up.
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
