package eos;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Reads offset ranges with fetch requests, and folds records in the bytes of their batches, without an object for each
 * record.
 *
 * Requests, responses, batch headers, checksums and decompression are those of Kafka's client library. This class does
 * what the library's consumer does with a response under read_committed: it starts from the broker's list of aborted
 * transactions, skips the batches of an aborted transaction until its abort marker, skips control batches, and
 * continues at the next offset of the last batch. The broker returns no records behind the last stable offset.
 *
 * Each request contains the epoch of the leader, and the epoch of the last batch. So a broker that no longer leads the
 * partition refuses the request, and a broker whose log differs reports it. If the leader has moved or does not
 * respond, the task looks for the leader again, until a time limit. The task fails on everything that this class was
 * not made for: any other error of a broker, another format of batches, a batch that differs from its header. The
 * caller then takes another reader.
 *
 * The input of a task, and the settings, are the same as for ReadRanges.
 */
public final class FetchRanges implements FlatMapFunction, Serializable {
    private static final long serialVersionUID = 1L;

    private final FoldRuns layout;
    private final Map options;
    private final String where;
    private final String header;
    private final long patience;

    /** Takes the fold, the settings of a consumer, the place of the identity, and a time limit in milliseconds. */
    public FetchRanges(FoldRuns layout, Map options, String where, String header, long patience) {
        this.layout = layout;
        this.options = options;
        this.where = where;
        this.header = header;
        this.patience = patience;
    }

    public Iterator call(Object ranges) {
        OfRanges blocks = new OfRanges(this, (Iterator) ranges);
        TaskContext.get().addTaskCompletionListener((TaskCompletionListener) blocks);
        return blocks;
    }

    private int number(String setting) {
        return Integer.parseInt((String) options.get(setting));
    }

    /** Returns the isolation level of the settings; fails if there is no such level. */
    private IsolationLevel isolation() {
        String level = (String) options.get("isolation.level");
        IsolationLevel[] levels = IsolationLevel.values();
        for (int i = 0; i < levels.length; i++) {
            if (levels[i].toString().equals(level)) {
                return levels[i];
            }
        }
        throw new IllegalArgumentException("isolation.level is " + level);
    }

    /** A connection to a broker. The client may send a request while it still uses the response to the last one. */
    private static final class Connection {
        private static final int MOST = 1 << 28; // a greater size is no response: the listener speaks another protocol

        private final Socket socket = new Socket();
        private final DataInputStream in;
        private final OutputStream out;
        private byte[] response = new byte[1 << 16]; // valid until the next response is received
        private RequestHeader sent = null;
        private int correlation = 0;

        Connection(String host, int port, int patience, int buffer) throws IOException {
            try {
                socket.setReceiveBufferSize(buffer);
                socket.setTcpNoDelay(true);
                socket.setSoTimeout(patience);
                socket.connect(new InetSocketAddress(host, port), patience);
                in = new DataInputStream(socket.getInputStream());
                out = socket.getOutputStream();
            } catch (IOException error) {
                close();
                throw new IOException(host + ":" + port + ": " + error, error);
            }
        }

        void send(AbstractRequest request) throws IOException {
            sent = new RequestHeader(request.apiKey(), request.version(), "eos", correlation++);
            ByteBuffer content = request.serializeWithHeader(sent);
            ByteBuffer framed = ByteBuffer.allocate(4 + content.remaining());
            framed.putInt(content.remaining());
            framed.put(content);
            out.write(framed.array());
            out.flush();
        }

        AbstractResponse receive() throws IOException {
            int size = in.readInt();
            if (size < 0 || size > MOST) {
                throw new IllegalStateException("a response of " + size + " bytes is not one of Kafka");
            }
            if (size > response.length) {
                response = new byte[size];
            }
            in.readFully(response, 0, size);
            return AbstractResponse.parseResponse(ByteBuffer.wrap(response, 0, size), sent);
        }

        void close() {
            try {
                socket.close();
            } catch (IOException ignored) {
                // the connection is not used any more
            }
        }
    }

