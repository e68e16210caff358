"""Who listens on a port of this host, for a message that a user can act on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from harness.base.processes import command_of


def owner(port: int) -> str:
    """The process that listens on this port, as far as this user may see it."""
    pid = _owner_from_proc(port) if Path("/proc/net/tcp").exists() else _owner_from_lsof(port)
    if pid is None:
        return f"port {port}: a process that this user cannot see"
    return f"port {port}: process {pid} ({command_of(pid)[:60] or 'gone'})"


def _owner_from_proc(port: int) -> int | None:
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            listening = fields[3] == "0A"
            if listening and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(descriptor.readlink()) in inodes:
                return int(descriptor.parts[2])
        except OSError:
            continue  # another user's process, or one that ended meanwhile
    return None


def _owner_from_lsof(port: int) -> int | None:
    if not shutil.which("lsof"):
        return None
    command = ["lsof", "-nP", "-t", f"-iTCP:{port}", "-sTCP:LISTEN"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return int(found[0]) if found else None
