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
 * Folds records of a log that count on, so that one row stands for all of them: rows with topic, partition,
 * offset and identity become rows of window, offset, the identity's bytes, and how many records they stand for.
 *
 * A record joins the row before it where window, offset and every byte of its identity are what the record
 * before makes expect: the same, but for the offset and the sequence, which are one higher. Whatever else
 * comes begins a row of its own. What an identity means and whether it is a good one is not judged here: of a
 * folded row that is as true of the first record as of the others.
 *
 * Compiled by Janino when a job needs it (fold.py), which knows generics by name only: so there are none.
 */
public final class FoldRuns implements FlatMapFunction, Serializable {
    private static final long serialVersionUID = 1L;

    private final Map numbers; // of windows: by topic, and by partition in an array
    private final int atTopic; // columns
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

    /** The columns, then where an identity's parts stand; the last is how many records one row may stand for. */
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

    /** One task's rows, in offset order within each window. */
    private static final class Folding implements Iterator {
        private final FoldRuns layout;
        private final Iterator rows;
        private byte[] topic = new byte[0]; // of the row before, and its partition and their window
        private int partition = -1;
        private int place = -1;
        private boolean open = false;
        private int window;
        private long offset;
        private int count;
        private byte[] first;
        private byte[] expected; // what the next record must begin with to join; null if none can

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

        /** Notes which window a row is of; Kafka's own tasks have one each. */
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

        /** Whether a column begins with these bytes: compared where they lie, a copy would cost more. */
        private static boolean begins(UnsafeRow row, int column, byte[] bytes) {
            long value = row.getLong(column); // where in the row the bytes are, and how many
            return (int) value >= bytes.length && ByteArrayMethods.arrayEquals(
                row.getBaseObject(), row.getBaseOffset() + (value >>> 32),
                bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
        }

        private void begin(long at, UnsafeRow row) {
            // A record at an offset that was there before stands alone: whoever judges must see it by itself.
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
            long value = row.getLong(layout.atIdentity); // as in `begins`
            int length = (int) value;
            Object base = row.getBaseObject();
            long start = row.getBaseOffset() + (value >>> 32);
            boolean made = length >= layout.width
                && Platform.getByte(base, start + layout.kind) == (byte) layout.output;
            int size = made ? layout.outputWidth : layout.width;
            first = new byte[Math.min(length, size)]; // the payload stays where it is
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

        /** Adds one to a field of digits; false if there is no higher one. */
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
