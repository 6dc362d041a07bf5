package peers;

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.StringJoiner;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/** Counts what a handler received, and prints lines of JSON, also each second. */
final class Meter {
    private final String report;
    private final long expected;
    private final PrintStream out = System.out;
    private List<Long> latencies = new ArrayList<>();
    private long records;
    private long bytes;

    Meter(Config config) {
        report = config.text("report");
        expected = (long) config.number("expected");
        ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
            Thread thread = new Thread(task, "meter");
            thread.setDaemon(true);
            return thread;
        });
        timer.scheduleAtFixedRate(this::printCounts, 1, 1, TimeUnit.SECONDS);
    }

    /** Reads each record's key, sequence number and length, and counts them. */
    void add(List<KinesisClientRecord> batch) {
        long size = 0;
        long read = 0;
        for (KinesisClientRecord record : batch) {
            read += record.partitionKey().length() + record.sequenceNumber().length();
            size += record.data().remaining();
        }
        if (!report.equals("counts")) {
            details(batch);
        }
        add(read < 0 ? 0 : batch.size(), size);
    }

    /** Counts a batch. Until the expected records are here, each batch prints a line. */
    private synchronized void add(int count, long size) {
        boolean early = records < expected;
        records += count;
        bytes += size;
        if (early && count > 0) {
            printCounts();
        }
    }

    private void details(List<KinesisClientRecord> batch) {
        Instant now = Instant.now();
        long micros = now.getEpochSecond() * 1_000_000 + now.getNano() / 1000;
        StringJoiner seen = new StringJoiner(" ");
        List<Long> measured = new ArrayList<>();
        for (KinesisClientRecord record : batch) {
            ByteBuffer data = record.data().duplicate();
            String[] fields = StandardCharsets.UTF_8.decode(data).toString().split(" ", 3);
            seen.add(record.partitionKey() + ":" + fields[0]);
            measured.add(micros - Long.parseLong(fields[1]) / 1000);
        }
        synchronized (this) {
            if (report.equals("latencies")) {
                latencies.addAll(measured);
            } else if (!batch.isEmpty()) {
                out.printf("{\"seen\": \"%s\"}%n", seen);
            }
        }
    }

    synchronized void printCounts() {
        StringJoiner text = new StringJoiner(" ");
        latencies.forEach(latency -> text.add(latency.toString()));
        latencies = new ArrayList<>();
        out.printf(
                Locale.ROOT,
                "{\"t\": %.6f, \"records\": %d, \"bytes\": %d, \"source\": \"\", \"latencies\": \"%s\"}%n",
                seconds(), records, bytes, text);
        out.flush();
    }

    synchronized void stopped() {
        printCounts();
        out.printf(Locale.ROOT, "{\"stopped\": %.6f, \"records\": %d}%n", seconds(), records);
        out.flush();
    }

    private static double seconds() {
        Instant now = Instant.now();
        return now.getEpochSecond() + now.getNano() / 1e9;
    }
}
