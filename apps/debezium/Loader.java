// Copy the orders of a topic into a table of PostgreSQL, each exactly once.
//
//     java -cp JARS Loader.java URL READY_FILE
//
// Each order is inserted and then marked as paid. Every tenth amount is deleted afterwards. The positions in the topic
// are stored in the same transaction of the database, so that a loader that starts again continues behind it.
// READY_FILE is written when CONNECT_AFTER orders have been inserted. With LOAD=copy, the orders are inserted by COPY:
// PostgreSQL then writes many rows with one log sequence number.

import java.io.StringReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.StreamSupport;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.postgresql.PGConnection;

public class Loader {
    static final Pattern ORDER = Pattern.compile(
            "\\{\"order\":\"(\\w+)\",\"customer\":(\\d+),\"amount\":(\\d+)\\}");
    static final String TOPIC = System.getenv("ORDERS");

    record Order(String id, int customer, int amount) {
        static Order of(ConsumerRecord<String, String> record) {
            Matcher read = ORDER.matcher(record.value());
            if (!read.matches()) {
                throw new IllegalArgumentException("not an order: " + record.value());
            }
            return new Order(read.group(1), Integer.parseInt(read.group(2)), Integer.parseInt(read.group(3)));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", System.getenv("BOOTSTRAP"),
                "isolation.level", "read_committed",
                "enable.auto.commit", false,
                "auto.offset.reset", "earliest");
        try (Connection database = connect(arguments[0]);
                var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            try (Statement tables = database.createStatement()) {
                tables.execute("create table if not exists orders"
                        + " (id text primary key, customer int, amount int, paid boolean)");
                tables.execute("create table if not exists positions (part int primary key, next bigint)");
            }
            database.setAutoCommit(false);
            consumer.assign(consumer.partitionsFor(TOPIC).stream()
                    .map(part -> new TopicPartition(TOPIC, part.partition())).toList());
            goToPositions(database, consumer);
            System.out.println("the tables exist");
            long missing = Long.parseLong(System.getenv("CONNECT_AFTER"));
            while (true) {
                if (missing <= 0) {
                    Files.writeString(Path.of(arguments[1]), "ready");
                    missing = Long.MAX_VALUE;
                }
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) {
                    List<Order> orders = StreamSupport.stream(records.spliterator(), false).map(Order::of).toList();
                    if ("copy".equals(System.getenv("LOAD"))) {
                        copy(database, orders);
                    } else {
                        insert(database, orders);
                    }
                    change(database, orders);
                    storePositions(database, consumer);
                    database.commit();
                    missing -= orders.size();
                }
            }
        }
    }

    static void insert(Connection database, List<Order> orders) throws SQLException {
        try (PreparedStatement rows = database.prepareStatement("insert into orders values (?, ?, ?, false)")) {
            for (Order order : orders) {
                rows.setString(1, order.id);
                rows.setInt(2, order.customer);
                rows.setInt(3, order.amount);
                rows.addBatch();
            }
            rows.executeBatch();
        }
    }

    static void copy(Connection database, List<Order> orders) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (Order order : orders) {
            lines.append(order.id).append('\t').append(order.customer).append('\t').append(order.amount).append("\tf\n");
        }
        database.unwrap(PGConnection.class).getCopyAPI()
                .copyIn("copy orders from stdin", new StringReader(lines.toString()));
    }

    /** Mark each order as paid, and delete every tenth amount. */
    static void change(Connection database, List<Order> orders) throws SQLException {
        try (PreparedStatement paid = database.prepareStatement("update orders set paid = true where id = ?");
                PreparedStatement gone = database.prepareStatement("delete from orders where id = ?")) {
            for (Order order : orders) {
                paid.setString(1, order.id);
                paid.addBatch();
                if (order.amount % 10 == 0) {
                    gone.setString(1, order.id);
                    gone.addBatch();
                }
            }
            paid.executeBatch();
            gone.executeBatch();
        }
    }

    static void goToPositions(Connection database, KafkaConsumer<?, ?> consumer) throws SQLException {
        try (Statement query = database.createStatement();
                ResultSet rows = query.executeQuery("select part, next from positions")) {
            while (rows.next()) {
                consumer.seek(new TopicPartition(TOPIC, rows.getInt(1)), rows.getLong(2));
            }
        }
        database.commit();
    }

    static void storePositions(Connection database, KafkaConsumer<?, ?> consumer) throws SQLException {
        String statement = "insert into positions values (?, ?) on conflict (part) do update set next = excluded.next";
        try (PreparedStatement rows = database.prepareStatement(statement)) {
            for (TopicPartition place : consumer.assignment()) {
                rows.setInt(1, place.partition());
                rows.setLong(2, consumer.position(place));
                rows.addBatch();
            }
            rows.executeBatch();
        }
    }

    /** Connect to the database as soon as it accepts connections, at most for 60 s. */
    static Connection connect(String url) throws Exception {
        for (int attempt = 1; ; attempt++) {
            try {
                return DriverManager.getConnection(url, "eos", "eos");
            } catch (SQLException error) {
                if (attempt == 120) {
                    throw error;
                }
                Thread.sleep(500);
            }
        }
    }
}
