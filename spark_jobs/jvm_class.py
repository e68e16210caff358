"""Java classes that Spark runs on the rows of a task. Each is compiled once, cached."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from harness.provision.paths import cache_dir

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCES: Final = Path(__file__).parent / "java"

Make = Callable[[Sequence[object]], Any]
"""Function that takes the arguments of a constructor and returns a Java object."""

_known: WeakKeyDictionary[Any, dict[str, Make]] = WeakKeyDictionary()


def java_class(spark: SparkSession, name: str) -> Make:
    """Return the constructor of a class in the folder `java`. It is compiled once, and the jar is cached."""
    context = spark.sparkContext
    makers = _known.setdefault(context, {})
    if name not in makers:
        source = (SOURCES / f"{name}.java").read_text()
        key = hashlib.sha256(f"{context.version}\n{source}".encode()).hexdigest()[:16]
        makers[name] = compiled_class(spark, source, cache_dir() / "spark" / f"{name}-{key}.jar", name)
    return makers[name]


def compiled_class(spark: SparkSession, source: str, jar: Path, name: str) -> Make:
    """Compile a class unless its jar exists, send the jar to the executors, and return its constructor.

    Executors identify jars and classes by name. So each different class must have its own jar name and class
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

    def make(arguments: Sequence[object]) -> Any:
        array = gateway.new_array(jvm.Object, len(arguments))
        return constructor.newInstance(filled(array, dict(enumerate(arguments))))

    return make


def internal_rows(frame: DataFrame) -> Any:
    """Return the rows of a DataFrame as Spark's internal rows.

    If the query plan only reads from Kafka, take the rows directly from the Kafka source. If Spark executed
    the whole plan, it would copy every row, which takes as long as a fold of all rows.
    """
    execution: Any = frame._jdf.queryExecution()
    plan = execution.executedPlan()
    source = plan.collectLeaves().head()
    if source.getClass().getSimpleName() == "BatchScanExec" and source.output().equals(plan.output()):
        return source.execute()
    return execution.toRdd()


def mapped_rows(frame: DataFrame, function: Any, schema: str) -> DataFrame:
    """Apply a Java function to the internal rows of each partition, and return its rows as a DataFrame."""
    from pyspark.sql import DataFrame as Frame

    spark = frame.sparkSession
    rows = internal_rows(frame).toJavaRDD().mapPartitions(function)
    session: Any = spark._jsparkSession
    java: Any = frame._jdf
    return Frame(session.internalCreateDataFrame(rows.rdd(), java.schema().fromDDL(schema), False), spark)


def filled(array: Any, values: Mapping[int, Any]) -> Any:
    """Set elements of a Java array, and return it."""
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
