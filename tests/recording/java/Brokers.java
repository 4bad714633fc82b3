import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Runs several brokers of Kafka, each made as Kafka's own program makes it.
 *
 * A line of input has what to do (format, startup or shutdown), the broker's properties file, and a file that comes when
 * it is done, with tabs between them. That file is empty, or says why it failed. A new cluster's id follows format. The
 * brokers end with the input.
 */
public final class Brokers {
    private static final Map<String, Object> BROKERS = new ConcurrentHashMap<>();

    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            new Thread(() -> answer(words)).start();
        }
        System.exit(0);
    }

    private static void answer(String[] words) {
        StringWriter failure = new StringWriter();
        try {
            if (words[0].equals("format")) {
                format(words[1], words[3]);
            } else {
                carryOut(words[0], words[1]);
            }
        } catch (Throwable e) {
            BROKERS.remove(words[1]);
            e.printStackTrace(new PrintWriter(failure, true));
        }
        try {
            Path told = Path.of(words[2]);
            Path whole = Files.writeString(told.resolveSibling(told.getFileName() + ".new"), failure.toString());
            Files.move(whole, told);
        } catch (Exception e) {
            e.printStackTrace();
        }
    }

    private static void carryOut(String what, String properties) throws ReflectiveOperationException {
        Object broker = what.equals("startup")
            ? BROKERS.computeIfAbsent(properties, Brokers::made) : BROKERS.remove(properties);
        call(broker.getClass().getMethod(what), broker);
    }

    private static void format(String properties, String clusterId) throws ReflectiveOperationException {
        Method execute = Class.forName("kafka.tools.StorageTool")
            .getMethod("execute", String[].class, PrintStream.class);
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        String[] words = {"format", "--cluster-id", clusterId, "--config", properties};
        if (!call(execute, null, words, new PrintStream(said, true)).equals(0)) {
            throw new RuntimeException(said.toString());
        }
    }

    private static Object made(String file) {
        try (FileReader reader = new FileReader(file, StandardCharsets.UTF_8)) {
            Properties properties = new Properties();
            properties.load(reader);
            Class<?> program = Class.forName("kafka.Kafka$");
            Method build = program.getDeclaredMethod("buildServer", Properties.class);
            build.setAccessible(true);
            return call(build, program.getField("MODULE$").get(null), properties);
        } catch (RuntimeException e) {
            throw e;
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    private static Object call(Method method, Object of, Object... arguments) throws IllegalAccessException {
        try {
            return method.invoke(of, arguments);
        } catch (InvocationTargetException e) {
            throw new RuntimeException(e.getCause());
        }
    }
}
