"""A real-cluster test harness that proves or breaks Kafka exactly-once semantics."""

__version__ = "0.1.0"
