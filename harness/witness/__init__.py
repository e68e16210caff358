"""Independent readers of the topics: a plain consumer, the raw log, and the supervisor of the Spark job."""
