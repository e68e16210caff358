"""The wire tap: a relay that logs the Kafka frames of TAPPED clients and applies faults to single frames."""
