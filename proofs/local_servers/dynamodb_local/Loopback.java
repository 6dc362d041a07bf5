import com.amazonaws.services.dynamodbv2.local.main.ServerRunner;
import com.amazonaws.services.dynamodbv2.local.server.DynamoDBProxyServer;
import java.lang.reflect.Field;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/** Runs DynamoDB Local in memory on 127.0.0.1; by default it listens on all interfaces. The argument is the port. */
public final class Loopback {
    private Loopback() {}

    public static void main(String[] arguments) throws Exception {
        DynamoDBProxyServer proxy = ServerRunner.createServerFromCommandLineArgs(
                new String[] {"-inMemory", "-sharedDb", "-disableTelemetry", "-port", arguments[0]});
        Field field = DynamoDBProxyServer.class.getDeclaredField("server");
        field.setAccessible(true);
        ((ServerConnector) ((Server) field.get(proxy)).getConnectors()[0]).setHost("127.0.0.1");
        proxy.start();
    }
}