    private static final class OfRanges extends FoldRuns.Blocks implements TaskCompletionListener {
        private static final short FETCH_VERSION = 12; // the last one that names topics
        private static final short METADATA_VERSION = 9;
        private static final int WAIT_MS = 500;
        private static final long RETRY_MS = 100L;
        private static final List MOVED = Arrays.asList(new Object[] { // errors after which the leader is looked for
            Errors.NOT_LEADER_OR_FOLLOWER, Errors.FENCED_LEADER_EPOCH, Errors.UNKNOWN_LEADER_EPOCH,
            Errors.REPLICA_NOT_AVAILABLE, Errors.KAFKA_STORAGE_ERROR, Errors.OFFSET_NOT_AVAILABLE,
            Errors.UNKNOWN_TOPIC_OR_PARTITION
        });

        private final FetchRanges reader;
        private final Iterator tasks;
        private final IsolationLevel isolation;
        private final boolean ofValue;
        private final boolean ofKey;
        private final byte[] header;
        private final int size; // maximum number of bytes of a response
        private final Map connections = new HashMap(); // by node id
        private String[] ranges = new String[0];
        private int nextRange = 0;
        private TopicPartition partition = null; // the range that is being read; null if there is none
        private Connection leader = null; // null if it must be looked for
        private Optional leaderEpoch;
        private Optional lastEpoch; // of the last batch of the range
        private int window;
        private long end;
        private long position; // offset that the next request asks for
        private long from; // offset from which on the records of the response are read
        private long moved; // time at which the position moved
        private boolean proven = false; // whether a broker has answered a fetch request of this task
        private boolean waits = false; // whether a request has been sent and its response not received
        private Iterator batches = null; // the rest of the response
        private int at; // start of the next batch in the bytes of the response
        private byte[] content; // bytes of the response
        private final List aborted = new ArrayList(); // transactions of the response, by first offset
        private int nextAborted;
        private final Set abortedProducers = new HashSet();
        private final BufferSupplier buffers = BufferSupplier.create();
        private byte[] decompressed = new byte[1 << 16];
        private byte[] bytes; // records of the current batch
        private int next; // position in `bytes`
        private int limit;
        private int left = 0; // number of records of the batch that were not read
        private long base; // offset of the batch

        OfRanges(FetchRanges reader, Iterator tasks) {
            super(reader.layout);
            this.reader = reader;
            this.tasks = tasks;
            isolation = reader.isolation();
            ofValue = reader.where.equals("value");
            ofKey = reader.where.equals("key");
            header = reader.header.getBytes(StandardCharsets.UTF_8);
            size = reader.number("max.partition.fetch.bytes");
        }

        protected boolean more() {
            if (left > 0) {
                while (left > 0 && !full()) {
                    readRecord();
                }
                return true;
            }
            if (batches != null && batches.hasNext()) {
                openBatch((DefaultRecordBatch) batches.next());
                return true;
            }
            if (partition == null && !nextRange()) {
                return false;
            }
            fetch();
            return true;
        }

        private boolean nextRange() {
            while (nextRange == ranges.length) {
                if (!tasks.hasNext()) {
                    close();
                    return false;
                }
                ranges = ((String) tasks.next()).split("\n");
                nextRange = 0;
            }
            String[] parts = ranges[nextRange++].split(" ");
            window = Integer.parseInt(parts[0]);
            position = Long.parseLong(parts[2]);
            end = Long.parseLong(parts[3]);
            partition = new TopicPartition(parts[4], Integer.parseInt(parts[1]));
            leader = null;
            lastEpoch = Optional.empty();
            moved = System.nanoTime();
            return true;
        }

        /** Receives a response, and sends the next request, so that the broker works while records are read. */
        private void fetch() {
            if (position >= end) {
                partition = null;
                batches = null;
                return;
            }
            FetchResponseData.PartitionData data = null;
            while (data == null) {
                try {
                    if (leader == null) {
                        findLeader();
                    }
                    if (!waits) {
                        send();
                    }
                    FetchResponse response = (FetchResponse) leader.receive();
                    waits = false;
                    proven = true;
                    data = dataOf(response);
                } catch (IOException error) {
                    retryAfter(error);
                }
            }
            open(data);
            if (position < end) {
                try {
                    send();
                } catch (IOException error) {
                    disconnect(); // the next fetch looks for the leader
                }
            }
        }

