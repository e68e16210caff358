// Kafka Streams: the number and the sum of the orders of each customer, in a RocksDB store with a standby.
//
//     java -cp JARS Totals.java          (no build; JARS contains kafka-streams and rocksdbjni)
//
// Each order updates the store and writes one total, which contains the order's name, so that a total that is
// missing or written twice is found as well as a wrong sum. GUARANTEE is exactly_once_v2 or at_least_once.

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KafkaStreams.State;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

public class Totals {
    static final Map<String, String> ENV = System.getenv();
    static final Pattern ORDER = Pattern.compile(
            "\\{\"order\":\"(\\w+)\",\"customer\":(\\d+),\"amount\":(\\d+)\\}");

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, ENV.get("GROUP"));
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, ENV.get("INSTANCE"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, ENV.get("BOOTSTRAP"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, ENV.get("STATE"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, ENV.get("GUARANTEE"));
        settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, ENV.get("COMMIT_INTERVAL_MS"));
        // Streams reads uncommitted records by default, unless the guarantee is exactly_once_v2.
        settings.put(StreamsConfig.consumerPrefix("isolation.level"), "read_committed");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), 1000);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> orders = builder.stream(ENV.get("ORDERS"));
        orders.groupByKey()
                .aggregate(() -> "", (customer, order, total) -> add(order, total),
                        Materialized.<String, String>as(Stores.persistentKeyValueStore("totals"))
                                .withKeySerde(Serdes.String()).withValueSerde(Serdes.String())
                                .withCachingDisabled())
                .toStream()
                .to(ENV.get("TOTALS"));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            if (now == State.ERROR) {
                Runtime.getRuntime().halt(1); // the program is started again
            }
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    /** Return the total of a customer after an order. */
    static String add(String order, String total) {
        Matcher read = ORDER.matcher(order);
        if (!read.matches()) {
            throw new IllegalArgumentException("not an order: " + order);
        }
        long count = number(total, "count") + 1;
        long sum = number(total, "sum") + Long.parseLong(read.group(3));
        return "{\"order\":\"" + read.group(1) + "\",\"customer\":" + read.group(2) + ",\"count\":" + count
                + ",\"sum\":" + sum + "}";
    }

    /** Return a field of a total; 0 if there is no total yet. */
    static long number(String total, String field) {
        Matcher read = Pattern.compile("\"" + field + "\":(\\d+)").matcher(total);
        return read.find() ? Long.parseLong(read.group(1)) : 0;
    }
}
