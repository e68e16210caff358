"""Access to Kafka without a client library's retries: connections, requests, logs, error codes."""
