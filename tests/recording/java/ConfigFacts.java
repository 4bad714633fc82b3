import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.StringReader;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.Scanner;
import java.util.TreeMap;
import kafka.cluster.EndPoint;
import kafka.server.DynamicBrokerConfig$;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What Kafka's classes say of settings. The argument is the kind of fact; questions come as JSON, one a line. */
public class ConfigFacts {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static Map<String, Object> firstLogConfig;

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "broker-configs" -> definitions(KafkaConfig.configDef(), true);
            case "topic-configs" -> definitions(LogConfig.configDefCopy(), false);
            case "metadata-versions" -> {
                for (MetadataVersion version : MetadataVersion.values()) {
                    say(version(version));
                }
            }
            default -> {
                Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
                while (lines.hasNext()) {
                    ObjectNode row = (ObjectNode) JSON.readTree(lines.next());
                    try {
                        answer(args[0], row);
                    } catch (RuntimeException error) {
                        row.put("error", error.getMessage());
                    }
                    say(row);
                }
            }
        }
    }

    private static void say(JsonNode row) throws Exception {
        new java.io.PrintStream(System.out, true, "UTF-8").println(JSON.writeValueAsString(row));
    }

    private static void definitions(ConfigDef definition, boolean isBroker) throws Exception {
        Map<String, String> modes = DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            ObjectNode row = JSON.createObjectNode().put("name", key.name).put("type", key.type.name());
            row.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            row.put("importance", key.importance.name());
            row.put("valid", key.validator == null ? null : key.validator.toString());
            if (isBroker && modes.containsKey(key.name)) {
                row.put("dynamic", modes.get(key.name));
            }
            if (key.internalConfig) {
                row.put("internal", true);
            }
            if (!isBroker) {
                var synonyms = ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, List.of());
                synonyms.forEach(synonym -> row.withArray("server_settings").add(synonym.name()));
                row.withArray("server_settings");
            }
            say(row);
        }
    }

    private static ObjectNode version(MetadataVersion version) {
        ObjectNode row = JSON.createObjectNode().put("name", version.version()).put("short", version.shortVersion());
        return row.put("feature_level", version.featureLevel())
            .put("fetch", version.fetchRequestVersion())
            .put("offset_for_leader_epoch", version.offsetForLeaderEpochRequestVersion())
            .put("list_offsets", version.listOffsetRequestVersion())
            .put("write_txn_markers", version.writeTxnMarkersRequestVersion())
            .put("record_magic", version.highestSupportedRecordVersion().value)
            .put("group_metadata_value", version.groupMetadataValueVersion())
            .put("offset_commit_value", version.offsetCommitValueVersion(false))
            .put("offset_commit_value_expiring", version.offsetCommitValueVersion(true))
            .put("sasl_handshake", version.isSaslInterBrokerHandshakeRequestEnabled())
            .put("offset_for_leader_epoch_supported", version.isOffsetForLeaderEpochSupported())
            .put("feature_versioning", version.isFeatureVersioningSupported())
            .put("truncation_on_fetch", version.isTruncationOnFetchSupported())
            .put("alter_partition", version.isAlterPartitionSupported())
            .put("topic_ids", version.isTopicIdsSupported())
            .put("allocate_producer_ids", version.isAllocateProducerIdsSupported())
            .put("leader_recovery", version.isLeaderRecoverySupported())
            .put("api_forwarding", version.isApiForwardingEnabled());
    }

    private static void answer(String kind, ObjectNode row) throws Exception {
        switch (kind) {
            case "parsed" -> row.put("version", MetadataVersion.fromVersionString(row.get("text").asText()).version());
            case "doubles" -> row.put("text", Double.toString(Double.parseDouble(row.get("double").asText())));
            case "values" -> {
                ConfigDef.Type type = ConfigDef.Type.valueOf(row.get("type").asText());
                Object value = ConfigDef.parseType("the.key", row.get("text").asText(), type);
                Object shown = value instanceof Password password ? password.value()
                    : value instanceof List ? value : ConfigDef.convertToString(value, type);
                row.set("value", JSON.valueToTree(shown));
            }
            case "properties" -> {
                Properties properties = new Properties();
                properties.load(new StringReader(row.get("text").asText()));
                row.set("properties", JSON.valueToTree(new TreeMap<>(properties)));
            }
            case "server-properties" -> broker(row);
            default -> throw new IllegalStateException(kind);
        }
    }

    private static void listeners(ObjectNode row, String name, Seq<EndPoint> ends) {
        for (EndPoint end : CollectionConverters.asJava(ends)) {
            row.withArray(name).addArray().add(Objects.toString(end.host(), "")).add(end.port())
                .add(end.listenerName().value()).add(end.securityProtocol().name);
        }
    }

    private static void broker(ObjectNode row) {
        Properties properties = new Properties();
        row.get("properties").fields().forEachRemaining(e -> properties.put(e.getKey(), e.getValue().asText()));
        KafkaConfig config = KafkaConfig.fromProps(properties, false);
        listeners(row, "listeners", config.listeners());
        if (!config.effectiveAdvertisedBrokerListeners().equals(config.listeners())) {
            listeners(row, "advertised", config.effectiveAdvertisedBrokerListeners());
        }
        row.put("inter_broker", config.interBrokerListenerName().value() + " " + config.interBrokerSecurityProtocol().name);
        row.put("broker_id", config.brokerId());
        CollectionConverters.asJava(config.logDirs()).forEach(dir -> row.withArray("log_dirs").add(dir));
        Map<String, Object> logConfig = new TreeMap<>(config.extractLogConfigMap());
        ObjectNode differing = row.putObject("log_config");
        logConfig.forEach((name, value) -> {
            if (firstLogConfig == null || !Objects.equals(value, firstLogConfig.get(name))) {
                differing.put(name, String.valueOf(value));
            }
        });
        if (firstLogConfig == null) {
            firstLogConfig = logConfig;
        }
    }
}
