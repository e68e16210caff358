"""Evidence of a run and the verdict on it: record format, histories, ledger, observations, checkers.

Nothing in this package imports a Kafka client or changes the cluster.
"""
