package interop;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Base64;
import software.amazon.kinesis.common.StreamIdentifier;
import software.amazon.kinesis.exceptions.InvalidStateException;
import software.amazon.kinesis.exceptions.ShutdownException;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.ShardRecordProcessorFactory;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** Reports every record of one shard with its time of arrival, and checkpoints in KCL's two phases. */
final class CheckpointingReader implements ShardRecordProcessor {
    private final String stream;
    private String shard;

    private CheckpointingReader(String stream) {
        this.stream = stream;
    }

    /** Makes a reader per shard; of several streams, it is told whose shard it is. */
    static final class Factory implements ShardRecordProcessorFactory {
        @Override
        public ShardRecordProcessor shardRecordProcessor() {
            return new CheckpointingReader(null);
        }

        @Override
        public ShardRecordProcessor shardRecordProcessor(StreamIdentifier stream) {
            return new CheckpointingReader(stream.accountIdOptional().isPresent() ? stream.streamName() : null);
        }
    }

    @Override
    public void initialize(InitializationInput input) {
        shard = stream == null ? input.shardId() : stream + "/" + input.shardId();
    }

    @Override
    public void processRecords(ProcessRecordsInput input) {
        if (input.records().isEmpty()) {
            return;
        }
        StringBuilder lines = new StringBuilder();
        input.records().forEach(record -> lines.append(line(record)).append('\n'));
        synchronized (System.out) {
            System.out.print(lines);
            System.out.flush();
        }
        checkpoint(input.checkpointer());
    }

    private String line(KinesisClientRecord record) {
        byte[] data = new byte[record.data().remaining()];
        record.data().duplicate().get(data);
        long at = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        return String.format(
                "{\"at\":%d,\"shard\":\"%s\",\"sequence\":\"%s\",\"key\":\"%s\",\"data\":\"%s\"}",
                at, shard, record.sequenceNumber(), record.partitionKey(), Base64.getEncoder().encodeToString(data));
    }

    private static void checkpoint(RecordProcessorCheckpointer checkpointer) {
        try {
            checkpointer.prepareCheckpoint("prepared".getBytes()).checkpoint();
        } catch (ShutdownException lost) {
            // The lease is lost: the new owner resumes from the last checkpoint.
        } catch (InvalidStateException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void shardEnded(ShardEndedInput input) {
        try {
            input.checkpointer().checkpoint();
        } catch (InvalidStateException | ShutdownException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void leaseLost(LeaseLostInput input) {}

    @Override
    public void shutdownRequested(ShutdownRequestedInput input) {
        try {
            input.checkpointer().checkpoint();
        } catch (InvalidStateException | ShutdownException error) {
            throw new IllegalStateException(error);
        }
    }
}
