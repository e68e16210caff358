"""Start and supervision of the Spark jobs in `spark_jobs`."""
