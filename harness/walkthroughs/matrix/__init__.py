"""The client matrix: small cases that every client library carries out on each version of Kafka."""
