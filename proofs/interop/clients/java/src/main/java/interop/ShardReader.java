package interop;

import software.amazon.kinesis.exceptions.InvalidStateException;
import software.amazon.kinesis.exceptions.ShutdownException;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.processor.ShardRecordProcessor;

/** Reports every record of one shard, and its end. */
final class ShardReader implements ShardRecordProcessor {
    private final TranscriptWriter transcript;
    private String shard;

    ShardReader(TranscriptWriter transcript) {
        this.transcript = transcript;
    }

    @Override
    public void initialize(InitializationInput input) {
        shard = input.shardId();
    }

    @Override
    public void processRecords(ProcessRecordsInput input) {
        input.records()
                .forEach(record -> transcript.record(
                        shard,
                        record.sequenceNumber(),
                        record.subSequenceNumber(),
                        record.partitionKey(),
                        record.explicitHashKey(),
                        record.data()));
    }

    @Override
    public void shardEnded(ShardEndedInput input) {
        transcript.shardEnd(shard);
        try {
            input.checkpointer().checkpoint();
        } catch (InvalidStateException | ShutdownException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void leaseLost(LeaseLostInput input) {}

    @Override
    public void shutdownRequested(ShutdownRequestedInput input) {}
}
