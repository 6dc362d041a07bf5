"""From KCL's properties to efo's settings: each row of the table, and what is refused."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from efo.errors import ConfigurationError
from efo_service.multilang.configuration import properties_of, translate
from efo_service.multilang.properties import OPTIONS

BASE = {
    "executableName": "python app.py",
    "streamName": "orders",
    "applicationName": "billing",
    "AwsCredentialsProvider": "DefaultCredentialsProvider",
}


def translated(**changes):
    values = BASE | {name.replace("__", "."): value for name, value in changes.items()}
    return translate("\n".join(f"{name} = {value}" for name, value in values.items() if value is not None), "app.x")


def settings(**changes):
    return translated(**changes).configuration.first


def test_the_least_that_a_file_has_is_enough():
    found = translated()
    first = found.configuration.first
    assert found.children.command == ("python", "app.py")
    assert (found.children.timeout, found.children.max_records, found.children.empty_after) == (None, None, None)
    assert (first.kinesis.stream, first.consumer.application) == ("orders", "billing")
    assert (first.leases.store, first.leases.dynamodb.table) == ("dynamodb", None)
    assert (first.consumer.initial_position, first.consumer.read_mode) == ("latest", "fanout")
    assert first.cloudwatch.level == "detailed"
    assert not found.notes


ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
CONSUMER = f"{ARN}/consumer/efo:1700000000"
TAKEN = [
    ("streamName", "clicks", "kinesis.stream", "clicks"),
    ("streamArn", ARN, "kinesis.stream", ARN),
    ("applicationName", "other", "consumer.application", "other"),
    ("tableName", "leases-of-it", "leases.dynamodb.table", "leases-of-it"),
    ("workerId", "w1", "leases.worker_id", "w1"),
    ("workerIdentifier", "w1", "leases.worker_id", "w1"),
    ("regionName", "eu-west-1", "kinesis.region", "eu-west-1"),
    ("kinesisEndpoint", "https://k.example:1", "kinesis.endpoint_url", "https://k.example:1"),
    ("kinesisClient.endpointOverride", "https://k.example:1", "kinesis.endpoint_url", "https://k.example:1"),
    ("kinesisClient.region", "eu-west-1", "kinesis.region", "eu-west-1"),
    ("dynamoDBEndpoint", "http://d.example:1", "leases.dynamodb.endpoint_url", "http://d.example:1"),
    ("dynamoDbClient.endpointOverride", "http://d.example:1", "leases.dynamodb.endpoint_url", "http://d.example:1"),
    ("dynamoDbClient.region", "eu-west-1", "leases.dynamodb.region", "eu-west-1"),
    ("dynamoDBRegionName", "eu-west-1", "leases.dynamodb.region", "eu-west-1"),
    ("cloudWatchClient.endpointOverride", "http://c.example:1", "cloudwatch.endpoint_url", "http://c.example:1"),
    ("cloudWatchClient.region", "eu-west-1", "cloudwatch.region", "eu-west-1"),
    ("cloudWatchRegionName", "eu-west-1", "cloudwatch.region", "eu-west-1"),
    ("AwsCredentialsProvider", "ProfileCredentialsProvider|prod", "kinesis.profile", "prod"),
    ("AwsCredentialsProviderDynamoDB", "ProfileCredentialsProvider|prod", "leases.dynamodb.profile", "prod"),
    ("AwsCredentialsProviderCloudWatch", "ProfileCredentialsProvider|prod", "cloudwatch.profile", "prod"),
    ("initialPositionInStream", "TRIM_HORIZON", "consumer.initial_position", "trim_horizon"),
    ("initialPositionInStreamExtended", "1636609142", "consumer.initial_position", "2021-11-11T05:39:02+00:00"),
    ("timestampAtInitialPositionInStream", "1636609142", "consumer.initial_position", "2021-11-11T05:39:02+00:00"),
    ("retrievalMode", "POLLING", "consumer.read_mode", "polling"),
    ("fanoutConfig.consumerArn", CONSUMER, "consumer.consumer_arn", CONSUMER),
    ("fanoutConfig.consumerName", "reader", "consumer.consumer_name", "reader"),
    ("idleTimeBetweenReadsInMillis", "2500", "consumer.poll_seconds", 2.5),
    ("pollingConfig.idleTimeBetweenReadsInMillis", "2500", "consumer.poll_seconds", 2.5),
    ("failoverTimeMillis", "20000", "leases.failover_seconds", 20.0),
    ("shardSyncIntervalMillis", "30000", "consumer.shard_sync_seconds", 30.0),
    ("cleanupLeasesUponShardCompletion", "false", "leases.lease_cleanup", False),
    ("maxLeasesForWorker", "7", "leases.max_leases", 7),
    ("maxActiveThreads", "9", "leases.max_leases", 9),
    ("isGracefulLeaseHandoffEnabled", "false", "leases.graceful_handoff", False),
    ("gracefulLeaseHandoffTimeoutMillis", "45000", "leases.handoff_seconds", 45.0),
    ("leaseTableDeletionProtectionEnabled", "true", "leases.dynamodb.deletion_protection", True),
    ("leaseTablePitrEnabled", "true", "leases.dynamodb.point_in_time_recovery", True),
    ("workerMetricsTableName", "loads", "leases.dynamodb.worker_metrics_table", "loads"),
    ("shutdownGraceMillis", "7000", "service.drain_seconds", 7.0),
    ("metricsLevel", "NONE", "cloudwatch.level", "none"),
    ("metricsEnabledDimensions", "Operation, WorkerIdentifier", "cloudwatch.worker_dimension", True),
]
ELSEWHERE = {
    "executableName", "maxRecords", "pollingConfig.maxRecords", "callProcessRecordsEvenForEmptyRecordList",
    "timeoutInSeconds", "initialLeaseTableReadCapacity", "initialLeaseTableWriteCapacity",
}  # fmt: skip
"""Rows with a test of their own."""


@pytest.mark.parametrize(("name", "value", "path", "expected"), TAKEN)
def test_a_property_becomes_a_setting(name, value, path, expected):
    found = translate("\n".join(f"{key} = {text}" for key, text in (BASE | {name: value}).items()), "app.x")
    setting = found.configuration.first
    for part in path.split("."):
        setting = getattr(setting, part)
    assert setting == expected


def test_each_row_has_a_test():
    tested = {name for name, *_ in TAKEN} | ELSEWHERE
    assert tested == {option.name for option in OPTIONS.values() if option.effect in {"taken", "mapped"}}


@pytest.mark.parametrize("name", [option.name for option in OPTIONS.values() if option.effect == "no effect"])
def test_a_property_without_effect_is_reported(name):
    (note,) = translate("\n".join(f"{key} = {text}" for key, text in (BASE | {name: "1"}).items()), "app.x").notes
    assert note.startswith(f"{name} has no effect: ")


@pytest.mark.parametrize("name", [option.name for option in OPTIONS.values() if option.effect == "refused"])
def test_a_property_that_cannot_hold_is_refused(name):
    with pytest.raises(ConfigurationError, match=rf"^app.x: {name}: "):
        translated(**{name: "1"})


def test_names_are_found_in_any_case():
    assert settings(AWSCREDENTIALSPROVIDER="ProfileCredentialsProvider|p", AwsCredentialsProvider=None).kinesis.profile


def test_a_role_that_would_change_the_account_of_the_lease_table_is_refused():
    role = "StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/reader"
    with pytest.raises(ConfigurationError, match="lease table is in the account of this role"):
        translated(AwsCredentialsProvider=role)
    found = settings(AwsCredentialsProvider=role, AwsCredentialsProviderDynamoDB="DefaultCredentialsProvider")
    assert found.kinesis.role is not None


def test_an_unknown_property_is_reported_and_has_no_effect():
    assert translated(failoverTimeMilis="1").notes == (
        "failoverTimeMilis is no property of KCL, and has no effect: did you mean failoverTimeMillis?",
    )


def test_the_settings_of_children():
    found = translated(
        maxRecords="500", callProcessRecordsEvenForEmptyRecordList="true", timeoutInSeconds="30", retrievalMode="FANOUT"
    )
    assert (found.children.max_records, found.children.empty_after, found.children.timeout) == (500, 1.0, 30.0)
    assert translated(pollingConfig__maxRecords="7").children.max_records == 7
    idle = translated(callProcessRecordsEvenForEmptyRecordList="true", idleTimeBetweenReadsInMillis="3000")
    assert idle.children.empty_after == 3.0


def test_the_capacity_of_the_table():
    found = settings(initialLeaseTableReadCapacity="5", initialLeaseTableWriteCapacity="6").leases.dynamodb
    assert (found.read_capacity, found.write_capacity) == (5, 6)


@pytest.mark.parametrize("name", ["maxRecords", "idleTimeBetweenReadsInMillis", "retryGetRecordsInSeconds"])
def test_a_property_of_polling_means_polling_as_in_kcl(name):
    assert settings(**{name: "1000"}).consumer.read_mode == "polling"
    assert settings(**{name: "1000", "retrievalMode": "FANOUT"}).consumer.read_mode == "fanout"
    assert settings(**{name: "1000", "retrievalMode": "AUTO"}).consumer.read_mode == "auto"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_time_goes_before_a_position_as_in_kcl(is_first):
    time = {"initialPositionInStreamExtended": "1636609142"}
    both = time | {"initialPositionInStream": "LATEST"} if is_first else {"initialPositionInStream": "LATEST"} | time
    assert settings(**both).consumer.initial_position == "2021-11-11T05:39:02+00:00"


def test_the_lower_of_two_limits_counts_and_kcls_default_is_none():
    assert settings(maxLeasesForWorker="7", maxActiveThreads="5").leases.max_leases == 5
    assert settings(maxLeasesForWorker=str(2**31 - 1), maxActiveThreads="0").leases.max_leases is None


@pytest.mark.parametrize("name", ["executableName", "streamName", "applicationName"])
def test_what_is_needed_is_named(name):
    with pytest.raises(ConfigurationError, match=f"app.x: {name} is missing"):
        translated(**{name: None})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("failoverTimeMillis", "soon"),
        ("maxRecords", "1.5"),
        ("initialPositionInStream", "AT_TIMESTAMP"),
        ("initialPositionInStreamExtended", "9" * 30),
        ("retrievalMode", "FAST"),
        ("metricsLevel", "ALL"),
    ],
)
def test_a_wrong_value_is_refused_with_its_property(name, value):
    with pytest.raises(ConfigurationError, match=f"app.x: {name}="):
        translated(**{name: value})


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(ConfigurationError) as caught:
        translated(failoverTimeMillis="x", executableName=None, kinesisClient__httpClient="y")
    assert len(str(caught.value).splitlines()) == 3


def test_a_broken_file_is_refused_with_its_name():
    with pytest.raises(ConfigurationError, match=r"app\.x: line 1"):
        translate("a = \\u1", "app.x")


def test_the_environment_goes_before_the_file(monkeypatch):
    monkeypatch.setenv("EFO_SERVICE__PORT", "0")
    monkeypatch.setenv("EFO_CONSUMER__APPLICATION", "other")
    found = settings()
    assert (found.service.port, found.consumer.application) == (0, "other")


# --- the format of the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a = b", {"a": "b"}),
        ("a=b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a\tb c ", {"a": "b c"}),
        ("  a  =  b  ", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a = = b", {"a": "= b"}),
        ("# a = b\n! c = d\n\n  # e\nf = g", {"f": "g"}),
        ("a = b \\\n   c", {"a": "b c"}),
        ("a = b\\\r\n  # c", {"a": "b# c"}),
        ("a = b\\\\\nc = d", {"a": "b\\", "c": "d"}),
        (r"a\ b\:c = d", {"a b:c": "d"}),
        (r"a = \u00e9\t\q", {"a": "é\tq"}),
        ("a = 1\na = 2", {"a": "2"}),
        ("a = x # no comment", {"a": "x # no comment"}),
        ("a = b\\", {"a": "b"}),
        ("a = arn:aws:kinesis:us-east-5:0:stream/x", {"a": "arn:aws:kinesis:us-east-5:0:stream/x"}),
        (r"a = \ud83d\ude00", {"a": "😀"}),
        (r"a = \ud83d", {"a": "\ufffd"}),
        ("a = b \\\n\nc = d", {"a": "b", "c": "d"}),
        ("\u00e9 = \u00e8", {"é": "è"}),
        ("", {}),
    ],
)
def test_lines_are_read_as_java_reads_them(text, values):
    assert properties_of(text) == values


def test_an_incomplete_escape_is_refused_with_its_line():
    with pytest.raises(ConfigurationError, match="line 2"):
        properties_of("a = b\nc = \\u12")


@given(st.text())
def test_any_text_is_read_or_refused(text):
    with suppress(ConfigurationError):
        properties_of(text)
