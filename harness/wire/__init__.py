"""The only place that speaks to Kafka, Toxiproxy, Docker and the operating system's processes."""
