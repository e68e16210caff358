"""Fold of consecutive records into one row inside the JVM, before Python receives them.

Passing a row to a Python worker costs as much as reading it from Kafka. Most records differ from the previous
record only in their sequence, so `java/FoldRuns.java` folds such records into one row. A folded row has four
columns: `window` (a number for topic and partition), `offset`, `value` (the bytes of the identity) and `n`.
The row represents `n` records. Its `offset` and `value` are those of the first record.

Only Python code interprets records. It also accepts rows that are not folded, so the fold changes the speed
but not the result.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from harness.evidence.record import FIELDS, KIND_PIPELINE, ORIGIN_FIELDS, ORIGIN_WIDTH, WIDTH
from harness.provision.paths import cache_dir
from spark_jobs.kafka_source import FrozenLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = Path(__file__).parent / "java" / "FoldRuns.java"
SCHEMA: Final = "window INT, offset BIGINT, value BINARY, n INT"
MOST: Final = 1 << 16
"""Maximum number of records in a folded row. It limits the memory for expanding the row into records."""

Fold = Callable[[FrozenLog], Any]
"""Function that takes a log and returns a Java function. Spark passes the rows of each task to that Java
function.
"""

_known: WeakKeyDictionary[Any, Fold] = WeakKeyDictionary()


def folded(log: FrozenLog, fold: Fold | None = None) -> DataFrame:
    """Fold consecutive records of a log, and return the folded rows as a DataFrame.

    Each Spark task must have all records of its windows in offset order.
    """
    from pyspark.sql import DataFrame as Frame

    spark = log.frame.sparkSession
    fold_rows = (fold or _fold(spark))(log)
    rows = _rows(log.frame).toJavaRDD().mapPartitions(fold_rows)
    session: Any = spark._jsparkSession
    java: Any = log.frame._jdf
    schema = java.schema().fromDDL(SCHEMA)
    return Frame(session.internalCreateDataFrame(rows.rdd(), schema, False), spark)


def _rows(frame: DataFrame) -> Any:
    """Return the rows of a DataFrame as Spark's internal rows.

    If the query plan only reads from Kafka, take the rows directly from the Kafka source. If Spark executed
    the whole plan, it would copy every row, which takes as long as the fold.
    """
    execution: Any = frame._jdf.queryExecution()
    plan = execution.executedPlan()
    source = plan.collectLeaves().head()
    if source.getClass().getSimpleName() == "BatchScanExec" and source.output().equals(plan.output()):
        return source.execute()
    return execution.toRdd()


def _fold(spark: SparkSession) -> Fold:
    """Return the fold for a Spark session. Its Java code is compiled once, and the jar is cached."""
    context = spark.sparkContext
    if context not in _known:
        source = SOURCE.read_text()
        key = hashlib.sha256(f"{context.version}\n{source}".encode()).hexdigest()[:16]
        _known[context] = compiled(spark, source, cache_dir() / "spark" / f"fold-{key}.jar")
    return _known[context]


def compiled(spark: SparkSession, source: str, jar: Path, name: str = SOURCE.stem) -> Fold:
    """Compile a fold unless its jar exists, send the jar to the executors, and return the fold.

    Executors identify jars and classes by name. So each different fold must have its own jar name and class
    name.
    """
    context: Any = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    if not jar.exists():
        _compile(jvm, source, jar)
    context._jsc.addJar(str(jar))
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(urls, jvm.Thread.currentThread().getContextClassLoader())
    (constructor,) = loader.loadClass(f"eos.{name}").getConstructors()

    def fold(log: FrozenLog) -> Any:
        numbers = jvm.java.util.HashMap()
        for topic, windows in log.numbers.items():
            numbers[topic] = _filled(gateway.new_array(jvm.int, max(windows) + 1), windows)
        columns = [log.frame.columns.index(name) for name in ("topic", "partition", "offset", log.identity)]
        arguments = dict(enumerate([numbers, *columns, *_layout()]))
        array = gateway.new_array(jvm.Object, len(arguments))
        return constructor.newInstance(_filled(array, arguments))

    return fold


def _filled(array: Any, values: Mapping[int, Any]) -> Any:
    for i, value in values.items():
        array[i] = value
    return array


def _compile(jvm: Any, source: str, jar: Path) -> None:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    jar.parent.mkdir(parents=True, exist_ok=True)
    temporary = jar.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(temporary, "w") as archive:
        for name, code in compiler.getBytecodes().items():
            archive.writestr(name.replace(".", "/") + ".class", bytes(code))
    temporary.replace(jar)


def _layout() -> tuple[int, ...]:
    """Return the numeric constants that the constructor of the Java class needs.

    They are byte positions in the identity, the letter that marks pipeline outputs, and the maximum number of
    records in a folded row.
    """
    fields = {field.name: field for field in (*FIELDS, *ORIGIN_FIELDS)}
    seq, origin = fields["seq"], fields["origin_seq"]
    kind = (fields["kind"].start, ord(KIND_PIPELINE))
    spans = (origin.start, origin.start + origin.width)
    return (WIDTH, seq.start, seq.start + seq.width, *kind, WIDTH + ORIGIN_WIDTH, *spans, MOST)
