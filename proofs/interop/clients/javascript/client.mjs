// The AWS SDK for JavaScript v3 as an interop client: SubscribeToShard over node's http2.
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

const { INTEROP_ENDPOINT, INTEROP_STREAM, INTEROP_CONSUMER } = process.env;
const NO_SHARD = "shardId-000000009999";
const TRIM_HORIZON = { Type: "TRIM_HORIZON" };
const NO_NUMBER = { Type: "AT_SEQUENCE_NUMBER" };
const PAUSE = 1500; // ms between two calls for one shard: at most one call per second is allowed
const RETRYABLE = new Set(["ResourceInUseException", "LimitExceededException"]);

const kinesis = new KinesisClient({ endpoint: INTEROP_ENDPOINT });
const ended = new Set();
let consumerARN;

function report(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** Register the consumer and wait until it is ACTIVE. */
async function register() {
  const stream = await kinesis.send(new DescribeStreamSummaryCommand({ StreamName: INTEROP_STREAM }));
  const { StreamARN } = stream.StreamDescriptionSummary;
  const registered = await kinesis.send(
    new RegisterStreamConsumerCommand({ StreamARN, ConsumerName: INTEROP_CONSUMER }),
  );
  consumerARN = registered.Consumer.ConsumerARN;
  for (;;) {
    const described = await kinesis.send(new DescribeStreamConsumerCommand({ ConsumerARN: consumerARN }));
    if (described.ConsumerDescription.ConsumerStatus === "ACTIVE") return;
    await sleep(200);
  }
}

async function subscribe(shard, position) {
  const response = await kinesis.send(
    new SubscribeToShardCommand({ ConsumerARN: consumerARN, ShardId: shard, StartingPosition: position }),
  );
  return response.EventStream;
}

async function expectRefusal(what, shard, position) {
  try {
    await subscribe(shard, position);
  } catch (error) {
    if (!(error instanceof KinesisServiceException)) throw error;
    report({ refused: { what, error: error.constructor.name } });
  }
}

/** Read a shard to its end, then its children. Subscribe again whenever a subscription ends. */
async function read(shard) {
  let position = TRIM_HORIZON;
  for (;;) {
    let events;
    try {
      events = await subscribe(shard, position);
    } catch (error) {
      if (!RETRYABLE.has(error.name)) throw error;
      await sleep(PAUSE);
      continue;
    }
    for await (const { SubscribeToShardEvent: event } of events) {
      for (const record of event.Records) {
        const data = Buffer.from(record.Data).toString("base64");
        report({ record: { shard, sequence: record.SequenceNumber, key: record.PartitionKey, data } });
      }
      if (event.ChildShards?.length) return follow(shard, event.ChildShards);
      position = { Type: "AFTER_SEQUENCE_NUMBER", SequenceNumber: event.ContinuationSequenceNumber };
    }
  }
}

/** Report a shard's end, and read the children whose parents have all ended. */
async function follow(shard, children) {
  report({ shard_end: { shard, children: children.map((child) => child.ShardId) } });
  ended.add(shard);
  const ready = children.filter((child) => child.ParentShards.every((parent) => ended.has(parent)));
  await Promise.all(ready.map((child) => read(child.ShardId)));
}

await register();
const { Shards } = await kinesis.send(new ListShardsCommand({ StreamName: INTEROP_STREAM }));
const shards = Shards.map((shard) => shard.ShardId);
await expectRefusal("unknown shard", NO_SHARD, TRIM_HORIZON);
await expectRefusal("position without its number", shards[0], NO_NUMBER);
await sleep(PAUSE);
const reading = Promise.all(shards.map(read));
await sleep(PAUSE);
await expectRefusal("second subscription", shards[0], TRIM_HORIZON);
await reading; // until the runner terminates the process
