import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
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
 * A line of input has what to do (startup or shutdown), the broker's properties file, and a file that comes when it is
 * done, with tabs between them. That file is empty, or says why it failed. The brokers end with the input.
 */
public final class Brokers {
    private static final Map<String, Object> BROKERS = new ConcurrentHashMap<>();

    public static void main(String[] none) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            new Thread(() -> answer(words[0], words[1], Path.of(words[2]))).start();
        }
        System.exit(0);
    }

    private static void answer(String what, String properties, Path told) {
        StringWriter failure = new StringWriter();
        try {
            Object broker = what.equals("startup")
                ? BROKERS.computeIfAbsent(properties, Brokers::made) : BROKERS.remove(properties);
            call(broker.getClass().getMethod(what), broker);
        } catch (Throwable e) {
            BROKERS.remove(properties);
            e.printStackTrace(new PrintWriter(failure, true));
        }
        try {
            Path whole = Files.writeString(told.resolveSibling(told.getFileName() + ".new"), failure.toString());
            Files.move(whole, told);
        } catch (Exception e) {
            e.printStackTrace();
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
