// An example application in one source file: it reads orders and writes one invoice for each, exactly once.
//
//     java -cp JARS Invoices.java          (no build; JARS contains kafka-clients)
//
// The variable MISTAKE selects one wrong line, which `eos run` then finds:
//
//     no-rewind            it does not go back after an aborted transaction
//     reads-uncommitted    it processes orders of aborted transactions

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Invoices {
    static final Map<String, String> ENV = System.getenv();
    static final String MISTAKE = ENV.getOrDefault("MISTAKE", "");
    /** Share of transactions that the program aborts by itself, as one with a failing database would. */
    static final double ABORTED = Double.parseDouble(ENV.getOrDefault("ABORT_SHARE", "0.05"));
    static volatile boolean stopped = false;

    public static void main(String[] arguments) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopped = true;
            try {
                main.join(10_000);
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        String servers = ENV.get("BOOTSTRAP");
        Map<String, Object> reading = new HashMap<>(Map.of(
                "bootstrap.servers", servers,
                "client.id", ENV.get("INSTANCE"),
                "group.id", ENV.get("GROUP"),
                "enable.auto.commit", false,
                "auto.offset.reset", "earliest",
                "max.poll.records", 100,
                "session.timeout.ms", 6000,
                "heartbeat.interval.ms", 1000));
        reading.put("isolation.level", MISTAKE.equals("reads-uncommitted") ? "read_uncommitted" : "read_committed");
        Map<String, Object> writing = Map.of(
                "bootstrap.servers", servers,
                "client.id", ENV.get("INSTANCE"),
                "transactional.id", ENV.get("GROUP") + "-" + ENV.get("INSTANCE"),
                "transaction.timeout.ms", 10_000,
                // Less than the transaction time-out, so that the program can abort before the coordinator does.
                "delivery.timeout.ms", 8_000,
                "request.timeout.ms", 4_000);
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer());
                var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(ENV.get("ORDERS")));
            System.out.println("started " + ENV.get("INSTANCE"));
            Random random = new Random();
            while (!stopped) {
                ConsumerRecords<String, String> orders = consumer.poll(Duration.ofMillis(200));
                if (!orders.isEmpty()) {
                    process(consumer, producer, orders, random.nextDouble() < ABORTED);
                }
            }
        }
        System.out.println("stopped");
    }

    /** Process a batch of orders in one transaction. A fenced program ends; it is then started again. */
    static void process(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> orders, boolean refused) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (ConsumerRecord<String, String> order : orders) {
            positions.put(new TopicPartition(order.topic(), order.partition()), new OffsetAndMetadata(order.offset() + 1));
        }
        producer.beginTransaction();
        try {
            for (ConsumerRecord<String, String> order : orders) {
                producer.send(new ProducerRecord<>(ENV.get("INVOICES"), order.key(), "{\"invoice_for\":" + order.value() + "}"));
            }
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            if (!refused) {
                producer.commitTransaction();
                return;
            }
            System.out.println("aborting: the database refused");
        } catch (ProducerFencedException fenced) {
            throw fenced;
        } catch (KafkaException error) {
            System.out.println("aborting: " + error);
        }
        producer.abortTransaction();
        if (!MISTAKE.equals("no-rewind")) {
            var committed = consumer.committed(positions.keySet());
            positions.keySet().forEach(place -> {
                OffsetAndMetadata position = committed.get(place);
                consumer.seek(place, position == null ? 0 : position.offset());
            });
        }
    }
}
