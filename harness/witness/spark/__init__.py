"""Starts and supervises the Spark jobs in `spark_jobs`."""
