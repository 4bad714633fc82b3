import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Locale;
import java.util.Scanner;
import java.util.stream.Collectors;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

/** Sends requests, which come as JSON in the schemas' own names, one a line, to a broker; adds the answers. */
public class ConfigRequests {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        try (Socket socket = new Socket(args[0], Integer.parseInt(args[1]))) {
            DataOutputStream requests = new DataOutputStream(socket.getOutputStream());
            DataInputStream answers = new DataInputStream(socket.getInputStream());
            Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
            for (int correlation = 0; lines.hasNext(); correlation++) {
                ObjectNode exchange = (ObjectNode) JSON.readTree(lines.next());
                ApiKeys api = ApiKeys.valueOf(exchange.get("api").asText());
                short version = (short) exchange.get("version").asInt();
                RequestHeader header = new RequestHeader(api, version, "recorder", correlation);
                send(requests, header, read(api, exchange.get("request"), version));
                byte[] frame = new byte[answers.readInt()];
                answers.readFully(frame);
                ApiMessage answer = AbstractResponse.parseResponse(ByteBuffer.wrap(frame), header).data();
                exchange.set("response", withoutDocumentation(write(api, answer, version)));
                out.println(JSON.writeValueAsString(exchange));
                // Settings take their effect through ZooKeeper, after the answer.
                if (!api.name().startsWith("DESCRIBE")) {
                    Thread.sleep(1500);
                }
            }
        }
    }

    private static void send(DataOutputStream out, RequestHeader header, ApiMessage request) throws Exception {
        ByteBuffer head = MessageUtil.toByteBuffer(header.data(), header.headerVersion());
        ByteBuffer body = MessageUtil.toByteBuffer(request, header.apiVersion());
        out.writeInt(head.remaining() + body.remaining());
        out.write(head.array(), 0, head.limit());
        out.write(body.array(), 0, body.limit());
        out.flush();
    }

    private static Class<?> converter(ApiKeys api, String suffix) throws Exception {
        String name = Arrays.stream(api.name().split("_"))
            .map(word -> word.charAt(0) + word.substring(1).toLowerCase(Locale.ROOT)).collect(Collectors.joining());
        return Class.forName("org.apache.kafka.common.message." + name + suffix + "DataJsonConverter");
    }

    private static ApiMessage read(ApiKeys api, JsonNode json, short version) throws Exception {
        return (ApiMessage) converter(api, "Request").getMethod("read", JsonNode.class, short.class)
            .invoke(null, json, version);
    }

    private static JsonNode write(ApiKeys api, ApiMessage data, short version) throws Exception {
        return (JsonNode) converter(api, "Response").getMethod("write", data.getClass(), short.class)
            .invoke(null, data, version);
    }

    private static JsonNode withoutDocumentation(JsonNode node) {
        if (node instanceof ObjectNode object) {
            object.remove("documentation");
        }
        node.forEach(ConfigRequests::withoutDocumentation);
        return node;
    }
}
