"""TLS and SASL with a real broker, for each mechanism that it supports itself, and the tokens of Amazon MSK."""

from __future__ import annotations

import hashlib
import hmac
import json
import subprocess
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from botocore.credentials import ReadOnlyCredentials
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from efo.aws.credentials import CredentialSource
from efo_service.exit_codes import Exit, code_of
from efo_service.relay.errors import SinkError
from efo_service.relay.kafka import client as kafka_client
from efo_service.relay.kafka.client import LIFETIME, IamTokens, client_config, iam_token
from efo_service.relay.kafka.errors import KafkaRefusedError
from efo_service.relay.kafka.options import KafkaOptions
from efo_service.relay.kafka.sink import open_kafka
from efo_service.spark.java import find_java
from proofs.e2e.kafka.broker import missing, running_broker
from proofs.local_servers.processes import directory
from proofs.local_servers.running import NotInstalledError
from proofs.ports import free_port
from tests.efo_service.relay.relaying import commit

SHARD = "shardId-000000000000"
USER, PASSWORD = "efo", 'hunter2"; \\'


@contextmanager
def serve_secure_kafka():
    """Run a broker with a port for TLS and SASL. Its URL is HOST:PORT and the path of its certificate."""
    if reason := missing():
        raise NotInstalledError(reason)
    with directory() as path:
        store, certificate, port = path / "keys.p12", path / "ca.pem", free_port()
        make_certificate(store, certificate)
        with running_broker(path / "broker", partial(secure_settings, port, store)) as broker:
            admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
            scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
            change = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(60)
            yield f"127.0.0.1:{port} {certificate}"


def make_certificate(store: Path, certificate: Path) -> None:
    keytool = [str(find_java().path.resolve().with_name("keytool")), "-storepass", "changeit", "-keystore", str(store)]
    pair = ["-genkeypair", "-alias", "broker", "-keyalg", "EC", "-storetype", "PKCS12", "-dname", "CN=broker"]
    subprocess.run([*keytool, *pair, "-ext", "san=ip:127.0.0.1"], check=True, capture_output=True)
    export = ["-exportcert", "-rfc", "-alias", "broker", "-file", str(certificate)]
    subprocess.run([*keytool, *export], check=True, capture_output=True)


def secure_settings(port: int, store: Path, ours: dict[str, str]) -> dict[str, str]:
    listener, security = "listener.name.secure", "org.apache.kafka.common.security"
    quoted = (
        PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    )  # for JAAS, then for the properties file
    return {
        "listeners": f"{ours['listeners']},SECURE://127.0.0.1:{port}",
        "advertised.listeners": f"{ours['advertised.listeners']},SECURE://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        f"{listener}.ssl.keystore.type": "PKCS12",
        f"{listener}.ssl.keystore.location": str(store),
        f"{listener}.ssl.keystore.password": "changeit",
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        f"{listener}.plain.sasl.jaas.config": f'{security}.plain.PlainLoginModule required user_{USER}="{quoted}";',
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{security}.scram.ScramLoginModule required;",
        # Without a configured validator, Kafka accepts unsigned tokens.
        f"{listener}.oauthbearer.sasl.jaas.config": f"{security}.oauthbearer.OAuthBearerLoginModule required"
        ' unsecuredLoginStringClaim_sub="x";',
    }


@pytest.fixture
def secure(servers, monkeypatch):
    """Make options for the secure port, with these settings added."""
    address, certificate = servers.url(serve_secure_kafka).split()
    monkeypatch.setattr(kafka_client, "IamTokens", lambda *_: lambda _config: (unsigned_token(), time.time() + 60))

    def secure(mechanism: str, **settings) -> KafkaOptions:
        settings = {"ca_file": certificate, "sasl_username": USER, "sasl_password": PASSWORD} | settings
        return KafkaOptions(
            bootstrap_servers=address,
            security_protocol="sasl_ssl",
            sasl_mechanism=mechanism,
            partitions=1,
            connect_seconds=20,
            aws_region="eu-west-1",
            **settings,
        )

    return secure


