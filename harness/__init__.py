"""A real-cluster test harness that proves or breaks Kafka exactly-once semantics."""
