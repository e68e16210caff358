"""Starts and supervises the Spark jobs of `spark_jobs`."""
