"""On what kind of file system a path lies. LMDB needs `flock` and a memory map that all who open the file share: over a
network neither holds, and what is acknowledged may not be there."""

from __future__ import annotations

import os
import re
from pathlib import Path

from replayproxy.errors import StoreTrouble

NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "beegfs",
     "glusterfs", "orangefs", "pvfs2", "davfs", "webdav", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs",
     "fuse.rclone", "fuse.gcsfuse", "fuse.davfs", "fuse.mount-s3", "fuse.juicefs"}
)  # fmt: skip
MOUNTS = Path("/proc/self/mountinfo")


def refuse_network(directory: Path, mounts: Path = MOUNTS) -> None:
    """StoreTrouble where what is written would not be safe. Where the system does not say, nothing is refused."""
    try:
        told = mounts.read_text("utf-8", "replace")
    except OSError:
        return
    kind = kind_of(directory, told)
    if kind in NETWORK:
        raise StoreTrouble(
            f"{directory} lies on a network file system ({kind}), where what is written would not be safe",
            hint="a store on a local disk; replayproxy export writes files that may lie anywhere",
        )


def kind_of(directory: Path, mountinfo: str) -> str | None:
    """The kind of the innermost mount that holds the path; of two on one place the later lies above."""
    place, found, longest = os.path.realpath(directory), None, -1
    for line in mountinfo.splitlines():
        members, separator, rest = line.partition(" - ")
        words = members.split(" ")
        if not separator or len(words) < 5:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), words[4])
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            found, longest = rest.split(" ")[0], len(point)
    return found


_OCTAL = re.compile(r"\\([0-7]{3})")
