package eos;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;

import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Finds tokens in the key, the value and the headers of records. The input rows are those of Spark's Kafka source. The
 * output rows contain topic, partition, offset and the token as an identity: one row for each different token of a
 * record. A record of an output topic without a token becomes an identity with its offset as the sequence. A record of
 * an input topic without a token becomes a row with null.
 *
 * A token is found in upper and lower case, and never across two parts of a record. The search compares the byte at the
 * end of the needle first and skips as many bytes as this byte permits (Boyer-Moore-Horspool), so it looks at few bytes
 * of a value.
 *
 * Janino compiles this class when a job needs it (jvm_class.py). Janino does not support generics, so the class uses
 * none.
 */
public final class FindTokens implements FlatMapFunction, Serializable {
    private static final long serialVersionUID = 1L;

    private final int atTopic; // column indices
    private final int atPartition;
    private final int atOffset;
    private final int atKey;
    private final int atValue;
    private final int atHeaders;
    private final byte[] needle; // start of every token, in lower case
    private final int digits; // number of digits behind the needle
    private final byte[] identity; // an identity, whose digits are replaced; without the slot
    private final int slotAt; // place of the slot in the identity; the digits follow it
    private final byte[] nothing; // first digits of a record without a token; its offset follows them
    private final Map slots; // slot of each output topic, as text of one digit
    private final int[] skips = new int[256];

    /** Takes column indices, the needle, and the parts of an identity. */
    public FindTokens(
        int atTopic, int atPartition, int atOffset, int atKey, int atValue, int atHeaders,
        String needle, int digits, String identity, int slotAt, String nothing, Map slots
    ) {
        this.atTopic = atTopic;
        this.atPartition = atPartition;
        this.atOffset = atOffset;
        this.atKey = atKey;
        this.atValue = atValue;
        this.atHeaders = atHeaders;
        this.needle = ascii(needle);
        this.digits = digits;
        this.identity = ascii(identity);
        this.slotAt = slotAt;
        this.nothing = ascii(nothing);
        this.slots = slots;
        int last = this.needle.length - 1;
        for (int i = 0; i < skips.length; i++) {
            skips[i] = last + 1;
        }
        for (int i = 0; i < last; i++) {
            int letter = this.needle[i];
            skips[letter] = last - i;
            skips[Character.toUpperCase((char) letter)] = last - i;
        }
    }

    public Iterator call(Object rows) {
        return new Finding(this, (Iterator) rows);
    }

    private static byte[] ascii(String text) {
        byte[] bytes = new byte[text.length()];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) text.charAt(i);
        }
        return bytes;
    }

    /** The rows of one task. */
    private static final class Finding implements Iterator {
        private final FindTokens layout;
        private final Iterator rows;
        private final List found = new ArrayList(); // identities of the current record
        private int next = 0; // index of the next identity of the current record
        private UTF8String topic = null;
        private byte slot;
        private int partition;
        private long offset;

        Finding(FindTokens layout, Iterator rows) {
            this.layout = layout;
            this.rows = rows;
        }

        public boolean hasNext() {
            return next < found.size() || rows.hasNext();
        }

        public Object next() {
            if (next == found.size()) {
                look((UnsafeRow) rows.next());
            }
            return new GenericInternalRow(
                new Object[] {topic, Integer.valueOf(partition), Long.valueOf(offset), found.get(next++)}
            );
        }

        /** Finds the tokens of a record; there is always at least one row for it. */
        private void look(UnsafeRow row) {
            found.clear();
            next = 0;
            partition = row.getInt(layout.atPartition);
            offset = row.getLong(layout.atOffset);
            UTF8String now = row.getUTF8String(layout.atTopic);
            if (!now.equals(topic)) {
                topic = now.clone(); // the row is reused for the next record
                String known = (String) layout.slots.get(topic.toString());
                slot = (byte) (known == null ? '0' : known.charAt(0));
            }
            search(row, layout.atKey);
            search(row, layout.atValue);
            if (!row.isNullAt(layout.atHeaders)) {
                ArrayData headers = row.getArray(layout.atHeaders);
                for (int i = 0; i < headers.numElements(); i++) {
                    InternalRow header = headers.getStruct(i, 2);
                    if (!header.isNullAt(1)) {
                        byte[] bytes = header.getBinary(1);
                        search(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
                    }
                }
            }
            if (found.isEmpty()) {
                found.add(slot == '0' ? null : withoutToken());
            }
        }

        private void search(UnsafeRow row, int column) {
            if (!row.isNullAt(column)) {
                long value = row.getLong(column); // upper half: position of the bytes in the row; lower half: their number
                search(row.getBaseObject(), row.getBaseOffset() + (value >>> 32), (int) value);
            }
        }

        private void search(Object base, long start, int length) {
            byte[] needle = layout.needle;
            int[] skips = layout.skips;
            int last = needle.length - 1;
            int end = length - needle.length - layout.digits;
            int at = 0;
            while (at <= end) {
                byte edge = Platform.getByte(base, start + at + last);
                if (edge == needle[last] && isNeedle(base, start + at) && areDigits(base, start + at)) {
                    add(base, start + at + needle.length);
                    at += needle.length + layout.digits;
                } else {
                    at += skips[edge & 0xff];
                }
            }
        }

        /** Returns whether the bytes before the last one of the needle are there, in any case. */
        private boolean isNeedle(Object base, long start) {
            byte[] needle = layout.needle;
            for (int i = 0; i < needle.length - 1; i++) {
                byte letter = Platform.getByte(base, start + i);
                if (letter >= 'A' && letter <= 'Z') {
                    letter += 'a' - 'A';
                }
                if (letter != needle[i]) {
                    return false;
                }
            }
            return true;
        }

        private boolean areDigits(Object base, long start) {
            long first = start + layout.needle.length;
            for (int i = 0; i < layout.digits; i++) {
                byte digit = Platform.getByte(base, first + i);
                if (digit < '0' || digit > '9') {
                    return false;
                }
            }
            return true;
        }

        private void add(Object base, long start) {
            byte[] bytes = identity();
            Platform.copyMemory(
                base, start, bytes, Platform.BYTE_ARRAY_OFFSET + layout.slotAt + 1, layout.digits);
            for (int i = 0; i < found.size(); i++) {
                if (java.util.Arrays.equals((byte[]) found.get(i), bytes)) {
                    return;
                }
            }
            found.add(bytes);
        }

        private byte[] identity() {
            byte[] bytes = (byte[]) layout.identity.clone();
            bytes[layout.slotAt] = slot;
            return bytes;
        }

        private byte[] withoutToken() {
            byte[] bytes = identity();
            int at = layout.slotAt + 1;
            System.arraycopy(layout.nothing, 0, bytes, at, layout.nothing.length);
            long left = offset;
            for (int i = at + layout.digits - 1; i >= at + layout.nothing.length; i--) {
                bytes[i] = (byte) ('0' + left % 10);
                left /= 10;
            }
            return bytes;
        }
    }
}
