"""Neighbours become one row inside the JVM, before anything is handed to Python.

Handing a row to a Python worker costs as much as reading it from Kafka. In a log most records differ from
the one before in their sequence only, so `java/FoldRuns.java` folds them: a row of `window` (the number of
topic and partition), `offset`, `value` (the bytes of the identity) and `n` stands for `n` records, of which
it is the first. What records mean is said in one place, the pass in numpy; it takes rows that stand for one
record as well, so the fold changes its speed and nothing else.
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
from spark_jobs.kafka_source import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = Path(__file__).parent / "java" / "FoldRuns.java"
SCHEMA: Final = "window INT, offset BIGINT, value BINARY, n INT"
MOST: Final = 1 << 16
"""How many records one row may stand for: what is unfolded again stays small."""

Fold = Callable[[Log], Any]
"""Makes of a log what Spark calls with the rows of each of its tasks."""

_known: WeakKeyDictionary[Any, Fold] = WeakKeyDictionary()


def folded(log: Log, fold: Fold | None = None) -> DataFrame:
    """Fold a log whose tasks hold each window in offset order."""
    from pyspark.sql import DataFrame as Frame

    spark = log.frame.sparkSession
    made = (fold or _fold(spark))(log)
    rows = _rows(log.frame).toJavaRDD().mapPartitions(made)
    session: Any = spark._jsparkSession
    java: Any = log.frame._jdf
    schema = java.schema().fromDDL(SCHEMA)
    return Frame(session.internalCreateDataFrame(rows.rdd(), schema, False), spark)


def _rows(frame: DataFrame) -> Any:
    """Return the rows of a frame, and those of Kafka itself where nothing is chosen of them.

    There Spark's plan would only copy every row, and that costs as much as to fold it.
    """
    execution: Any = frame._jdf.queryExecution()  # type: ignore[operator]
    plan = execution.executedPlan()
    source = plan.collectLeaves().head()
    if source.getClass().getSimpleName() == "BatchScanExec" and source.output().equals(plan.output()):
        return source.execute()
    return execution.toRdd()


def _fold(spark: SparkSession) -> Fold:
    """Return the fold of this session's executors; its jar is made once and kept."""
    context = spark.sparkContext
    if context not in _known:
        source = SOURCE.read_text()
        key = hashlib.sha256(f"{context.version}\n{source}".encode()).hexdigest()[:16]
        _known[context] = compiled(spark, source, cache_dir() / "spark" / f"fold-{key}.jar")
    return _known[context]


def compiled(spark: SparkSession, source: str, jar: Path, name: str = SOURCE.stem) -> Fold:
    """Compile a fold unless its jar is there, give the jar to the executors, and return the fold of a log.

    Executors know jars and classes by their names: another fold must have another name for both.
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

    def fold(log: Log) -> Any:
        numbers = jvm.java.util.HashMap()
        for topic, found in log.numbers.items():
            numbers[topic] = _filled(gateway.new_array(jvm.int, max(found) + 1), found)
        columns = [log.frame.columns.index(name) for name in ("topic", "partition", "offset", log.identity)]
        given = dict(enumerate([numbers, *columns, *_layout()]))
        return constructor.newInstance(_filled(gateway.new_array(jvm.Object, len(given)), given))

    return fold


def _filled(array: Any, given: Mapping[int, Any]) -> Any:
    for i, one in given.items():
        array[i] = one
    return array


def _compile(jvm: Any, source: str, jar: Path) -> None:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(source)
    jar.parent.mkdir(parents=True, exist_ok=True)
    made = jar.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(made, "w") as archive:
        for name, code in compiler.getBytecodes().items():
            archive.writestr(name.replace(".", "/") + ".class", bytes(code))
    made.replace(jar)


def _layout() -> tuple[int, ...]:
    """Return what the fold must know of an identity, and how much it may fold."""
    fields = {field.name: field for field in (*FIELDS, *ORIGIN_FIELDS)}
    seq, origin = fields["seq"], fields["origin_seq"]
    kind = (fields["kind"].start, ord(KIND_PIPELINE))
    spans = (origin.start, origin.start + origin.width)
    return (WIDTH, seq.start, seq.start + seq.width, *kind, WIDTH + ORIGIN_WIDTH, *spans, MOST)
