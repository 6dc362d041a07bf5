package interop;

import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.Base64;
import software.amazon.awssdk.protocols.jsoncore.JsonWriter;

/** Writes the JSON lines that the runner reads. */
final class TranscriptWriter {
    private final PrintStream out;

    TranscriptWriter(PrintStream out) {
        this.out = out;
    }

    /** `explicit` is null for a record that is not of an aggregate: Kinesis does not return its explicit hash key. */
    void record(String shard, String sequence, long sub, String key, String explicit, ByteBuffer data) {
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        write("record", "shard", shard, "sequence", sequence, "sub", Long.toString(sub), "key", key,
                "explicit", explicit, "data",
                Base64.getEncoder().encodeToString(bytes));
    }

    /** The children are null: KCL does not expose them. */
    void shardEnd(String shard) {
        write("shard_end", "shard", shard, "children", null);
    }

    void refused(String what, String error) {
        write("refused", "what", what, "error", error);
    }

    private void write(String kind, String... members) {
        JsonWriter json = JsonWriter.create();
        json.writeStartObject();
        json.writeFieldName(kind);
        json.writeStartObject();
        for (int i = 0; i < members.length; i += 2) {
            json.writeFieldName(members[i]);
            if (members[i + 1] == null) {
                json.writeNull();
            } else {
                json.writeValue(members[i + 1]);
            }
        }
        json.writeEndObject();
        json.writeEndObject();
        byte[] line = json.getBytes();
        synchronized (out) {
            out.write(line, 0, line.length);
            out.write('\n');
            out.flush();
        }
    }
}
