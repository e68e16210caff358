// Flink: the number and the sum of the orders of each customer, from Kafka to Kafka with EXACTLY_ONCE.
//
//     javac -cp JARS -d CLASSES Totals.java && java -cp CLASSES:JARS Totals
//
// One JVM has the whole cluster. A checkpoint is made every second and kept, so that a program that was killed
// continues from the last one. Each order writes one total, which contains the order's name.

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

public class Totals {
    static final Map<String, String> ENV = System.getenv();
    static final Pattern ORDER = Pattern.compile(
            "\\{\"order\":\"(\\w+)\",\"customer\":(\\d+),\"amount\":(\\d+)\\}");
    static final Pattern CUSTOMER = Pattern.compile("\"customer\":(\\d+)");

    public static void main(String[] arguments) throws Exception {
        Path checkpoints = Path.of(ENV.get("STATE"), "checkpoints");
        Map<String, String> settings = new HashMap<>(Map.of(
                "execution.checkpointing.interval", "1s",
                "execution.checkpointing.dir", checkpoints.toUri().toString(),
                "execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION",
                "execution.checkpointing.tolerable-failed-checkpoints", "1000",
                "restart-strategy.type", "fixed-delay",
                "restart-strategy.fixed-delay.attempts", "1000",
                "restart-strategy.fixed-delay.delay", "1s",
                "rest.bind-address", "127.0.0.1"));
        latest(checkpoints).ifPresent(path -> {
            System.out.println("restoring " + path);
            settings.put("execution.state-recovery.path", path.toUri().toString());
        });
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(
                2, Configuration.fromMap(settings));
        KafkaSource<String> orders = KafkaSource.<String>builder()
                .setBootstrapServers(ENV.get("BOOTSTRAP"))
                .setTopics(ENV.get("ORDERS"))
                .setGroupId(ENV.get("NAME"))
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .setProperty("isolation.level", "read_committed")
                .build();
        KafkaSink<String> totals = KafkaSink.<String>builder()
                .setBootstrapServers(ENV.get("BOOTSTRAP"))
                .setRecordSerializer(KafkaRecordSerializationSchema.<String>builder()
                        .setTopic(ENV.get("TOTALS"))
                        .setKeySerializationSchema((String total) -> customer(total).getBytes(StandardCharsets.UTF_8))
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .setDeliveryGuarantee(DeliveryGuarantee.valueOf(ENV.get("GUARANTEE")))
                .setTransactionalIdPrefix(ENV.get("NAME"))
                .setProperty("client.id", "totals")
                .setProperty("transaction.timeout.ms", ENV.get("TRANSACTION_TIMEOUT_MS"))
                .build();
        flink.fromSource(orders, WatermarkStrategy.noWatermarks(), "orders").uid("orders")
                .keyBy(Totals::customer)
                .process(new Count()).uid("count")
                .sinkTo(totals).uid("totals");
        JobClient job = flink.executeAsync("totals");
        System.out.println("the job was started");
        try {
            job.getJobExecutionResult().get();
        } catch (ExecutionException error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1); // the program is started again
        }
    }

    /** Return the latest complete checkpoint of any start of this program. */
    static Optional<Path> latest(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(folder)) {
            return files.filter(file -> file.endsWith("_metadata"))
                    .max(Comparator.comparingLong(file -> file.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    static String customer(String text) {
        Matcher read = CUSTOMER.matcher(text);
        if (!read.find()) {
            throw new IllegalArgumentException("no customer in " + text);
        }
        return read.group(1);
    }

    static class Count extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Long> count;
        private transient ValueState<Long> sum;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Long.class));
            sum = getRuntimeContext().getState(new ValueStateDescriptor<>("sum", Long.class));
        }

        @Override
        public void processElement(String order, Context context, Collector<String> out) throws Exception {
            Matcher read = ORDER.matcher(order);
            if (!read.matches()) {
                throw new IllegalArgumentException("not an order: " + order);
            }
            count.update((count.value() == null ? 0 : count.value()) + 1);
            sum.update((sum.value() == null ? 0 : sum.value()) + Long.parseLong(read.group(3)));
            out.collect("{\"order\":\"" + read.group(1) + "\",\"customer\":" + read.group(2) + ",\"count\":"
                    + count.value() + ",\"sum\":" + sum.value() + "}");
        }
    }
}
