// The AWS SDK for JavaScript v3 as a witness: SubscribeToShard over node's http2.
import {
  DescribeStreamConsumerCommand,
  DescribeStreamSummaryCommand,
  KinesisClient,
  KinesisServiceException,
  ListShardsCommand,
  RegisterStreamConsumerCommand,
  SubscribeToShardCommand,
} from "@aws-sdk/client-kinesis";
import { setTimeout as sleep } from "node:timers/promises";

const { WITNESS_ENDPOINT, WITNESS_STREAM, WITNESS_CONSUMER } = process.env;
const NO_SHARD = "shardId-000000009999";
const TRIM_HORIZON = { Type: "TRIM_HORIZON" };
const NO_NUMBER = { Type: "AT_SEQUENCE_NUMBER" };
const PAUSE = 1500; // ms between two calls for one shard: more than one a second is refused for that alone
const TRY_LATER = new Set(["ResourceInUseException", "LimitExceededException"]);

const kinesis = new KinesisClient({ endpoint: WITNESS_ENDPOINT });
const ended = new Set();
let consumerARN;

function say(what) {
  process.stdout.write(`${JSON.stringify(what)}\n`);
}

/** Register the consumer and wait until it is ACTIVE. */
async function register() {
  const stream = await kinesis.send(new DescribeStreamSummaryCommand({ StreamName: WITNESS_STREAM }));
  const { StreamARN } = stream.StreamDescriptionSummary;
  const made = await kinesis.send(new RegisterStreamConsumerCommand({ StreamARN, ConsumerName: WITNESS_CONSUMER }));
  consumerARN = made.Consumer.ConsumerARN;
  for (;;) {
    const told = await kinesis.send(new DescribeStreamConsumerCommand({ ConsumerARN: consumerARN }));
    if (told.ConsumerDescription.ConsumerStatus === "ACTIVE") return;
    await sleep(200);
  }
}

async function subscribe(shard, position) {
  const answer = await kinesis.send(
    new SubscribeToShardCommand({ ConsumerARN: consumerARN, ShardId: shard, StartingPosition: position }),
  );
  return answer.EventStream;
}

async function beRefused(what, shard, position) {
  try {
    await subscribe(shard, position);
  } catch (error) {
    if (!(error instanceof KinesisServiceException)) throw error;
    say({ refused: { what, error: error.constructor.name } });
  }
}

/** Read a shard to its end, then its children; subscribe again whenever a subscription ends. */
async function read(shard) {
  let position = TRIM_HORIZON;
  for (;;) {
    let events;
    try {
      events = await subscribe(shard, position);
    } catch (error) {
      if (!TRY_LATER.has(error.name)) throw error;
      await sleep(PAUSE);
      continue;
    }
    for await (const { SubscribeToShardEvent: event } of events) {
      for (const record of event.Records) {
        const data = Buffer.from(record.Data).toString("base64");
        say({ record: { shard, sequence: record.SequenceNumber, key: record.PartitionKey, data } });
      }
      if (event.ChildShards?.length) return follow(shard, event.ChildShards);
      position = { Type: "AFTER_SEQUENCE_NUMBER", SequenceNumber: event.ContinuationSequenceNumber };
    }
  }
}

/** Say a shard's end, and read the children whose parents have all ended. */
async function follow(shard, children) {
  say({ shard_end: { shard, children: children.map((child) => child.ShardId) } });
  ended.add(shard);
  const ready = children.filter((child) => child.ParentShards.every((parent) => ended.has(parent)));
  await Promise.all(ready.map((child) => read(child.ShardId)));
}

await register();
const { Shards } = await kinesis.send(new ListShardsCommand({ StreamName: WITNESS_STREAM }));
const shards = Shards.map((shard) => shard.ShardId);
await beRefused("unknown shard", NO_SHARD, TRIM_HORIZON);
await beRefused("position without its number", shards[0], NO_NUMBER);
await sleep(PAUSE);
const reading = Promise.all(shards.map(read));
await sleep(PAUSE);
await beRefused("second subscription", shards[0], TRIM_HORIZON);
await reading; // goes on until the driver has heard enough
