import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools, one after the other.
 *
 * A line has the size in bytes of the tool's input, its class and its arguments, with tabs between them; the input
 * follows. The answer is a line with its exit code and the sizes in bytes of its output and errors, which follow.
 */
public final class Tools {
    /** Ends a tool where it would end the JVM. */
    private static final class Ended extends RuntimeException {
    }

    /** Loads a package anew: the console consumer leaves something behind in its classes. */
    private static final class Anew extends ClassLoader {
        private static final String PACKAGE = "org.apache.kafka.tools.consumer.";

        Anew() {
            super(Tools.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith(PACKAGE) || name.indexOf('.', PACKAGE.length()) > 0) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded == null ? defined(name) : loaded;
            }
        }

        private Class<?> defined(String name) throws ClassNotFoundException {
            try (InputStream file = getParent().getResourceAsStream(name.replace('.', '/') + ".class")) {
                byte[] code = file.readAllBytes();
                return defineClass(name, code, 0, code.length);
            } catch (IOException e) {
                throw new ClassNotFoundException(name, e);
            }
        }
    }

    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERRORS = new ByteArrayOutputStream();

    /** The exit code, and how much had been printed then; null while a tool runs. */
    private static int[] end;

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        InputStream asked = new BufferedInputStream(System.in);
        // Scala's tools keep the streams that they find first.
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERRORS, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> {
            endWith(code);
            throw new Ended();
        });
        // A tool wants to be woken up when its JVM ends. By then it has ended itself.
        Exit.setShutdownHookAdder((name, work) -> { });
        for (String line = line(asked); line != null; line = line(asked)) {
            String[] words = line.split("\t", -1);
            System.setIn(new ByteArrayInputStream(asked.readNBytes(Integer.parseInt(words[0]))));
            end = null;
            run(words[1], Arrays.copyOfRange(words, 2, words.length));
            answers.println(end[0] + " " + end[1] + " " + end[2]);
            answers.write(OUT.toByteArray(), 0, end[1]);
            answers.write(ERRORS.toByteArray(), 0, end[2]);
            answers.flush();
            OUT.reset();
            ERRORS.reset();
        }
    }

    private static String line(InputStream asked) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        for (int next = asked.read(); next != '\n'; next = asked.read()) {
            if (next < 0) {
                return null;
            }
            line.write(next);
        }
        return line.toString(StandardCharsets.UTF_8);
    }

    /** A tool that catches what ends it goes on for a while; that counts no more. */
    private static void endWith(int code) {
        if (end == null) {
            System.out.flush();
            System.err.flush();
            end = new int[] {code, OUT.size(), ERRORS.size()};
        }
    }

    private static void run(String tool, String[] arguments) throws Exception {
        try {
            Class<?> program = Class.forName(tool, true, new Anew());
            program.getMethod("main", String[].class).invoke(null, (Object) arguments);
            endWith(0);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Ended)) {
                e.getCause().printStackTrace();
                endWith(1);
            }
        }
    }
}