        /** Waits before another attempt; fails if no attempt was successful, or for too long. */
        private void retryAfter(IOException error) {
            disconnect();
            if (!proven || System.nanoTime() - moved > reader.patience * 1000000L) {
                throw failure(error.toString());
            }
            try {
                Thread.sleep(RETRY_MS);
            } catch (InterruptedException stop) {
                Thread.currentThread().interrupt();
                throw failure("the task was interrupted");
            }
        }

        private IllegalStateException failure(String what) {
            return new IllegalStateException(
                "fetching " + partition + " at offset " + position + ", to offset " + end + ": " + what);
        }

        private void disconnect() {
            waits = false;
            if (leader != null) {
                leader.close();
                connections.values().remove(leader);
                leader = null;
            }
        }

        private Connection connect(String host, int port) throws IOException {
            return new Connection(
                host, port, reader.number("request.timeout.ms"), reader.number("receive.buffer.bytes"));
        }

        /** Asks the servers one after the other who leads the partition, and connects to the leader. */
        private void findLeader() throws IOException {
            String[] servers = ((String) reader.options.get("bootstrap.servers")).split(",");
            String reason = "";
            for (int i = 0; i < servers.length; i++) {
                String server = servers[i].trim();
                int colon = server.lastIndexOf(':');
                Connection connection = null;
                try {
                    connection = connect(server.substring(0, colon), Integer.parseInt(server.substring(colon + 1)));
                    List topics = new ArrayList();
                    topics.add(partition.topic());
                    connection.send(new MetadataRequest.Builder(topics, false).build(METADATA_VERSION));
                    if (takeLeader((MetadataResponse) connection.receive())) {
                        return;
                    }
                    reason += "; " + server + " has no leader in its metadata";
                } catch (IOException error) {
                    reason += "; " + error;
                } finally {
                    if (connection != null) {
                        connection.close();
                    }
                }
            }
            throw new IOException("no leader was found" + reason);
        }

        private boolean takeLeader(MetadataResponse response) throws IOException {
            for (Iterator each = response.topicMetadata().iterator(); each.hasNext();) {
                MetadataResponse.TopicMetadata topic = (MetadataResponse.TopicMetadata) each.next();
                List partitions = topic.partitionMetadata();
                for (int i = 0; topic.topic().equals(partition.topic()) && i < partitions.size(); i++) {
                    MetadataResponse.PartitionMetadata found = (MetadataResponse.PartitionMetadata) partitions.get(i);
                    Node node = (Node) response.brokersById().get(found.leaderId.orElse(null));
                    if (found.partition() == partition.partition() && node != null) {
                        Integer id = Integer.valueOf(node.id());
                        if (!connections.containsKey(id)) {
                            connections.put(id, connect(node.host(), node.port()));
                        }
                        leader = (Connection) connections.get(id);
                        leaderEpoch = found.leaderEpoch;
                        return true;
                    }
                }
            }
            return false;
        }

        private void send() throws IOException {
            Map wanted = new HashMap();
            wanted.put(partition, new FetchRequest.PartitionData(
                Uuid.ZERO_UUID, position, FetchRequest.INVALID_LOG_START_OFFSET, size, leaderEpoch, lastEpoch));
            FetchRequest.Builder builder = FetchRequest.Builder.forConsumer(FETCH_VERSION, WAIT_MS, 1, wanted);
            builder.isolationLevel(isolation);
            builder.setMaxBytes(size);
            leader.send((AbstractRequest) builder.build(FETCH_VERSION));
            waits = true;
        }

