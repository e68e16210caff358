// Transactional producers of Kafka's Java client, driven by lines on standard input.
//
// Each line is one command; the program carries it out and prints one line as its answer.
//
//     open NAME BOOTSTRAP TRANSACTIONAL_ID CLIENT_ID TIMEOUT_MS     create a producer called NAME
//     init NAME | begin NAME | commit NAME | abort NAME | close NAME
//     send NAME TOPIC PARTITION VALUE...                            send records and wait for every ack
//     submit NAME TOPIC PARTITION VALUE... | flush NAME             send records without waiting; wait for every ack
//     plain BOOTSTRAP TOPIC VALUE [KEY=SETTING...]                  send one record by a producer with these settings only
//     custom NAME BOOTSTRAP [KEY=SETTING...]                        create a producer with these settings only
//     metrics NAME                                                  answer with the metrics of the producer as JSON
//     offset NAME GROUP TOPIC PARTITION OFFSET [MEMBER]             add a group's position to the transaction, with the
//                                                                   metadata of a member or without
//     join MEMBER BOOTSTRAP GROUP TOPIC | leave MEMBER              join a group and keep its metadata; leave the group
//
// The answer is "ok", for metrics with a value behind it, or "error CLASS MESSAGE". The program ends when standard input is closed.
// Run it from source: java -cp JARS Scripted.java

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Scripted {
    private static final Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
    private static final Map<String, KafkaConsumer<String, String>> members = new HashMap<>();
    private static final Map<String, ConsumerGroupMetadata> metadata = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader commands =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("ok");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = ("ok " + carryOut(line.split(" "))).trim();
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                String message = String.valueOf(cause.getMessage()).replace('\n', ' ');
                answer = "error " + cause.getClass().getSimpleName() + " " + message;
            }
            System.out.println(answer);
            System.out.flush();
        }
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
    }

    /** Carry out a command, and return the value of its answer; most commands have none. */
    private static String carryOut(String[] words) throws Exception {
        String name = words[1];
        KafkaProducer<String, String> producer = producers.get(name);
        switch (words[0]) {
            case "open" -> producers.put(name, open(words[2], words[3], words[4], words[5]));
            case "custom" -> producers.put(name, create(words[2], words, 3));
            case "plain" -> sendPlain(words);
            case "join" -> join(words);
            case "leave" -> members.get(name).close();
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "send" -> awaitAcks(submit(producer, words));
            case "submit" -> submit(producer, words);
            case "flush" -> producer.flush();
            case "offset" -> sendOffset(producer, words);
            case "metrics" -> {
                return metricsOf(producer);
            }
            case "close" -> producers.remove(name).close(Duration.ZERO);
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    private static String metricsOf(KafkaProducer<String, String> producer) {
        StringJoiner values = new StringJoiner(",", "{", "}");
        producer.metrics().forEach((metric, value) -> {
            boolean finite = value.metricValue() instanceof Number number && Double.isFinite(number.doubleValue());
            if (metric.group().equals("producer-metrics") && finite) {
                values.add("\"" + metric.name() + "\":" + value.metricValue());
            }
        });
        return values.toString();
    }

    private static KafkaProducer<String, String> open(
            String bootstrap, String transactionalId, String clientId, String timeoutMs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", transactionalId);
        settings.put("client.id", clientId);
        settings.put("transaction.timeout.ms", timeoutMs);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static void sendPlain(String[] words) throws Exception {
        try (KafkaProducer<String, String> producer = create(words[1], words, 4)) {
            producer.send(new ProducerRecord<>(words[2], words[3])).get();
        }
    }

    /** Create a producer with the settings KEY=SETTING that follow in a command. */
    private static KafkaProducer<String, String> create(String bootstrap, String[] words, int first) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = first; i < words.length; i++) {
            String[] setting = words[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static void sendOffset(KafkaProducer<String, String> producer, String[] words) {
        producer.sendOffsetsToTransaction(
                Map.of(
                        new TopicPartition(words[3], Integer.parseInt(words[4])),
                        new OffsetAndMetadata(Long.parseLong(words[5]))),
                words.length > 6 ? metadata.get(words[6]) : new ConsumerGroupMetadata(words[2]));
    }

    private static void join(String[] words) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[2]);
        settings.put("group.id", words[3]);
        settings.put("enable.auto.commit", "false");
        KafkaConsumer<String, String> member =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        members.put(words[1], member);
        member.subscribe(List.of(words[4]));
        while (member.assignment().isEmpty()) {
            member.poll(Duration.ofMillis(100));
        }
        metadata.put(words[1], member.groupMetadata());
    }

    private static List<Future<RecordMetadata>> submit(KafkaProducer<String, String> producer, String[] words) {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 4; i < words.length; i++) {
            sent.add(producer.send(
                    new ProducerRecord<>(words[2], Integer.valueOf(words[3]), null, words[i])));
        }
        return sent;
    }

    private static void awaitAcks(List<Future<RecordMetadata>> sent) throws Exception {
        for (Future<RecordMetadata> ack : sent) {
            ack.get();
        }
    }
}
