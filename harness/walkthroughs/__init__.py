"""Kafka's protocol shown step by step on a real cluster, and the hazards it has."""