        /** Returns the content of a response; throws an IOException if the leader must be looked for again. */
        private FetchResponseData.PartitionData dataOf(FetchResponse response) throws IOException {
            Errors error = response.error();
            List topics = response.data().responses();
            for (int i = 0; error == Errors.NONE && i < topics.size(); i++) {
                FetchResponseData.FetchableTopicResponse topic =
                    (FetchResponseData.FetchableTopicResponse) topics.get(i);
                List partitions = topic.partitions();
                for (int j = 0; topic.topic().equals(partition.topic()) && j < partitions.size(); j++) {
                    FetchResponseData.PartitionData data = (FetchResponseData.PartitionData) partitions.get(j);
                    if (data.partitionIndex() == partition.partition()) {
                        error = Errors.forCode(data.errorCode());
                        if (error == Errors.NONE) {
                            return data;
                        }
                    }
                }
            }
            if (MOVED.contains(error)) {
                throw new IOException("the broker returns " + error);
            }
            throw failure("the broker returns " + error);
        }

        /** Begins to read a response, and moves the position to its end. */
        private void open(FetchResponseData.PartitionData data) {
            if (FetchResponse.isDivergingEpoch(data)) {
                throw failure("the log was truncated: " + data.divergingEpoch());
            }
            if (FetchResponse.isPreferredReplica(data)) {
                throw failure("the leader refers to another replica");
            }
            MemoryRecords records = (MemoryRecords) FetchResponse.recordsOrFail(data);
            ByteBuffer buffer = records.buffer();
            content = buffer.array();
            at = buffer.arrayOffset() + buffer.position();
            takeAborted(data.abortedTransactions());
            from = position;
            for (Iterator each = records.batches().iterator(); each.hasNext();) {
                RecordBatch batch = (RecordBatch) each.next();
                if (batch.magic() != RecordBatch.MAGIC_VALUE_V2) {
                    throw failure("a batch has the format " + batch.magic());
                }
                if (position > from && batch.baseOffset() < position || batch.nextOffset() <= position) {
                    throw failure("the batch at offset " + batch.baseOffset() + " is not in order");
                }
                position = batch.nextOffset();
                int epoch = batch.partitionLeaderEpoch();
                lastEpoch = epoch == RecordBatch.NO_PARTITION_LEADER_EPOCH
                    ? Optional.empty() : Optional.of(Integer.valueOf(epoch));
            }
            batches = records.batches().iterator();
            if (position > from) {
                moved = System.nanoTime();
            } else if (buffer.hasRemaining()) {
                throw failure("a response of " + buffer.remaining() + " bytes contains no whole batch");
            } else if (System.nanoTime() - moved > reader.patience * 1000000L) {
                throw failure("the broker returns no more records");
            }
        }

        /** Takes the aborted transactions of a response by first offset. There are few, and brokers sort them. */
        private void takeAborted(List transactions) {
            aborted.clear();
            if (transactions != null) {
                aborted.addAll(transactions);
            }
            for (int i = 1; i < aborted.size(); i++) {
                for (int j = i; j > 0 && firstOffset(j) < firstOffset(j - 1); j--) {
                    aborted.set(j, aborted.set(j - 1, aborted.get(j)));
                }
            }
            nextAborted = 0;
            abortedProducers.clear();
        }

        private long firstOffset(int i) {
            return ((FetchResponseData.AbortedTransaction) aborted.get(i)).firstOffset();
        }

        private void openBatch(DefaultRecordBatch batch) {
            int start = at;
            at += batch.sizeInBytes();
            base = batch.baseOffset();
            if (base >= end) {
                batches = Collections.EMPTY_LIST.iterator();
                return;
            }
            batch.ensureValid();
            if (isAborted(batch) || batch.isControlBatch() || batch.lastOffset() < from) {
                return;
            }
            left = batch.countOrNull().intValue();
            if (batch.compressionType() == CompressionType.NONE) {
                bytes = content;
                next = start + DefaultRecordBatch.RECORD_BATCH_OVERHEAD;
                limit = at;
            } else {
                decompress(batch);
            }
            if (left < 0 || left == 0 && next != limit) {
                throw failure("the batch at offset " + base + " has " + left + " records in " + (limit - next) + " bytes");
            }
        }

