"""Access to Kafka without the retries of a client library: connections, requests, logs and error codes."""