def unsigned_token() -> str:
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "efo", "iat": now, "exp": now + 60})
    return ".".join(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


async def relay(settings: KafkaOptions, topic: str, batch) -> None:
    async with open_kafka(settings, application=topic, stream="orders", topic=topic) as sink:
        async with sink.open("orders", SHARD) as shard:
            assert shard.position is None
            await commit(shard, batch)
        async with sink.open("orders", SHARD) as shard:
            assert shard.position is not None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "AWS_MSK_IAM"])
async def test_all_clients_of_the_sink_authenticate(secure, mechanism, tmp_path, make_batch):
    """They are the producer, the reader of positions and the admin client. AWS_MSK_IAM gets tokens by a callback."""
    await relay(secure(mechanism), tmp_path.name.replace("[", ""), make_batch(3))


@pytest.mark.parametrize(
    ("mechanism", "settings", "expected"),
    [
        ("PLAIN", {"sasl_password": "wrong"}, "uthentication failed"),
        ("SCRAM-SHA-512", {"sasl_password": "wrong"}, "uthentication failed"),
        ("PLAIN", {"ca_file": None}, "certificate verify failed"),
    ],
)
async def test_rejected_credentials_are_reported_with_the_settings_to_check(
    secure, mechanism, settings, expected, make_batch
):
    chosen = replace(secure(mechanism, **settings), connect_seconds=8.0)
    with pytest.raises(KafkaRefusedError, match=expected) as caught:
        await relay(chosen, "refused", make_batch(1))
    assert "check security_protocol, ca_file and the sasl_ settings of [relay.kafka]" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert code_of(caught.value) == Exit.CONFIGURATION


# --- tokens --------------------------------------------------------------------------------------------


def test_an_iam_token_is_a_correctly_signed_request():
    """The test computes the signature again, from AWS's description of SigV4 in the query."""
    secret, session = "wJalrXUtnFEMI/K7MDENG", "session/token+="
    token = iam_token("eu-west-1", ReadOnlyCredentials("AKIDEXAMPLE", secret, session))
    assert "=" not in token
    url = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.eu-west-1.amazonaws.com", "/")
    query = dict(parse_qsl(url.query))
    assert (query["Action"], query.pop("User-Agent")) == ("kafka-cluster:Connect", "efo")
    assert (query["X-Amz-Expires"], query["X-Amz-Security-Token"]) == (str(LIFETIME), session)
    date = query["X-Amz-Date"]
    scope = f"{date[:8]}/eu-west-1/kafka-cluster/aws4_request"
    assert query["X-Amz-Credential"] == f"AKIDEXAMPLE/{scope}"
    signature = query.pop("X-Amz-Signature")
    canonical = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
    request = f"GET\n/\n{canonical}\nhost:{url.netloc}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    assert hmac.digest(key, text.encode(), "sha256").hex() == signature


def test_tokens_expire_and_need_credentials(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    before = time.time()
    token, expires = IamTokens("eu-west-1", CredentialSource())("")
    assert token
    assert before + LIFETIME <= expires <= time.time() + LIFETIME
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(SinkError, match="AWS_MSK_IAM: no usable AWS credentials"):
        IamTokens("eu-west-1", CredentialSource())("")
    assert "no usable AWS credentials" in caplog.text  # the client library does not report it


def test_iam_needs_a_region(monkeypatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    settings = KafkaOptions(security_protocol="sasl_ssl", sasl_mechanism="AWS_MSK_IAM")
    with pytest.raises(KafkaRefusedError, match="aws_region"):
        client_config(settings)
    assert callable(client_config(settings, "eu-west-1")["oauth_cb"])


def test_oauthbearer_uses_the_oidc_method_of_the_client_library():
    settings = KafkaOptions(
        security_protocol="sasl_ssl",
        sasl_mechanism="OAUTHBEARER",
        oauth_token_url="https://id.example.com/token",
        oauth_client_id="efo",
        oauth_client_secret="hunter2",
        oauth_scope="kafka",
    )
    config = client_config(settings)
    assert config["sasl.oauthbearer.method"] == "oidc"
    assert config["sasl.oauthbearer.client.secret"] == "hunter2"
    assert config["sasl.oauthbearer.scope"] == "kafka"
