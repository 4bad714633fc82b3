import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools, one after the other.
 *
 * A line of input has a tool's class and its arguments, with tabs between them. The answer is a line with its exit code
 * and the sizes in bytes of its output and errors, which follow.
 */
public final class Tools {
    /** Ends a tool where it would end the JVM. */
    private static final class Ended extends RuntimeException {
    }

    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERRORS = new ByteArrayOutputStream();

    /** The exit code, and how much had been printed then; null while a tool runs. */
    private static int[] end;

    public static void main(String[] none) throws Exception {
        PrintStream answers = System.out;
        // Scala's tools keep the streams that they find first.
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERRORS, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> {
            endWith(code);
            throw new Ended();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            end = null;
            run(words[0], Arrays.copyOfRange(words, 1, words.length));
            answers.println(end[0] + " " + end[1] + " " + end[2]);
            answers.write(OUT.toByteArray(), 0, end[1]);
            answers.write(ERRORS.toByteArray(), 0, end[2]);
            answers.flush();
            OUT.reset();
            ERRORS.reset();
        }
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
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            endWith(0);
        } catch (InvocationTargetException e) {
            if (!(e.getCause() instanceof Ended)) {
                e.getCause().printStackTrace();
                endWith(1);
            }
        }
    }
}
