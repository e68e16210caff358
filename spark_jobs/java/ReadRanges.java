package eos;

import java.io.Serializable;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Collections;
import java.util.ConcurrentModificationException;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteBufferDeserializer;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Reads offset ranges with a Kafka consumer and folds the records at once, without a row for each record.
 *
 * The input of a task is a text. Each of its lines describes a range: window, partition, start, end and topic. The
 * consumer reads one range after the other, each from its start until its position has reached the end. If the position
 * does not move for a while, or the log no longer contains an offset of the range, the task fails.
 */
public final class ReadRanges implements FlatMapFunction, Serializable {
    private static final long serialVersionUID = 1L;

    private final FoldRuns layout;
    private final Map options;
    private final String where;
    private final String header;
    private final long patience;

    /** Takes the fold, the settings of the consumer, the place of the identity, and a time limit in milliseconds. */
    public ReadRanges(FoldRuns layout, Map options, String where, String header, long patience) {
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

    private static final class OfRanges extends FoldRuns.Blocks implements TaskCompletionListener {
        private static final Duration POLL = Duration.ofMillis(500L);

        private final ReadRanges reader;
        private final Iterator tasks;
        private String[] ranges = new String[0];
        private int nextRange = 0;
        private KafkaConsumer consumer = null;
        private TopicPartition partition = null; // the range that is being read; null if there is none
        private int window;
        private long end;
        private long position;
        private long moved; // time at which the position moved
        private List records = Collections.EMPTY_LIST;
        private int next = 0;

        OfRanges(ReadRanges reader, Iterator tasks) {
            super(reader.layout);
            this.reader = reader;
            this.tasks = tasks;
        }

        protected boolean more() {
            if (next < records.size()) {
                ConsumerRecord record = (ConsumerRecord) records.get(next++);
                if (record.offset() >= end) {
                    next = records.size();
                } else {
                    addRecord(record);
                }
                return true;
            }
            if (partition == null && !nextRange()) {
                return false;
            }
            poll();
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
            if (consumer == null) {
                consumer = new KafkaConsumer(reader.options, new ByteBufferDeserializer(), new ByteBufferDeserializer());
            }
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, position);
            moved = System.nanoTime();
            return true;
        }

        private void poll() {
            if (position >= end) {
                partition = null;
                return;
            }
            records = consumer.poll(POLL).records(partition);
            next = 0;
            // The position also moves past markers and aborted records, for which a poll returns nothing.
            long now = consumer.position(partition);
            if (now != position) {
                position = now;
                moved = System.nanoTime();
            } else if (System.nanoTime() - moved > reader.patience * 1000000L) {
                throw new IllegalStateException("the consumer stays at offset " + position + " of " + partition
                    + " and does not reach offset " + end);
            }
        }

        private void addRecord(ConsumerRecord record) {
            Object value;
            if (reader.where.equals("value")) {
                value = record.value();
            } else if (reader.where.equals("key")) {
                value = record.key();
            } else {
                Header last = record.headers().lastHeader(reader.header);
                value = last == null || last.value() == null ? null : ByteBuffer.wrap(last.value());
            }
            if (value == null) {
                add(window, record.offset(), null, 0L, -1);
                return;
            }
            ByteBuffer bytes = (ByteBuffer) value;
            if (!bytes.hasArray()) {
                byte[] copy = new byte[bytes.remaining()];
                bytes.get(copy);
                bytes = ByteBuffer.wrap(copy);
            }
            long start = Platform.BYTE_ARRAY_OFFSET + bytes.arrayOffset() + bytes.position();
            add(window, record.offset(), bytes.array(), start, bytes.remaining());
        }

        private void close() {
            if (consumer != null) {
                consumer.close(Duration.ZERO);
                consumer = null;
            }
        }

        public void onTaskCompletion(TaskContext context) {
            try {
                close();
            } catch (ConcurrentModificationException busy) {
                consumer.wakeup(); // another thread still polls: this ends the poll
            }
        }
    }
}