        /** Returns whether a batch is part of an aborted transaction; an abort marker ends the transaction. */
        private boolean isAborted(DefaultRecordBatch batch) {
            if (!batch.hasProducerId()) {
                return false;
            }
            while (nextAborted < aborted.size() && firstOffset(nextAborted) <= batch.lastOffset()) {
                abortedProducers.add(Long.valueOf(
                    ((FetchResponseData.AbortedTransaction) aborted.get(nextAborted++)).producerId()));
            }
            Long producer = Long.valueOf(batch.producerId());
            if (batch.isControlBatch()) {
                Iterator markers = batch.iterator();
                if (markers.hasNext()
                    && ControlRecordType.parse(((Record) markers.next()).key()) == ControlRecordType.ABORT) {
                    abortedProducers.remove(producer);
                }
                return false;
            }
            return batch.isTransactional() && abortedProducers.contains(producer);
        }

        private void decompress(DefaultRecordBatch batch) {
            next = 0;
            limit = 0;
            try {
                InputStream stream = batch.recordInputStream(buffers);
                try {
                    int count;
                    while ((count = stream.read(decompressed, limit, decompressed.length - limit)) >= 0) {
                        limit += count;
                        if (limit == decompressed.length) {
                            decompressed = Arrays.copyOf(decompressed, 2 * limit);
                        }
                    }
                } finally {
                    stream.close();
                }
            } catch (IOException error) {
                throw failure("the batch at offset " + base + " cannot be decompressed: " + error);
            }
            bytes = decompressed;
        }

        private void readRecord() {
            int length = number();
            int stop = next + length;
            if (length < 0 || stop > limit || stop < next) {
                throw broken("does not end within the batch");
            }
            next++; // attributes, which are not used
            while (bytes[next++] < 0) {
                // the time
            }
            long offset = base + number();
            int key = number();
            int keyStart = next;
            next += Math.max(key, 0);
            int value = number();
            int valueStart = next;
            next += Math.max(value, 0);
            if (offset >= from && offset < end) {
                if (ofValue) {
                    addBytes(offset, valueStart, value);
                } else if (ofKey) {
                    addBytes(offset, keyStart, key);
                } else {
                    addHeader(offset);
                }
            }
            if (next > stop) {
                throw broken("is longer than its size");
            }
            next = stop;
            left--;
            if (left == 0 && stop != limit) {
                throw broken("is the last one, but the batch has more bytes");
            }
        }

        private IllegalStateException broken(String what) {
            return failure("a record of the batch at offset " + base + " " + what);
        }

        private void addHeader(long offset) {
            int foundStart = 0;
            int found = -1;
            for (int count = number(); count > 0; count--) {
                int name = number();
                int nameStart = next;
                next += name;
                int value = number();
                if (Arrays.equals(bytes, nameStart, nameStart + name, header, 0, header.length)) {
                    foundStart = next;
                    found = value;
                }
                next += Math.max(value, 0);
            }
            addBytes(offset, foundStart, found);
        }

        private void addBytes(long offset, int start, int length) {
            if (length < 0) {
                add(window, offset, null, 0L, -1);
            } else if (length > limit - start) { // the fold reads memory without a check of its own
                throw broken("has an identity that does not end within the batch");
            } else {
                add(window, offset, bytes, (long) Platform.BYTE_ARRAY_OFFSET + start, length);
            }
        }

        /** Reads a number of variable length in zigzag code. */
        private int number() {
            int value = bytes[next++];
            if (value < 0) {
                value &= 127;
                int shift = 7;
                int part = bytes[next++];
                while (part < 0) {
                    value |= (part & 127) << shift;
                    shift += 7;
                    part = bytes[next++];
                }
                value |= part << shift;
            }
            return value >>> 1 ^ -(value & 1);
        }

        private void close() {
            for (Iterator each = connections.values().iterator(); each.hasNext();) {
                ((Connection) each.next()).close();
            }
            connections.clear();
            buffers.close();
        }

        public void onTaskCompletion(TaskContext context) {
            close();
        }
    }
}
