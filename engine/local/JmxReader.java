import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import javax.management.Attribute;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Reads MBeans of several processes by JMX, all at once. The first argument is how many milliseconds each has, the
 * others are patterns of names. Each line of stdin is a process: number, host:port, user and password, with tabs
 * between them; a login never stands in the arguments, which other users see. Prints JSON, a line for each MBean, and
 * for each process that did not answer a line with the reason.
 */
public class JmxReader {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        long limitMs = Long.parseLong(args[0]);
        List<ObjectName> patterns = new ArrayList<>();
        for (int index = 1; index < args.length; index++) {
            patterns.add(new ObjectName(args[index]));
        }
        Map<String, Thread> readers = new HashMap<>();
        Map<String, String> outcomes = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            Thread reader = new Thread(() -> {
                String found;
                try {
                    found = read(words, patterns);
                } catch (Throwable error) {
                    found = "{\"broker\": " + words[0] + ", \"error\": " + quoted(reason(error)) + "}\n";
                }
                synchronized (outcomes) {
                    outcomes.put(words[0], found);
                }
            });
            reader.setDaemon(true);
            readers.put(words[0], reader);
            reader.start();
        }
        long deadline = System.nanoTime() + limitMs * 1_000_000;
        for (Thread reader : readers.values()) {
            reader.join(Math.max(1, (deadline - System.nanoTime()) / 1_000_000));
        }
        synchronized (outcomes) {
            for (String broker : readers.keySet()) {
                OUT.print(outcomes.getOrDefault(broker, "{\"broker\": " + broker + ", \"error\": \"no answer within "
                    + limitMs / 1000.0 + " s\"}\n"));
            }
        }
        OUT.flush();
        Runtime.getRuntime().halt(0);
    }

    private static String read(String[] words, List<ObjectName> patterns) throws Exception {
        JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + words[1] + "/jmxrmi");
        Map<String, Object> settings = new HashMap<>();
        if (!words[2].isEmpty()) {
            settings.put(JMXConnector.CREDENTIALS, new String[] {words[2], words[3]});
        }
        StringBuilder all = new StringBuilder();
        try (JMXConnector connector = JMXConnectorFactory.connect(url, settings)) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (ObjectName pattern : patterns) {
                for (ObjectName name : server.queryNames(pattern, null)) {
                    all.append("{\"broker\": ").append(words[0]).append(", \"mbean\": ")
                        .append(quoted(name.toString())).append(", \"attributes\": {")
                        .append(attributes(server, name)).append("}}\n");
                }
            }
        }
        return all.toString();
    }

    private static String attributes(MBeanServerConnection server, ObjectName name) throws Exception {
        List<String> names = new ArrayList<>();
        for (MBeanAttributeInfo each : server.getMBeanInfo(name).getAttributes()) {
            names.add(each.getName());
        }
        StringJoiner all = new StringJoiner(", ");
        for (Attribute each : server.getAttributes(name, names.toArray(new String[0])).asList()) {
            Object value = each.getValue();
            if (value instanceof Number && Double.isFinite(((Number) value).doubleValue())) {
                all.add(quoted(each.getName()) + ": " + value);
            }
        }
        return all.toString();
    }

    private static String reason(Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null && cause.getCause() != cause) {
            cause = cause.getCause();
        }
        return cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage();
    }

    private static String quoted(String text) {
        StringBuilder all = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                all.append('\\').append(each);
            } else if (each < ' ') {
                all.append(String.format("\\u%04x", (int) each));
            } else {
                all.append(each);
            }
        }
        return all.append('"').toString();
    }
}
