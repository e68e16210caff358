// Reads JMX metrics of running Kafka brokers, driven by lines on standard input.
//
//     read NAME=PID[@HOST]...
//
// The answer is one line of JSON with an object for each broker: {"values": {KEY: NUMBER}} or {"error": TEXT}. A key is
// the name of an MBean, "#" and an attribute. PID is the broker's process on this machine. A broker in a container has a
// HOST: its address in the network of the containers. The program ends when standard input is closed.
//
// The arguments are what to read: PATTERN#ATTRIBUTE,...[#SKIPPED]. MBeans whose name contains SKIPPED are left out.
//
// The brokers need no settings for this. The program attaches to their JVMs and starts the management agent there. The
// agent of a container listens on PORT in the network of the containers, every other one on loopback.
// Run it from source: java BrokerMetrics.java ...

import com.sun.tools.attach.VirtualMachine;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import javax.management.Attribute;
import javax.management.JMException;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

public class BrokerMetrics {
    private static final int PORT = 7099;
    private static final long ANSWER_LIMIT_MS = 3000;
    private static final long SIGQUIT_BIT = 1L << 2;

    private static final ExecutorService threads = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        return thread;
    });
    private static final List<Wanted> wanted = new ArrayList<>();
    private static final Map<String, Broker> brokers = new HashMap<>();

    private record Wanted(ObjectName pattern, String[] attributes, String skipped) {}

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            String[] parts = argument.split("#");
            wanted.add(new Wanted(
                    new ObjectName(parts[0]), parts[1].split(","), parts.length > 2 ? parts[2] : null));
        }
        BufferedReader commands =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("{}");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            System.out.println(answer(line.split(" ")));
            System.out.flush();
        }
    }

    /** Read all brokers at the same time. A broker that does not answer in time delays no other one. */
    private static String answer(String[] words) throws InterruptedException {
        List<Broker> asked = new ArrayList<>();
        for (int i = 1; i < words.length; i++) {
            Broker broker = brokers.get(words[i]);
            if (broker == null) {
                broker = new Broker(words[i]);
                String name = broker.name;
                brokers.values().removeIf(other -> other.name.equals(name));
                brokers.put(words[i], broker);
            }
            broker.ask();
            asked.add(broker);
        }
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ANSWER_LIMIT_MS);
        StringJoiner answers = new StringJoiner(",", "{", "}");
        for (Broker broker : asked) {
            answers.add(quoted(broker.name) + ":" + broker.await(deadline - System.nanoTime()));
        }
        return answers.toString();
    }

    private static String quoted(String text) {
        StringBuilder result = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                result.append('\\');
            }
            result.append(c < ' ' ? ' ' : c);
        }
        return result.append('"').toString();
    }

    private static class Broker {
        final String name;
        private final String pid;
        private final String host;
        private MBeanServerConnection connection;
        private Future<String> answer;

        Broker(String word) {
            String[] parts = word.split("[=@]");
            name = parts[0];
            pid = parts[1];
            host = parts.length > 2 ? parts[2] : null;
        }

        /** Begin to read, unless an earlier read still waits for this broker. */
        void ask() {
            if (answer == null) {
                answer = threads.submit(this::read);
            }
        }

        String await(long nanoseconds) throws InterruptedException {
            try {
                String values = answer.get(Math.max(nanoseconds, 0), TimeUnit.NANOSECONDS);
                answer = null;
                return "{\"values\":" + values + "}";
            } catch (TimeoutException late) {
                return "{\"error\":\"no answer\"}";
            } catch (ExecutionException failure) {
                answer = null;
                connection = null;
                return "{\"error\":" + quoted(String.valueOf(failure.getCause())) + "}";
            }
        }

        private String read() throws Exception {
            if (connection == null) {
                connection = connect();
            }
            StringJoiner values = new StringJoiner(",", "{", "}");
            for (Wanted one : wanted) {
                for (ObjectName bean : connection.queryNames(one.pattern(), null)) {
                    if (one.skipped() == null || !bean.getCanonicalName().contains(one.skipped())) {
                        readBean(bean, one.attributes(), values);
                    }
                }
            }
            return values.toString();
        }

        private void readBean(ObjectName bean, String[] attributes, StringJoiner values)
                throws IOException, JMException {
            for (Attribute attribute : connection.getAttributes(bean, attributes).asList()) {
                if (attribute.getValue() instanceof Number number && Double.isFinite(number.doubleValue())) {
                    values.add(quoted(bean + "#" + attribute.getName()) + ":" + number);
                }
            }
        }

        private MBeanServerConnection connect() throws Exception {
            // A JVM that starts has no handler yet for the signal by which another process attaches: it would end.
            if (!catchesQuit()) {
                throw new IOException("the JVM starts");
            }
            VirtualMachine machine = VirtualMachine.attach(pid);
            String address;
            try {
                address = host == null ? machine.startLocalManagementAgent() : startAgent(machine);
            } finally {
                machine.detach();
            }
            JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address));
            return connector.getMBeanServerConnection();
        }

        private String startAgent(VirtualMachine machine) throws IOException {
            Properties settings = new Properties();
            settings.put("com.sun.management.jmxremote.port", String.valueOf(PORT));
            settings.put("com.sun.management.jmxremote.rmi.port", String.valueOf(PORT));
            settings.put("com.sun.management.jmxremote.host", host);
            settings.put("com.sun.management.jmxremote.authenticate", "false");
            settings.put("com.sun.management.jmxremote.ssl", "false");
            try {
                machine.startManagementAgent(settings);
            } catch (com.sun.tools.attach.AttachOperationFailedException started) {
                if (!String.valueOf(started.getMessage()).contains("already started")) {
                    throw started;
                }
            }
            return "service:jmx:rmi:///jndi/rmi://" + host + ":" + PORT + "/jmxrmi";
        }

        private boolean catchesQuit() throws IOException {
            for (String line : Files.readAllLines(Path.of("/proc", pid, "status"))) {
                if (line.startsWith("SigCgt:")) {
                    long caught = Long.parseUnsignedLong(line.substring("SigCgt:".length()).trim(), 16);
                    return (caught & SIGQUIT_BIT) != 0;
                }
            }
            return false;
        }
    }
}
