from __future__ import annotations

from pathlib import Path

import pytest

from replayproxy.errors import StoreTrouble
from replayproxy.storage import Store, filesystem
from replayproxy.storage.filesystem import kind_of, refuse_network
from replayproxy.storage.intake import Intake
from replayproxy.storage.merging import Merger

MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /data rw shared:5 master:1 - nfs4 server:/export rw,vers=4.2
31 30 0:41 / /data/local\\040disk rw - xfs /dev/sdb1 rw
32 22 0:42 / /over rw - cifs //server/share rw
33 22 0:43 / /over rw - tmpfs tmpfs rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"), ("/database", "ext4"), ("/data", "nfs4"), ("/data/a/b", "nfs4"),
        ("/data/local disk/a", "xfs"), ("/over/a", "tmpfs"),
    ],
)  # fmt: skip
def test_the_innermost_mount_says_what_kind_it_is(path: str, kind: str) -> None:
    assert kind_of(Path(path), MOUNTINFO) == kind


def test_a_network_file_system_is_refused_by_name(tmp_path: Path) -> None:
    told = tmp_path / "mountinfo"
    told.write_text(MOUNTINFO)
    with pytest.raises(StoreTrouble, match=r"network file system \(nfs4\)") as refused:
        refuse_network(Path("/data/store"), told)
    assert refused.value.exit == 4
    refuse_network(Path("/data/local disk/store"), told)
    refuse_network(Path("/data/store"), tmp_path / "no proc here")


def test_who_writes_much_is_refused_and_who_reads_or_notes_is_not(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "mountinfo"
    told.write_text("30 1 0:40 / / rw - nfs server:/export rw\n")
    monkeypatch.setattr(filesystem.refuse_network, "__defaults__", (told,))
    with pytest.raises(StoreTrouble, match="network file system"):
        store.writer()
    assert not (store.path / "recorder.lock").exists()
    for taking_in in (Intake, Merger):
        with pytest.raises(StoreTrouble, match="network file system"):
            taking_in(store)
    store.writer(exclusive=False).close()
    assert store.reader().runs() == []
