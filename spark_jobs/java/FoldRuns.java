package eos;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Map;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * Folds consecutive records of a log into folded rows, and packs folded rows into blocks. The input rows contain topic,
 * partition, offset and identity. A folded row contains window, offset, the bytes of the identity, and the number of
 * records. One row of the output is a block: five arrays with the columns of many folded rows.
 *
 * A record joins the previous folded row if its offset and its sequence are one higher, and its window and the rest of
 * its identity are the same. For an output of a pipeline, the sequence of its input must be one higher as well. Every
 * other record starts a new folded row. This class does not check identities: if the identity of a row's first record
 * is valid, the identities of its other records are valid too.
 *
 * Janino compiles this class when a job needs it (jvm_fold.py). Janino does not support generics, so the class uses
 * none.
 */
public final class FoldRuns implements FlatMapFunction, Serializable {
    private static final long serialVersionUID = 1L;

    private final Map numbers; // window numbers: by topic, then by partition in an array
    private final int atTopic; // column indices
    private final int atPartition;
    private final int atOffset;
    private final int atIdentity;
    private final int width;
    private final int seq;
    private final int seqEnd;
    private final int kind;
    private final int output;
    private final int outputWidth;
    private final int origin;
    private final int originEnd;
    private final int most;
    private final int mostRows;

    /**
     * Takes column indices, the positions of an identity's fields, the maximum number of records in a folded row, and
     * the maximum number of folded rows in a block.
     */
    public FoldRuns(
        Map numbers, int atTopic, int atPartition, int atOffset, int atIdentity,
        int width, int seq, int seqEnd, int kind, int output, int outputWidth, int origin, int originEnd,
        int most, int mostRows
    ) {
        this.numbers = numbers;
        this.atTopic = atTopic;
        this.atPartition = atPartition;
        this.atOffset = atOffset;
        this.atIdentity = atIdentity;
        this.width = width;
        this.seq = seq;
        this.seqEnd = seqEnd;
        this.kind = kind;
        this.output = output;
        this.outputWidth = outputWidth;
        this.origin = origin;
        this.originEnd = originEnd;
        this.most = most;
        this.mostRows = mostRows;
    }

    public Iterator call(Object rows) {
        return new OfRows(this, (Iterator) rows);
    }

    /** The blocks of one task. A subclass adds the records, in offset order within each window. */
    public abstract static class Blocks implements Iterator {
        private final FoldRuns layout;
        private boolean open = false; // whether there is a folded row that a record can join or repeat
        private int window; // the last folded row
        private long offset;
        private int count;
        private final byte[] expected; // start of a record that can join the row
        private int expectedSize = 0; // its number of bytes; 0 if no record can join
        private final int[] windows; // columns of the block
        private final long[] offsets;
        private final int[] counts;
        private final int[] sizes; // numbers of bytes of the identities; -1 for a record without one
        private byte[] values;
        private int rows = 0;
        private int bytes = 0;
        private Object done = null;

        protected Blocks(FoldRuns layout) {
            this.layout = layout;
            expected = new byte[layout.outputWidth];
            windows = new int[layout.mostRows];
            offsets = new long[layout.mostRows];
            counts = new int[layout.mostRows];
            sizes = new int[layout.mostRows];
            values = new byte[layout.outputWidth * 64];
        }

        /** Adds the next record, or does other work towards it; returns false if there is none. */
        protected abstract boolean more();

        public final boolean hasNext() {
            while (done == null && more()) {
                // `more` sets `done` when a block is full
            }
            if (done == null && rows > 0) {
                done = block();
            }
            return done != null;
        }

        public final Object next() {
            hasNext();
            Object block = done;
            done = null;
            return block;
        }

        private Object block() {
            counts[rows - 1] = count;
            Object block = new GenericInternalRow(new Object[] {
                bytesOf(windows, Platform.INT_ARRAY_OFFSET, 4), bytesOf(offsets, Platform.LONG_ARRAY_OFFSET, 8),
                bytesOf(counts, Platform.INT_ARRAY_OFFSET, 4), bytesOf(sizes, Platform.INT_ARRAY_OFFSET, 4),
                Arrays.copyOf(values, bytes)
            });
            rows = 0;
            bytes = 0;
            return block;
        }

        private byte[] bytesOf(Object numbers, long start, int size) {
            byte[] copy = new byte[rows * size];
            Platform.copyMemory(numbers, start, copy, Platform.BYTE_ARRAY_OFFSET, (long) copy.length);
            return copy;
        }

        /** Returns whether a block is complete: `more` must then return. */
        protected final boolean full() {
            return done != null;
        }

