"""Credentials among Spark's options: recognized by their names, refused in the file, masked in output."""

from __future__ import annotations

import json

import pytest

from efo.errors import ConfigurationError
from efo_service.cli import call
from efo_service.config.loading import load
from efo_service.config.section import is_credential
from efo_service.exit_codes import Exit
from efo_service.factories.pipeline import pipeline_settings

HEAD = '[kinesis]\nstream = "orders"\n'
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hunter2";'


@pytest.fixture
def file(tmp_path):
    def file(text: str = ""):
        path = tmp_path / "efo.toml"
        path.write_text(HEAD + text)
        return path

    return file


CREDENTIALS = [
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.datadog.apiKey",
    "es.net.http.header.X-Api-Key",
    "spark.hadoop.fs.s3a.bucket.lake.session.token",
    "spark.hadoop.fs.s3a.encryption.key",
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
    "spark.hadoop.fs.azure.account.oauth2.client.secret",
    "spark.hadoop.fs.azure.sas.container.lake.blob.core.windows.net",
    "spark.hadoop.fs.azure.sas.fixed.token",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.sql.catalog.lake.credential",
    "spark.sql.catalog.lake.token",
    "spark.sql.catalog.lake.s3.secret-access-key",
    "spark.sql.catalog.lake.s3.access-key-id",
    "spark.sql.catalog.lake.header.Authorization",
    "spark.ssl.keyStorePassword",
    "spark.authenticate.secret",
    "kafka.sasl.jaas.config",
    "kafka.ssl.keystore.key",
    "signing_key",
    "hmac_key",
    "shared_key",
    "client_key",
    "bearer",
    "connection_string",
    "kafka.ssl.key.password",
    "es.net.http.auth.pass",
    "sfPassword",
    "pem_private_key",
    "password",
]
HARMLESS = [
    "spark.hadoop.fs.s3a.aws.credentials.provider",
    "spark.hadoop.fs.s3a.encryption.algorithm",
    "spark.hadoop.hadoop.security.credential.provider.path",
    "spark.hadoop.fs.azure.account.auth.type",
    "spark.hadoop.fs.azure.account.keyprovider.lake.dfs.core.windows.net",
    "spark.hadoop.fs.azure.account.oauth2.client.endpoint",
    "spark.hadoop.fs.azure.sas.token.provider.type",
    "spark.hadoop.google.cloud.auth.service.account.json.keyfile",
    "spark.security.credentials.hive.enabled",
    "spark.io.encryption.keySizeBits",
    "spark.kerberos.keytab",
    "spark.sql.catalog.lake.token-expires-in-ms",
    "spark.redaction.regex",
    "kafka.sasl.mechanism",
    "kafka.sasl.oauthbearer.token.endpoint.url",
    "kafka.sasl.login.callback.handler.class",
    "kafka.ssl.truststore.location",
    "kafka.bootstrap.servers",
    "credentialsFile",
    "compression",
    "mergeSchema",
    "startingOffsets",
]


@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_credential_is_recognized_by_its_name(name):
    assert is_credential(name, "x")
    assert is_credential(name.lower(), "x")


@pytest.mark.parametrize("name", HARMLESS)
def test_an_option_that_only_describes_a_credential_is_not_one(name):
    assert not is_credential(name, "x")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("jdbc:postgresql://host/db?user=me&password=x", True),
        ("https://lake.blob.core.windows.net/c?sv=1&sig=abc", True),
        ("mongodb://me:x@host:27017", True),
        ("-Xmx1g -Djavax.net.ssl.trustStorePassword=x", True),
        ("Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey=x", True),
        ("hdfs://host:8020/a@b", False),
        ("abfss://container@lake.dfs.core.windows.net/a", False),
        ("b1:9092,b2:9092", False),
        ("(?i)secret|password|token", False),
    ],
)
def test_a_credential_within_a_value_is_recognized(value, expected):
    assert is_credential("option", value) is expected


def test_the_arn_of_a_key_is_not_a_credential():
    assert not is_credential("spark.hadoop.fs.s3a.encryption.key", "arn:aws:kms:eu-west-1:123456789012:key/1")


@pytest.mark.parametrize("table", ["spark_options", "source_options", "sink_options"])
@pytest.mark.parametrize(("option", "value"), [("fs.s3a.secret.key", "hunter2"), ("kafka.sasl.jaas.config", JAAS)])
def test_a_credential_in_the_file_is_refused_and_not_shown_in_the_error(file, table, option, value):
    path = file(f"[pipeline.{table}]\n\"{option}\" = '{value}'\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: [pipeline.{table}] {option} is a credential: remove it from the file")
    assert f"""set EFO_PIPELINE__{table.upper()}='{{"{option}": "..."}}' in the environment""" in message
    assert "hunter2" not in message


def test_options_from_the_environment_are_merged_with_those_of_the_file(file, monkeypatch):
    monkeypatch.setenv("EFO_PIPELINE__SPARK_OPTIONS", '{"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.b": "3"}')
    monkeypatch.setenv("EFO_PIPELINE__SOURCE_OPTIONS", json.dumps({"kafka.sasl.jaas.config": JAAS}))
    text = '[pipeline.spark_options]\n"spark.a" = "1"\n"spark.b" = "2"\n[pipeline]\nsource = "kafka"\n'
    settings = pipeline_settings(load(file(text)))
    assert settings.spark_options == {"spark.a": "1", "spark.b": "3", "spark.hadoop.fs.s3a.secret.key": "hunter2"}
    assert settings.source_options == {"kafka.sasl.jaas.config": JAAS}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_check_config_masks_only_credentials(file, monkeypatch, capsys, form):
    monkeypatch.setenv("EFO_PIPELINE__SPARK_OPTIONS", '{"spark.hadoop.fs.s3a.secret.key": "hunter2"}')
    monkeypatch.setenv("EFO_PIPELINE__SINK_OPTIONS", '{"url": "jdbc:x://me:hunter2@h", "compression": "gzip"}')
    monkeypatch.setenv("EFO_PIPELINE__SOURCE_OPTIONS", json.dumps({"kafka.sasl.jaas.config": JAAS}))
    assert call(["check-config", "--config", str(file()), *form]) == Exit.OK
    shown = capsys.readouterr().out
    assert "hunter2" not in shown
    assert shown.count('"**********"') == 3
    assert "gzip" in shown


def test_the_value_of_a_wrong_environment_variable_is_not_shown_in_the_error(file, monkeypatch):
    monkeypatch.setenv("EFO_PIPELINE__SPARK_OPTIONS", '{"spark.hadoop.fs.s3a.secret.key": hunter2}')
    with pytest.raises(ConfigurationError, match="environment") as caught:
        load(file())
    assert "hunter2" not in str(caught.value)
