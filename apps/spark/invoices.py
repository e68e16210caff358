"""Write one invoice for each order, with Spark Structured Streaming and Spark's own Kafka sink.

Spark records in its checkpoint which inputs belong to a batch, and records the end of the batch after its
outputs are written. If the application is killed in between, it writes the batch again when it restarts. So
the sink is at least once: no order is lost, and some have two invoices.
"""

from __future__ import annotations

import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

BOOTSTRAP, ORDERS, INVOICES, STATE, JARS = (
    os.environ[name] for name in ("BOOTSTRAP", "ORDERS", "INVOICES", "STATE", "JARS")
)
# The work of a real application: 4 ms for each order. Its result is an empty text.
WORK = "coalesce(substring(reflect('java.lang.Thread', 'sleep', 4L), 1, 0), '')"
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
# Functions of Spark can be used only when there is a session.
name = f.concat("o.order", "work")
order = f.from_json(f.col("value").cast("string"), "`order` string, customer int, amount int")
query = (
    orders.select("key", order.alias("o"), f.expr(WORK).alias("work"))
    .select("key", f.to_json(f.struct(name.alias("order"), "o.customer", "o.amount")).alias("value"))
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", BOOTSTRAP)
    .option("topic", INVOICES)
    .option("checkpointLocation", f"{STATE}/checkpoint")
    .start()
)
print("the query is started", flush=True)
query.awaitTermination()
