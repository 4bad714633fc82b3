import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Base64;
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
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedTrustManager;
import javax.rmi.ssl.SslRMIClientSocketFactory;

/**
 * Reads MBeans of several processes by JMX, all at once. The first argument is how many milliseconds each has, the
 * others are patterns of names. Secrets come through stdin, for other users see arguments. Its first line is about TLS:
 * the certificates to trust (PEM; none: Java's own), the own key (a PKCS12 store; may be missing) and its password, all
 * three in Base64, and "names" if names of hosts are checked. Each further line is a process: number, host:port, "tls"
 * if its registry speaks TLS, user and password. Tabs stand between words. Prints JSON, a line for each MBean, and for
 * each process that did not answer a line with the reason.
 */
public class JmxReader {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final String REGISTRY_SOCKETS = "com.sun.jndi.rmi.factory.socket";

    /** Trusts whom another does, if the certificate is for the host that was asked: RMI checks names from Java 25 on. */
    private static class NameChecker extends X509ExtendedTrustManager {
        private final X509ExtendedTrustManager other;

        NameChecker(X509ExtendedTrustManager other) {
            this.other = other;
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String kind, Socket socket)
            throws CertificateException {
            SSLParameters rules = ((SSLSocket) socket).getSSLParameters();
            rules.setEndpointIdentificationAlgorithm("HTTPS");
            ((SSLSocket) socket).setSSLParameters(rules);
            other.checkServerTrusted(chain, kind, socket);
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String kind, SSLEngine engine)
            throws CertificateException {
            throw new CertificateException("RMI uses sockets");
        }

        @Override
        public void checkServerTrusted(X509Certificate[] chain, String kind) throws CertificateException {
            throw new CertificateException("RMI uses sockets");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String kind, Socket socket)
            throws CertificateException {
            throw new CertificateException("this is no server");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String kind, SSLEngine engine)
            throws CertificateException {
            throw new CertificateException("this is no server");
        }

        @Override
        public void checkClientTrusted(X509Certificate[] chain, String kind) throws CertificateException {
            throw new CertificateException("this is no server");
        }

        @Override
        public X509Certificate[] getAcceptedIssuers() {
            return other.getAcceptedIssuers();
        }
    }

    public static void main(String[] args) throws Exception {
        long limitMs = Long.parseLong(args[0]);
        List<ObjectName> patterns = new ArrayList<>();
        for (int index = 1; index < args.length; index++) {
            patterns.add(new ObjectName(args[index]));
        }
        Map<String, Thread> readers = new HashMap<>();
        Map<String, String> outcomes = new HashMap<>();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        setTls(lines.readLine().split("\t", -1));
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

    private static void setTls(String[] words) throws Exception {
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(words[0].isEmpty() ? null : trusted(Base64.getDecoder().decode(words[0])));
        TrustManager[] trusting = trust.getTrustManagers();
        boolean checksNames = words[3].equals("names");
        if (checksNames) {
            trusting = new TrustManager[] {new NameChecker((X509ExtendedTrustManager) trusting[0])};
        }
        System.setProperty("jdk.rmi.ssl.client.enableEndpointIdentification", String.valueOf(checksNames));
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(words[1].isEmpty() ? null : own(words), trusting, null);
        SSLContext.setDefault(context);
    }

    private static KeyStore trusted(byte[] pem) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        for (Certificate each : CertificateFactory.getInstance("X.509")
            .generateCertificates(new ByteArrayInputStream(pem))) {
            store.setCertificateEntry("trusted " + store.size(), each);
        }
        return store;
    }

    private static KeyManager[] own(String[] words) throws Exception {
        char[] password = new String(Base64.getDecoder().decode(words[2]), StandardCharsets.UTF_8).toCharArray();
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(new ByteArrayInputStream(Base64.getDecoder().decode(words[1])), password);
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, password);
        return keys.getKeyManagers();
    }

    private static String read(String[] words, List<ObjectName> patterns) throws Exception {
        JMXServiceURL url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://" + words[1] + "/jmxrmi");
        Map<String, Object> settings = new HashMap<>();
        if (words[2].equals("tls")) {
            settings.put(REGISTRY_SOCKETS, new SslRMIClientSocketFactory());
        }
        if (!words[3].isEmpty()) {
            settings.put(JMXConnector.CREDENTIALS, new String[] {words[3], words[4]});
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
