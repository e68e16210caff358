"""The code that a session ships to Spark's Python workers is complete."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from harness.witness.spark.spark_session import code_archive


def test_workers_can_import_the_scans_from_the_shipped_archive_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(code_archive(tmp_path)) as archive:
        archive.extractall(tmp_path)
    program = (
        "import sys; sys.path = [p for p in sys.path if 'site-packages' in p or 'lib/python' in p]\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import spark_jobs.scan_pass, spark_jobs.second_scan\n"
        "assert 'msgspec' not in sys.modules\n"
        f"assert all(m.__file__.startswith({str(tmp_path)!r}) for n, m in sys.modules.items()"
        " if n.startswith(('harness.', 'spark_jobs.')))\n"
    )
    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=60)
