"""The log of a partition: stored batches, the fetch loop, and the records of the coordinators' topics."""
