import java.util.Arrays;
import java.util.StringJoiner;
import java.util.TreeSet;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints what a process registers with JMX: one MBean a line, with its attributes' values. The first argument is
 * host:port, the others are patterns of names. */
public class MBeans {
    public static void main(String[] args) throws Exception {
        JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + args[0] + "/jmxrmi");
        try (JMXConnector connector = JMXConnectorFactory.connect(url)) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (String pattern : Arrays.copyOfRange(args, 1, args.length)) {
                for (ObjectName name : new TreeSet<>(server.queryNames(new ObjectName(pattern), null))) {
                    System.out.println("{\"mbean\": " + quoted(name.toString()) + ", \"attributes\": {"
                        + attributes(server, name) + "}}");
                }
            }
        }
    }

    private static String attributes(MBeanServerConnection server, ObjectName name) throws Exception {
        StringJoiner all = new StringJoiner(", ");
        MBeanAttributeInfo[] found = server.getMBeanInfo(name).getAttributes();
        Arrays.sort(found, (one, other) -> one.getName().compareTo(other.getName()));
        for (MBeanAttributeInfo each : found) {
            Object value;
            try {
                value = server.getAttribute(name, each.getName());
            } catch (Exception gone) {
                value = null;
            }
            all.add(quoted(each.getName()) + ": " + json(value));
        }
        return all.toString();
    }

    private static String json(Object value) {
        if (value instanceof Double && (((Double) value).isNaN() || ((Double) value).isInfinite())) {
            return quoted(value.toString());
        }
        return value == null || value instanceof Number || value instanceof Boolean
            ? String.valueOf(value) : quoted(String.valueOf(value));
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"";
    }
}
