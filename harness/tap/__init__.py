"""The wire tap: a relay that logs the Kafka frames of its clients and applies faults to single frames."""
