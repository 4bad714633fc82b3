import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producers do what comes as JSON, one step a line: {"producer": name} with "settings", "send" or "call".
 * What is sent in one step becomes one batch of each partition, and is acknowledged before the next step.
 */
public class Producers {
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
        while (lines.hasNext()) {
            JsonNode step = new ObjectMapper().readTree(lines.next());
            String name = step.get("producer").asText();
            if (step.has("settings")) {
                Properties settings = new Properties();
                settings.put("bootstrap.servers", args[0]);
                settings.put("linger.ms", "500");
                step.get("settings").fields().forEachRemaining(one -> settings.put(one.getKey(), one.getValue().asText()));
                PRODUCERS.put(name, new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer()));
            } else if (step.has("send")) {
                send(PRODUCERS.get(name), step.get("send"));
            } else {
                call(PRODUCERS.get(name), step.get("call").asText());
            }
        }
        PRODUCERS.values().forEach(KafkaProducer::close);
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, JsonNode records) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (JsonNode record : records) {
            List<Header> headers = new ArrayList<>();
            record.path("headers").forEach(one -> headers.add(new RecordHeader(one.get(0).asText(), bytes(one.get(1)))));
            sent.add(producer.send(new ProducerRecord<>(record.get("topic").asText(), record.get("partition").asInt(),
                bytes(record.get("key")), bytes(record.get("value")), headers)));
        }
        producer.flush();
        for (Future<?> one : sent) {
            one.get();
        }
    }

    private static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    private static void call(KafkaProducer<byte[], byte[]> producer, String what) throws Exception {
        switch (what) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "rest" -> Thread.sleep(500);
            default -> throw new IllegalArgumentException(what);
        }
    }
}