        /** Adds a record. Its identity begins at a position of an object or of memory; length -1 means null. */
        protected final void add(int place, long at, Object base, long start, int length) {
            if (joins(place, at, base, start, length)) {
                count++;
                expect();
            } else {
                begin(place, at, base, start, length);
            }
        }

        private boolean joins(int place, long at, Object base, long start, int length) {
            return expectedSize > 0 && count < layout.most && place == window && at == offset + count
                && length >= expectedSize
                && ByteArrayMethods.arrayEquals(base, start, expected, Platform.BYTE_ARRAY_OFFSET, expectedSize);
        }

        private void begin(int place, long at, Object base, long start, int length) {
            // A record at a repeated offset stays alone, so that the scan can compare it with the previous record.
            boolean again = open && place == window && at < offset + count;
            if (rows == layout.mostRows) {
                done = block();
            } else if (rows > 0) {
                counts[rows - 1] = count;
            }
            open = true;
            window = place;
            offset = at;
            count = 1;
            expectedSize = 0;
            windows[rows] = place;
            offsets[rows] = at;
            sizes[rows] = -1;
            rows++;
            if (length < 0) {
                return;
            }
            boolean made = length >= layout.width
                && Platform.getByte(base, start + layout.kind) == (byte) layout.output;
            int size = made ? layout.outputWidth : layout.width;
            int kept = Math.min(length, size); // without the payload
            if (bytes + kept > values.length) {
                values = Arrays.copyOf(values, Math.min(2 * values.length, layout.outputWidth * layout.mostRows));
            }
            Platform.copyMemory(base, start, values, Platform.BYTE_ARRAY_OFFSET + bytes, kept);
            sizes[rows - 1] = kept;
            bytes += kept;
            if (!again && length >= size && digits(layout.seq, layout.seqEnd)
                && (!made || digits(layout.origin, layout.originEnd))) {
                System.arraycopy(values, bytes - size, expected, 0, size);
                expectedSize = size;
                expect();
            }
        }

        private boolean digits(int start, int end) {
            int first = bytes - sizes[rows - 1];
            for (int i = first + start; i < first + end; i++) {
                if (values[i] < '0' || values[i] > '9') {
                    return false;
                }
            }
            return true;
        }

        private void expect() {
            boolean made = expectedSize > layout.width;
            if (!counted(layout.seq, layout.seqEnd) || made && !counted(layout.origin, layout.originEnd)) {
                expectedSize = 0;
            }
        }

        /** Adds one to a field of digits; returns false on overflow. */
        private boolean counted(int start, int end) {
            for (int i = end - 1; i >= start; i--) {
                if (expected[i] != '9') {
                    expected[i]++;
                    return true;
                }
                expected[i] = '0';
            }
            return false;
        }
    }

    /** The blocks of one task that reads rows of Spark. */
    private static final class OfRows extends Blocks {
        private final FoldRuns layout;
        private final Iterator rows;
        private byte[] topic = new byte[0]; // topic, partition and window of the previous row
        private int partition = -1;
        private int place = -1;

        OfRows(FoldRuns layout, Iterator rows) {
            super(layout);
            this.layout = layout;
            this.rows = rows;
        }

        protected boolean more() {
            if (!rows.hasNext()) {
                return false;
            }
            UnsafeRow row = (UnsafeRow) rows.next();
            look(row);
            long at = row.getLong(layout.atOffset);
            if (row.isNullAt(layout.atIdentity)) {
                add(place, at, null, 0L, -1);
            } else {
                long value = row.getLong(layout.atIdentity); // upper half: position in the row; lower half: length
                add(place, at, row.getBaseObject(), row.getBaseOffset() + (value >>> 32), (int) value);
            }
            return true;
        }

        /** Sets the window of a row. A task of the Kafka source has only one window, so look it up only on a change. */
        private void look(UnsafeRow row) {
            int now = row.getInt(layout.atPartition);
            if (now != partition || (int) row.getLong(layout.atTopic) != topic.length
                || !begins(row, layout.atTopic, topic)) {
                partition = now;
                topic = row.getBinary(layout.atTopic);
                place = ((int[]) layout.numbers.get(new String(topic, StandardCharsets.UTF_8)))[now];
            }
        }

        /** Returns whether a column starts with these bytes. It compares them in place to avoid a copy. */
        private static boolean begins(UnsafeRow row, int column, byte[] bytes) {
            long value = row.getLong(column);
            return ByteArrayMethods.arrayEquals(
                row.getBaseObject(), row.getBaseOffset() + (value >>> 32),
                bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
        }
    }
}
