"""The wire tap: sees each Kafka frame of TAPPED clients, and can touch a single one (docs/wire-tap.md)."""
