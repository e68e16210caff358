"""Write one invoice for each order, with Spark Structured Streaming and Spark's own Kafka sink.

Spark records in its checkpoint which inputs belong to a batch, and records the end of the batch after its
outputs are written. If the application is killed in between, it writes the batch again when it restarts. So
the sink is at least once: no order is lost, and some have two invoices.
"""

from __future__ import annotations

import os
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType

BOOTSTRAP, ORDERS, INVOICES, STATE, JARS = (
    os.environ[name] for name in ("BOOTSTRAP", "ORDERS", "INVOICES", "STATE", "JARS")
)


def invoice(order: str) -> str:
    """Return the invoice for an order."""
    time.sleep(0.005)  # the work of a real application
    return f'{{"invoice for":{order}}}'


spark = (
    SparkSession.builder.appName("invoices")
    .master("local[1]")
    .config("spark.driver.extraClassPath", JARS)
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "600m")
    .config("spark.ui.enabled", "false")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
orders = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", BOOTSTRAP)
    .option("kafka.isolation.level", "read_committed")
    .option("subscribe", ORDERS)
    .option("startingOffsets", "earliest")
    .load()
)
query = (
    orders.select("key", f.udf(invoice, StringType())(f.col("value").cast("string")).alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", BOOTSTRAP)
    .option("topic", INVOICES)
    .option("checkpointLocation", f"{STATE}/checkpoint")
    .start()
)
print("the query is started", flush=True)
query.awaitTermination()
