"""Independent readers of the topics: a plain consumer, the raw log, and Spark's supervisor."""
