"""What answers is no service of AWS: it is reported at once, and nothing is taken for done."""

import pytest
from botocore.exceptions import ClientError

from efo.aws.wrong_server import wrong_content, wrong_server
from efo.errors import ConfigurationError, LeaseStoreUnavailableError, WrongEndpointError
from efo.kinesis.aws.client import open_kinesis
from efo.leases.stores.dynamodb.client import TableLocation, open_table
from efo.telemetry.cloudwatch.client import PutError, open_client
from tests.loopback import listening, tls_handler

KINESIS = "kinesis.us-east-1.amazonaws.com"
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SECRET = "CaNaRy7h3"
pytestmark = pytest.mark.usefixtures("aws_environment")


PAGE = b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: 13\r\n\r\n<html></html>"


def page(status):
    async def handle(stream):
        async with stream:
            await stream.receive_some()
            await stream.send_all(PAGE % status)

    return listening(handle)


@pytest.mark.parametrize("status", [b"200 OK", b"302 Found", b"404 Not Found"])
async def test_a_page_of_another_server_is_no_kinesis(status):
    async with page(status) as port, open_kinesis("orders", endpoint_url=f"http://127.0.0.1:{port}") as kinesis:
        for call in (kinesis.control_plane.list_shards(), kinesis.control_plane.list_consumers(ARN)):
            with pytest.raises(WrongEndpointError, match=r"speaks HTTP/1|what answers is another server"):
                await call


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_scheme_that_the_endpoint_does_not_speak_is_reported_at_once(authority, ca_file, scheme):
    """TLS for http://, and none for https://: aiobotocore is not asked to try five times."""
    opened = []

    async def handle(stream):
        opened.append(stream)
        if scheme == "https":
            async with stream:
                await stream.receive_some()
                await stream.send_all(PAGE % b"400 Bad Request")
        else:
            await tls_handler(authority, ["h2"])(stream)

    async with (
        listening(handle) as port,
        open_kinesis("orders", endpoint_url=f"{scheme}://127.0.0.1:{port}", ca_file=ca_file) as kinesis,
    ):
        with pytest.raises(WrongEndpointError, match=r"does not speak TLS|speaks TLS, but endpoint_url is http"):
            await kinesis.control_plane.list_shards()
    assert len(opened) == (1 if scheme == "https" else 2)  # a server that closes an HTTP/2 connection is asked for TLS


@pytest.mark.parametrize("status", [b"200 OK", b"302 Found", b"404 Not Found"])
async def test_a_page_of_another_server_is_no_dynamodb_and_no_write_is_taken_for_done(status):
    async with page(status) as port:
        location = TableLocation("us-east-1", f"http://127.0.0.1:{port}")
        async with open_table("leases", location) as table:
            for operation in ("describe_table", "update_item"):
                arguments = {} if operation == "describe_table" else {"Key": {"leaseKey": {"S": "x"}}}
                with pytest.raises(ConfigurationError, match=rf"another server \(HTTP {status[:3].decode()}\)"):
                    await table.call(operation, **arguments)
            table._has_responded = True
            with pytest.raises(LeaseStoreUnavailableError, match="another server"):
                await table.call("describe_table")


async def test_plain_http_is_reported_where_tls_is_expected():
    async with page(b"400 Bad Request") as port:
        url = f"https://127.0.0.1:{port}"
        async with open_table("leases", TableLocation("us-east-1", url)) as table:
            with pytest.raises(ConfigurationError, match="what answers does not speak TLS: check endpoint_url"):
                await table.call("describe_table")
        where = {"region": None, "endpoint_url": url, "ca_file": None, "profile": None}
        async with open_client("billing", **where) as cloudwatch:
            with pytest.raises(PutError, match="what answers does not speak TLS: check endpoint_url") as raised:
                await cloudwatch.put([])
            assert raised.value.error_type == "wrong_server"


@pytest.mark.parametrize("status", [b"200 OK", b"302 Found", b"403 Forbidden"])
async def test_a_page_of_another_server_is_no_cloudwatch(status):
    async with page(status) as port:
        where = {"region": None, "endpoint_url": f"http://127.0.0.1:{port}", "ca_file": None, "profile": None}
        async with open_client("billing", **where) as cloudwatch:
            with pytest.raises(PutError, match="another server"):
                await cloudwatch.put([])


@pytest.mark.parametrize("headers", [{"content-type": "text/html", "x-amzn-requestid": "1"}, {}])
def test_a_server_for_tests_that_names_no_format_is_taken_for_aws(headers):
    assert wrong_content({"ResponseMetadata": {"HTTPStatusCode": 200, "HTTPHeaders": headers}}) is None


@pytest.mark.parametrize(("status", "is_wrong"), [(404, True), (408, False), (429, False), (503, False)])
def test_a_page_of_a_gateway_that_asks_to_come_later_is_not_another_server(status, is_wrong):
    answer = {"Error": {"Code": str(status), "Message": ""}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert (wrong_server(ClientError(answer, "ListShards")) is not None) == is_wrong
