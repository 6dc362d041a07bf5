package migration;

import com.amazonaws.auth.DefaultAWSCredentialsProviderChain;
import com.amazonaws.services.kinesis.clientlibrary.interfaces.IRecordProcessorCheckpointer;
import com.amazonaws.services.kinesis.clientlibrary.interfaces.v2.IRecordProcessor;
import com.amazonaws.services.kinesis.clientlibrary.lib.worker.InitialPositionInStream;
import com.amazonaws.services.kinesis.clientlibrary.lib.worker.KinesisClientLibConfiguration;
import com.amazonaws.services.kinesis.clientlibrary.lib.worker.Worker;
import com.amazonaws.services.kinesis.clientlibrary.types.InitializationInput;
import com.amazonaws.services.kinesis.clientlibrary.types.ProcessRecordsInput;
import com.amazonaws.services.kinesis.clientlibrary.types.ShutdownInput;
import com.amazonaws.services.kinesis.clientlibrary.lib.worker.ShutdownReason;
import com.amazonaws.services.kinesis.model.Record;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.StringJoiner;

/** KCL 1: one worker, which polls; it prints each record's key and number, and checkpoints in intervals. */
public final class KclOneProgram {
    private KclOneProgram() {}

    public static void main(String[] arguments) throws Exception {
        JsonNode config = new ObjectMapper().readTree(new File(arguments[0]));
        System.setProperty("javax.net.ssl.trustStore", config.get("trust_store").asText());
        System.setProperty("javax.net.ssl.trustStorePassword", "not-secret");
        KinesisClientLibConfiguration kcl = new KinesisClientLibConfiguration(
                        config.get("application").asText(),
                        config.get("stream").asText(),
                        new DefaultAWSCredentialsProviderChain(),
                        config.get("worker").asText())
                .withKinesisEndpoint(config.get("endpoint").asText())
                .withDynamoDBEndpoint(config.get("dynamodb").asText())
                .withRegionName(config.get("region").asText())
                .withInitialPositionInStream(InitialPositionInStream.TRIM_HORIZON)
                .withParentShardPollIntervalMillis(1000)
                .withMetricsLevel("NONE");
        Duration interval = Duration.ofMillis((long) (config.get("checkpoint_seconds").asDouble() * 1000));
        Worker worker = new Worker.Builder()
                .recordProcessorFactory(() -> (IRecordProcessor) new Processor(interval))
                .config(kcl)
                .build();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                worker.startGracefulShutdown().get();
            } catch (Exception error) {
                error.printStackTrace();
            }
        }));
        worker.run();
    }

    private static final class Processor implements IRecordProcessor {
        private final Duration interval;
        private Instant checkpointAt;

        Processor(Duration interval) {
            this.interval = interval;
        }

        @Override
        public void initialize(InitializationInput input) {
            checkpointAt = Instant.now().plus(interval);
        }

        @Override
        public void processRecords(ProcessRecordsInput input) {
            StringJoiner seen = new StringJoiner(" ");
            for (Record record : input.getRecords()) {
                String data = StandardCharsets.UTF_8.decode(record.getData().duplicate()).toString();
                seen.add(record.getPartitionKey() + ":" + data.split(" ", 2)[0]);
            }
            if (seen.length() > 0) {
                System.out.printf("{\"seen\": \"%s\"}%n", seen);
            }
            if (Instant.now().isAfter(checkpointAt)) {
                checkpoint(input.getCheckpointer());
                checkpointAt = Instant.now().plus(interval);
            }
        }

        @Override
        public void shutdown(ShutdownInput input) {
            if (input.getShutdownReason() == ShutdownReason.TERMINATE) {
                checkpoint(input.getCheckpointer());
            }
        }

        private static void checkpoint(IRecordProcessorCheckpointer checkpointer) {
            try {
                checkpointer.checkpoint();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }
}
