package peers;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import software.amazon.awssdk.protocols.jsoncore.JsonNode;

/** The configuration of a program, from its file. */
final class Config {
    private final Map<String, JsonNode> members;

    private Config(Map<String, JsonNode> members) {
        this.members = members;
    }

    /** Reads the configuration, and makes the JVM trust the servers' certificate authority. */
    static Config load(String file) throws IOException {
        Config config = new Config(JsonNode.parser().parse(Files.readString(Path.of(file))).asObject());
        System.setProperty("javax.net.ssl.trustStore", config.text("trust_store"));
        System.setProperty("javax.net.ssl.trustStorePassword", "not-secret");
        return config;
    }

    String text(String name) {
        return members.get(name).asString();
    }

    double number(String name) {
        return Double.parseDouble(members.get(name).asNumber());
    }

    boolean flag(String name) {
        return members.get(name).asBoolean();
    }
}
