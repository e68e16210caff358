package eos;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.Map;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/**
 * Folds consecutive records of a log into one row. The input rows contain topic, partition, offset and identity. The
 * output rows contain window, offset, the bytes of the identity, and the number of records.
 *
 * A record joins the previous row if its offset and its sequence are one higher, and its window and the rest of its
 * identity are the same. For an output of a pipeline, the sequence of its input must be one higher as well. Every
 * other record starts a new row. This class does not check identities: if the identity of a row's first record is
 * valid, the identities of its other records are valid too.
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

    /** Takes column indices, the positions of an identity's fields, and the maximum number of records in a row. */
    public FoldRuns(
        Map numbers, int atTopic, int atPartition, int atOffset, int atIdentity,
        int width, int seq, int seqEnd, int kind, int output, int outputWidth, int origin, int originEnd,
        int most
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
    }

    public Iterator call(Object rows) {
        return new Folding(this, (Iterator) rows);
    }

    /** The rows of one task, in offset order within each window. */
    private static final class Folding implements Iterator {
        private final FoldRuns layout;
        private final Iterator rows;
        private byte[] topic = new byte[0]; // topic, partition and window of the previous row
        private int partition = -1;
        private int place = -1;
        private boolean open = false;
        private int window;
        private long offset;
        private int count;
        private byte[] first;
        private byte[] expected; // start of a record that can join the row; null if no record can

        Folding(FoldRuns layout, Iterator rows) {
            this.layout = layout;
            this.rows = rows;
        }

        public boolean hasNext() {
            return open || rows.hasNext();
        }

        public Object next() {
            while (rows.hasNext()) {
                UnsafeRow row = (UnsafeRow) rows.next();
                look(row);
                long at = row.getLong(layout.atOffset);
                if (joins(at, row)) {
                    count++;
                    expect();
                    continue;
                }
                Object done = open ? folded() : null;
                begin(at, row);
                if (done != null) {
                    return done;
                }
            }
            open = false;
            return folded();
        }

        private Object folded() {
            return new GenericInternalRow(
                new Object[] {Integer.valueOf(window), Long.valueOf(offset), first, Integer.valueOf(count)}
            );
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

        private boolean joins(long at, UnsafeRow row) {
            return expected != null && count < layout.most && place == window && at == offset + count
                && !row.isNullAt(layout.atIdentity) && begins(row, layout.atIdentity, expected);
        }

        /** Returns whether a column starts with these bytes. It compares them in place to avoid a copy. */
        private static boolean begins(UnsafeRow row, int column, byte[] bytes) {
            long value = row.getLong(column); // upper half: position of the bytes in the row; lower half: their number
            return (int) value >= bytes.length && ByteArrayMethods.arrayEquals(
                row.getBaseObject(), row.getBaseOffset() + (value >>> 32),
                bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
        }

        private void begin(long at, UnsafeRow row) {
            // A record at a repeated offset stays alone, so that the scan can compare it with the previous record.
            boolean again = open && place == window && at < offset + count;
            open = true;
            window = place;
            offset = at;
            count = 1;
            first = null;
            expected = null;
            if (row.isNullAt(layout.atIdentity)) {
                return;
            }
            long value = row.getLong(layout.atIdentity); // position and number of bytes, as in `begins`
            int length = (int) value;
            Object base = row.getBaseObject();
            long start = row.getBaseOffset() + (value >>> 32);
            boolean made = length >= layout.width
                && Platform.getByte(base, start + layout.kind) == (byte) layout.output;
            int size = made ? layout.outputWidth : layout.width;
            first = new byte[Math.min(length, size)]; // without the payload
            Platform.copyMemory(base, start, first, Platform.BYTE_ARRAY_OFFSET, first.length);
            if (!again && length >= size && digits(layout.seq, layout.seqEnd)
                && (!made || digits(layout.origin, layout.originEnd))) {
                expected = (byte[]) first.clone();
                expect();
            }
        }

        private boolean digits(int start, int end) {
            for (int i = start; i < end; i++) {
                if (first[i] < '0' || first[i] > '9') {
                    return false;
                }
            }
            return true;
        }

        private void expect() {
            boolean made = expected.length > layout.width;
            if (!counted(layout.seq, layout.seqEnd) || made && !counted(layout.origin, layout.originEnd)) {
                expected = null;
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
}
