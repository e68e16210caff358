# Compile the program, unless an earlier start did, and run it. Flink cannot run a Java source file directly: its
# tasks could not load the classes.
set -e
compiler="$(dirname "$(readlink -f "$JAVA")")/javac"
[ -x "$compiler" ] || { echo "error: $compiler is missing; hint: install a JDK, not a JRE" >&2; exit 1; }
if [ ! -d "$STATE/classes" ]; then
    rm -rf "$STATE/compiling"
    "$compiler" -cp "$JARS" -d "$STATE/compiling" Totals.java
    mv "$STATE/compiling" "$STATE/classes"
fi
# Flink unpacks jars into its temporary folder, and a killed process leaves them there.
rm -rf "$STATE/tmp"
mkdir -p "$STATE/tmp"
exec "$JAVA" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx512m -Djava.io.tmpdir="$STATE/tmp" \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.org.apache.flink.metrics.MetricGroup=error \
    --add-opens=java.base/java.util=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED \
    -cp "$STATE/classes:$JARS" Totals
