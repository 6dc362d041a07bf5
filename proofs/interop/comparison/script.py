"""The calls of docs/fake.md, in an order that needs few streams. The same are made on both endpoints."""

from __future__ import annotations

import json
from typing import Any, Final

import trio

from proofs.interop.comparison.caller import Caller

FIRST, SECOND, THIRD = (f"shardId-{number:012d}" for number in range(3))
_MAX: Final = 2**128 - 1
_LOW: Final = "0"
_POLL: Final = 1.0
_STATUS_TIMEOUT: Final = 600.0
_CALL_INTERVAL: Final = 1.5
"""Seconds between two calls of SubscribeToShard for a shard: AWS permits one a second."""
_TAKEOVER: Final = 5.5
"""Seconds until a call may end the subscription of an earlier one: AWS refuses it for five."""
_BAD_TAG_CHARACTERS: Final = {"semicolon": ";", "comma": ",", "percent": "%", "tab": "\t", "newline": "\n"}


class Script:
    """The calls on one endpoint.

    `name`: of the stream that is created; its first characters must be unused. `streams`: those to delete afterwards.
    `names`: texts of this endpoint, for example its account, and what to write for them in a comparison.
    """

    def __init__(self, caller: Caller, name: str) -> None:
        self.names = {name: "STREAM"}
        self.streams: list[str] = []
        self._caller = caller
        self._name = name
        self._scaled = f"{name}-scaled"
        self._arn = ""
        self._consumer = ""

    async def run(self) -> None:
        """Make all calls. The streams are deleted by `clean_up`, and by the last calls."""
        await self._create()
        await self._reject_requests()
        await self._name_shards()
        await self._put_and_get()
        await self._tag()
        await self._retain()
        await self._set_policies()
        await self._fan_out()
        await self._reshard()
        await self._reject_reshards()
        await self._scale()
        await self._delete()

    async def clean_up(self) -> list[str]:
        """Delete the streams of this script. Return the names of those that are still there."""
        left = []
        for name in self.streams:
            for _ in range(2):
                gone = await self._caller.ask("DeleteStream", StreamName=name, EnforceConsumerDeletion=True)
                summary = await self._summary(name)
                if summary.get("StreamStatus") in {None, "DELETING"} and "failed" not in gone:
                    break
            else:
                left.append(name)
        return left

    # --- streams -------------------------------------------------------------------------------------------

    async def _create(self) -> None:
        call, name = self._caller.call, self._name
        self.streams.append(name)
        await call("create a stream", "CreateStream", StreamName=name, ShardCount=3)
        while_creating = "while CREATING: "
        await call(while_creating + "describe", "DescribeStream", StreamName=name)
        await call(while_creating + "list the shards", "ListShards", StreamName=name)
        await call(while_creating + "put", "PutRecord", **self._record())
        await call(while_creating + "split", "SplitShard", **self._split(FIRST, 2))
        await call(while_creating + "create it again", "CreateStream", StreamName=name, ShardCount=3)
        await self._wait(name, "ACTIVE")
        self._arn = str((await self._summary(name)).get("StreamARN", ""))
        _, _, _, region, account, *_ = [*self._arn.split(":"), *[""] * 5]
        self.names |= {text: word for text, word in ((account, "ACCOUNT"), (region, "REGION")) if text}
        await call("describe", "DescribeStream", StreamName=name)
        await call("describe by ARN", "DescribeStream", StreamARN=self._arn)
        await call("describe, a page of one shard", "DescribeStream", StreamName=name, Limit=1)
        await call("describe the summary", "DescribeStreamSummary", StreamName=name)
        await call("list the shards", "ListShards", StreamName=name)

    async def _reject_requests(self) -> None:
        call, send, name = self._caller.call, self._caller.send, self._name
        unknown = self._name + "-unknown"
        await call("unknown stream", "DescribeStream", StreamName=unknown)
        await call("unknown stream, by ARN", "DescribeStream", StreamARN=self._arn + "-unknown")
        await call("neither name nor ARN", "DescribeStream")
        await call("name and ARN of different streams", "DescribeStream", StreamName=unknown, StreamARN=self._arn)
        await call("unknown operation", "NoSuchOperation")
        await send("a body that is not JSON", "ListStreams", b"hello")
        await send("an empty body", "ListStreams", b"")
        await call("a member of the wrong type", "ListStreams", Limit="ten")
        await call("two violations", "CreateStream", StreamName="no spaces", ShardCount=0)
        await call("missing members", "SplitShard")
        await call("base64 that is not canonical", "PutRecord", **self._elsewhere() | {"Data": "+/+="})
        await call("base64 of a wrong length", "PutRecord", **self._elsewhere() | {"Data": "23456"})
        await call(
            "shard filter without its member", "ListShards", StreamName=name, ShardFilter={"Type": "AT_TIMESTAMP"}
        )
        page = await call("a page of one shard", "ListShards", StreamName=name, MaxResults=1)
        token = str(page.get("NextToken", "none"))
        await call("a token with a name", "ListShards", StreamName=name, NextToken=token)
        await call("the next page", "ListShards", NextToken=token)
        await call("stop an encryption that is not on", "StopStreamEncryption", **self._key())

    async def _name_shards(self) -> None:
        for shard in ("x-0", "0", "shardId-5", "2147483648", "ABKLFD8", "2.14E4"):
            members = {"StreamName": self._name, "ShardId": shard, "ShardIteratorType": "LATEST"}
            await self._caller.call(f"iterator of shard {shard}", "GetShardIterator", **members)

    # --- records -------------------------------------------------------------------------------------------

    async def _put_and_get(self) -> None:
        call, name = self._caller.call, self._name
        first = await call("put a record", "PutRecord", **self._record())
        entries = [{"Data": "Yg==", "PartitionKey": "k", "ExplicitHashKey": key} for key in (_LOW, str(_MAX))]
        await call("put two records", "PutRecords", StreamName=name, Records=entries)
        await call("put too many records", "PutRecords", StreamName=name, Records=entries[1:] * 501)
        await call("a hash key that is too large", "PutRecord", **self._record(str(_MAX + 1)))
        await call("an empty partition key", "PutRecord", **self._elsewhere() | {"PartitionKey": ""})
        number = str(first.get("SequenceNumber", "0"))
        kinds: dict[str, dict[str, Any]] = {
            "TRIM_HORIZON": {},
            "LATEST": {},
            "AT_TIMESTAMP": {"Timestamp": self._caller.clock() - 3600},
            "AT_SEQUENCE_NUMBER": {"StartingSequenceNumber": number},
            "AFTER_SEQUENCE_NUMBER": {"StartingSequenceNumber": number},
        }
        for kind, position in kinds.items():
            iterator = await call(f"iterator {kind}", "GetShardIterator", **self._iterator(FIRST, kind, **position))
            await self._get(f"records from {kind}", iterator)
        wrong = {
            "AT_SEQUENCE_NUMBER without a number": self._iterator(FIRST, "AT_SEQUENCE_NUMBER"),
            "LATEST with a number": self._iterator(FIRST, "LATEST", StartingSequenceNumber=number),
            "a number of another shard": self._iterator(SECOND, "AT_SEQUENCE_NUMBER", StartingSequenceNumber=number),
            "a time in the future": self._iterator(FIRST, "AT_TIMESTAMP", Timestamp=self._caller.clock() + 86_400),
        }
        for label, members in wrong.items():
            await call(f"iterator: {label}", "GetShardIterator", **members)
        await call("an invalid iterator", "GetRecords", ShardIterator="AAAA")

    async def _get(self, label: str, iterator: dict[str, Any]) -> None:
        await self._caller.call(label, "GetRecords", ShardIterator=str(iterator.get("ShardIterator", "none")))

    # --- settings ------------------------------------------------------------------------------------------

    async def _tag(self) -> None:
        call, name = self._caller.call, self._name
        await call("add tags", "AddTagsToStream", StreamName=name, Tags={"ü0 _.": "a", "/=+-@": "", "a:b": "c"})
        await call("list the tags", "ListTagsForStream", StreamName=name)
        for word, character in _BAD_TAG_CHARACTERS.items():
            key = f"a{character}b"
            await call(f"{word} in a tag's key", "AddTagsToStream", StreamName=name, Tags={key: "1"})
            await call(f"{word} in a tag's value", "AddTagsToStream", StreamName=name, Tags={"a": key})
            await call(f"remove a tag with a {word}", "RemoveTagsFromStream", StreamName=name, TagKeys=[key])
        await call("remove a tag and a missing one", "RemoveTagsFromStream", StreamName=name, TagKeys=["a:b", "none"])
        await call("list the tags of the resource", "ListTagsForResource", ResourceARN=self._arn)

    async def _retain(self) -> None:
        for verb, hours in (
            ("Increase", 24), ("Decrease", 24), ("Increase", 23), ("Decrease", 23), ("Increase", 8761),
            ("Decrease", 25), ("Increase", 25), ("Increase", 24), ("Decrease", 24),
        ):  # fmt: skip
            operation = f"{verb}StreamRetentionPeriod"
            before = (await self._summary(self._name)).get("RetentionPeriodHours")
            label = f"{verb} retention from {before} to {hours} hours"
            await self._caller.call(label, operation, StreamName=self._name, RetentionPeriodHours=hours)
            await self._wait(self._name, "ACTIVE")

    async def _set_policies(self) -> None:
        call, arn = self._caller.call, self._arn
        _, _, _, _, account, *_ = [*arn.split(":"), *[""] * 5]
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{account}:root"},
            "Action": "kinesis:PutRecord",
            "Resource": arn,
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        await call("policy of a stream without one", "GetResourcePolicy", ResourceARN=arn)
        await call("put an invalid policy", "PutResourcePolicy", ResourceARN=arn, Policy="{}")
        await call("put a policy", "PutResourcePolicy", ResourceARN=arn, Policy=policy)
        await call("the policy", "GetResourcePolicy", ResourceARN=arn)
        await call("delete the policy", "DeleteResourcePolicy", ResourceARN=arn)
        await call("delete it again", "DeleteResourcePolicy", ResourceARN=arn)

    # --- fan-out -------------------------------------------------------------------------------------------

    async def _fan_out(self) -> None:
        call, arn = self._caller.call, self._arn
        by_name = {"StreamARN": arn, "ConsumerName": "c"}
        registered = await call("register a consumer", "RegisterStreamConsumer", **by_name)
        consumer = str(registered.get("Consumer", {}).get("ConsumerARN", arn + "/consumer/c:1"))
        start = {"Type": "TRIM_HORIZON"}
        await self._subscribe("subscribe while the consumer is CREATING", 0, consumer, FIRST, start)
        await call("register it again", "RegisterStreamConsumer", **by_name)
        await call("an unknown consumer", "DescribeStreamConsumer", StreamARN=arn, ConsumerName="unknown")
        with trio.move_on_after(_STATUS_TIMEOUT):
            while (await self._described(by_name)).get("ConsumerStatus") == "CREATING":  # noqa: ASYNC110 - of a server
                await trio.sleep(_POLL)
        await call("describe the consumer", "DescribeStreamConsumer", ConsumerARN=consumer)
        await call("list the consumers", "ListStreamConsumers", StreamARN=arn)
        await self._subscribe("subscribe to an unknown shard", 0, consumer, "shardId-000000000099", start)
        no_number = {"Type": "AT_SEQUENCE_NUMBER"}
        await self._subscribe("subscribe without a number", 0, consumer, SECOND, no_number)
        await trio.sleep(_CALL_INTERVAL)
        await self._subscribe("subscribe", 2, consumer, FIRST, start)
        await trio.sleep(_CALL_INTERVAL)
        await self._subscribe("subscribe again within five seconds", 0, consumer, FIRST, start)
        self._consumer = consumer

    async def _subscribe(self, label: str, records: int, consumer: str, shard: str, start: dict[str, Any]) -> None:
        position = {"ConsumerARN": consumer, "ShardId": shard, "StartingPosition": start}
        await self._caller.subscribe(label, records, **position)

    async def _described(self, consumer: dict[str, Any]) -> dict[str, Any]:
        described = await self._caller.ask("DescribeStreamConsumer", **consumer)
        return dict(described.get("ConsumerDescription", {}))

    # --- shards --------------------------------------------------------------------------------------------

    async def _reject_reshards(self) -> None:
        call = self._caller.call
        lowest, next_, highest = (f"shardId-{number:012d}" for number in (3, 4, 5))  # since the split and the merge
        scaling = {"StreamName": self._name, "ScalingType": "UNIFORM_SCALING"}
        for label, operation, members in (
            ("merge shards that are not adjacent", "MergeShards", self._merge(lowest, highest)),
            ("scale to more than double", "UpdateShardCount", scaling | {"TargetShardCount": 7}),
            ("scale to less than half", "UpdateShardCount", scaling | {"TargetShardCount": 1}),
            ("split an unknown shard", "SplitShard", self._split("shardId-9", 2)),
            ("split at the key of another shard", "SplitShard", self._split(lowest, _MAX)),
            ("split at the ending key", "SplitShard", self._split(lowest, 999)),
            ("split at start + 1", "SplitShard", self._split(lowest, 1)),
            ("merge, upper shard first", "MergeShards", self._merge(next_, lowest)),
        ):
            await call(label, operation, **members)
            await self._wait(self._name, "ACTIVE")  # a server may accept what AWS refuses

    async def _reshard(self) -> None:
        call, name = self._caller.call, self._name
        for label, operation, members in (
            ("split", "SplitShard", self._split(FIRST, 1000)),
            ("merge", "MergeShards", self._merge(SECOND, THIRD)),
        ):
            iterator = await self._caller.ask("GetShardIterator", **self._iterator(FIRST, "TRIM_HORIZON"))
            await call(label, operation, **members)
            while_updating = f"{label}, while UPDATING: "
            await call(while_updating + "list the shards", "ListShards", StreamName=name)
            await call(while_updating + "put", "PutRecord", **self._record())
            await call(while_updating + "split", "SplitShard", **self._split(SECOND, _MAX // 2))
            await self._wait(name, "ACTIVE")
            await call(f"{label}: the shards", "ListShards", StreamName=name)
            await call(f"{label}: put", "PutRecord", **self._record())
            await self._get(f"{label}: the records of the first shard", iterator)
            latest = await self._caller.ask("GetShardIterator", **self._iterator(FIRST, "LATEST"))
            await self._get(f"{label}: the end of the first shard", latest)
            at_latest = {"StreamName": name, "ShardFilter": {"Type": "AT_LATEST"}}
            await call(f"{label}: the open shards", "ListShards", **at_latest)
            at_end = {"Type": "LATEST"}
            await trio.sleep(_TAKEOVER)  # a server that is UPDATING for a moment only would still refuse it
            await self._subscribe(f"{label}: subscribe to the first shard", 0, self._consumer, FIRST, at_end)
        await call("split a closed shard", "SplitShard", **self._split(FIRST, 500))

    async def _scale(self) -> None:
        call, name = self._caller.call, self._scaled
        self.streams.append(name)
        await self._caller.ask("CreateStream", StreamName=name, ShardCount=5)
        await self._wait(name, "ACTIVE")
        scaling = {"StreamName": name, "TargetShardCount": 3, "ScalingType": "UNIFORM_SCALING"}
        await call("scale from 5 to 3", "UpdateShardCount", **scaling)
        await self._wait(name, "ACTIVE")
        await call("scale: the shards", "ListShards", StreamName=name)
        await self._caller.ask("DeleteStream", StreamName=name)

    async def _delete(self) -> None:
        call, name = self._caller.call, self._name
        await call("delete a stream with a consumer", "DeleteStream", StreamName=name)
        await call("deregister the consumer", "DeregisterStreamConsumer", ConsumerARN=self._consumer)
        await call("delete", "DeleteStream", StreamName=name, EnforceConsumerDeletion=True)
        await call("while DELETING: describe the summary", "DescribeStreamSummary", StreamName=name)
        await call("while DELETING: put", "PutRecord", **self._record())
        await call("while DELETING: list the shards", "ListShards", StreamName=name)
        await self._wait(name, None)
        await call("describe a deleted stream", "DescribeStream", StreamName=name)

    # --- members -------------------------------------------------------------------------------------------

    async def _summary(self, name: str) -> dict[str, Any]:
        described = await self._caller.ask("DescribeStreamSummary", StreamName=name)
        return dict(described.get("StreamDescriptionSummary", {}))

    async def _wait(self, name: str, status: str | None) -> None:
        """Wait until the stream has this status; None: until there is no such stream. Give up after ten minutes."""
        found = None
        with trio.move_on_after(_STATUS_TIMEOUT):
            while (found := (await self._summary(name)).get("StreamStatus")) not in {status, None}:  # noqa: ASYNC110
                await trio.sleep(_POLL)
        if found != status:
            self._caller.observations[f"wait until {status or 'deleted'}"] = {"status": found}

    def _record(self, hash_key: str = _LOW) -> dict[str, Any]:
        return {"StreamName": self._name, "Data": "YQ==", "PartitionKey": "k", "ExplicitHashKey": hash_key}

    def _elsewhere(self) -> dict[str, Any]:
        """Return a record for a shard that is not read: a server may take a record that AWS refuses."""
        return self._record(str(_MAX))

    def _key(self) -> dict[str, Any]:
        return {"StreamName": self._name, "EncryptionType": "KMS", "KeyId": "alias/aws/kinesis"}

    def _iterator(self, shard: str, kind: str, **position: Any) -> dict[str, Any]:
        return {"StreamName": self._name, "ShardId": shard, "ShardIteratorType": kind, **position}

    def _split(self, shard: str, key: int) -> dict[str, Any]:
        return {"StreamName": self._name, "ShardToSplit": shard, "NewStartingHashKey": str(key)}

    def _merge(self, lower: str, upper: str) -> dict[str, Any]:
        return {"StreamName": self._name, "ShardToMerge": lower, "AdjacentShardToMerge": upper}
