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


class JavaClass:
    """A compiled class. Calling it with the arguments of its constructor returns a Java object."""

    def __init__(self, gateway: Any, jvm: Any, jar: Path, loader: Any, name: str) -> None:
        self.jar = jar
        self.loader = loader
        self._gateway, self._jvm = gateway, jvm
        (self._constructor,) = loader.loadClass(f"eos.{name}").getConstructors()

    def __call__(self, arguments: Sequence[object]) -> Any:
        """Return a new object of the class."""
        array = self._gateway.new_array(self._jvm.Object, len(arguments))
        return self._constructor.newInstance(filled(array, dict(enumerate(arguments))))


_known: WeakKeyDictionary[Any, dict[str, JavaClass]] = WeakKeyDictionary()


def java_class(spark: SparkSession, name: str, needed: JavaClass | None = None) -> JavaClass:
    """Return a class in the folder `java`. It is compiled once, and the jar is cached.

    `needed` is another class that this one uses. A jar belongs to one version of both.
    """
    context = spark.sparkContext
    classes = _known.setdefault(context, {})
    if name not in classes:
        source = (SOURCES / f"{name}.java").read_text()
        text = f"{context.version}\n{source}{needed.jar.name if needed else ''}"
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        jar = cache_dir() / "spark" / f"{name}-{key}.jar"
        classes[name] = compiled_class(spark, source, jar, name, needed)
    return classes[name]


def compiled_class(
    spark: SparkSession, source: str, jar: Path, name: str, needed: JavaClass | None = None
) -> JavaClass:
    """Compile a class unless its jar exists, send the jar to the executors, and return the class.

    Executors identify jars and classes by name. So each different class must have its own jar name and class
    name.
    """
    context: Any = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    parent = needed.loader if needed else jvm.Thread.currentThread().getContextClassLoader()
    if not jar.exists():
        _compile(jvm, source, jar, parent)
    context._jsc.addJar(str(jar))
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.io.File(str(jar)).toURI().toURL()
    return JavaClass(gateway, jvm, jar, jvm.java.net.URLClassLoader(urls, parent), name)


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
    rows = internal_rows(frame).toJavaRDD().mapPartitions(function)
    return frame_of_rows(frame.sparkSession, rows, schema)


def frame_of_rows(spark: SparkSession, rows: Any, schema: str) -> DataFrame:
    """Return a Java RDD of internal rows as a DataFrame."""
    from pyspark.sql import DataFrame as Frame

    context: Any = spark.sparkContext
    session: Any = spark._jsparkSession
    columns = context._jvm.org.apache.spark.sql.types.StructType.fromDDL(schema)
    return Frame(session.internalCreateDataFrame(rows.rdd(), columns, False), spark)


def filled(array: Any, values: Mapping[int, Any]) -> Any:
    """Set elements of a Java array, and return it."""
    for i, value in values.items():
        array[i] = value
    return array


def _compile(jvm: Any, source: str, jar: Path, parent: Any) -> None:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    compiler.cook(source)
    jar.parent.mkdir(parents=True, exist_ok=True)
    temporary = jar.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(temporary, "w") as archive:
        for name, code in compiler.getBytecodes().items():
            archive.writestr(name.replace(".", "/") + ".class", bytes(code))
    temporary.replace(jar)
