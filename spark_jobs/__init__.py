"""Spark jobs that read Kafka topics and build observations from them.

The caller passes the Spark session. The jobs never configure Spark.
"""
