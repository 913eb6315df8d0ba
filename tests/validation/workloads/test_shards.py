"""The shards that are read over each mount, and the faults of a data set that are found before training."""

from pathlib import Path

import pytest

from validation.workloads.resnet50.faults import DataFault
from validation.workloads.resnet50.shards import describe_mounts, find_shards, mount_of

# as in proc_pid_mountinfo(5), with two NFS mounts as a container sees them
MOUNTINFO = r"""
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
36 35 0:52 / /mnt/mount_0 rw,noatime master:1 - nfs4 192.168.10.21:/imagenet rw,vers=4.1,proto=tcp
37 35 0:53 / /mnt/mount_1 rw,noatime - nfs4 192.168.10.22:/imagenet rw,vers=4.1,proto=tcp
38 35 0:54 /sub /mnt/with\040space rw - tmpfs tmpfs rw
39 35 0:55 / /mnt/mount_1 rw - nfs4 192.168.10.23:/imagenet rw
nonsense
"""


def data_set(directory: Path, total: int = 4) -> Path:
    directory.mkdir()
    for number in range(total):
        (directory / f"train-{number:05d}-of-{total:05d}").write_bytes(b"x" * (number + 1))
    (directory / "README").write_text("not a shard")
    return directory


def test_the_shards_are_read_alternately_over_the_mounts(tmp_path: Path) -> None:
    one, two = data_set(tmp_path / "0"), data_set(tmp_path / "1")
    shards = find_shards([one, two])
    assert [(shard.path.parent.name, shard.path.name[6:11], shard.mount) for shard in shards] == [
        ("0", "00000", 0), ("1", "00001", 1), ("0", "00002", 0), ("1", "00003", 1),
    ]  # fmt: skip


def test_workers_share_the_shards_and_each_reads_over_all_mounts(tmp_path: Path) -> None:
    directories = [data_set(tmp_path / "0"), data_set(tmp_path / "1")]
    parts = [find_shards(directories, worker=worker, workers=2) for worker in (0, 1)]
    assert sorted(shard.path.name for part in parts for shard in part) == sorted(
        f"train-{number:05d}-of-00004" for number in range(4)
    )
    assert [[shard.mount for shard in part] for part in parts] == [[0, 1], [0, 1]]
    with pytest.raises(DataFault, match="3 workers with 2 mounts need 6"):
        find_shards(directories, worker=2, workers=3)


def test_missing_shards_are_named(tmp_path: Path) -> None:
    one, two = data_set(tmp_path / "0"), data_set(tmp_path / "1")
    (two / "train-00002-of-00004").write_bytes(b"longer")
    with pytest.raises(DataFault, match=r"does not show the data of .*train-00002-of-00004 differs"):
        find_shards([one, two])
    (one / "train-00001-of-00004").write_bytes(b"")
    with pytest.raises(DataFault, match="train-00001-of-00004 is empty"):
        find_shards([one])
    (one / "train-00001-of-00004").unlink()
    with pytest.raises(DataFault, match="train-00001-of-00004 is missing"):
        find_shards([one])
    (one / "train-00000-of-00008").write_bytes(b"x")
    with pytest.raises(DataFault, match="several data sets: of 00004, 00008"):
        find_shards([one])
    with pytest.raises(DataFault, match="cannot be read: No such file"):
        find_shards([tmp_path / "2"])
    (tmp_path / "3").mkdir()
    with pytest.raises(DataFault, match="has no train-"):
        find_shards([tmp_path / "3"])


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/mnt/mount_0/dataset", ("/mnt/mount_0", "192.168.10.21:/imagenet", "nfs4")),
        ("/mnt/mount_1", ("/mnt/mount_1", "192.168.10.23:/imagenet", "nfs4")),
        ("/mnt/mount_2/dataset", ("/", "/dev/vda1", "ext4")),
        ("/mnt/with space/x", ("/mnt/with space", "tmpfs", "tmpfs")),
    ],
)
def test_the_mount_of_a_directory(path: str, mount: tuple[str, str, str]) -> None:
    assert mount_of(Path(path), MOUNTINFO) == mount


def test_the_shards_and_images_of_each_mount() -> None:
    directories = [Path("/mnt/mount_0/d"), Path("/mnt/mount_1/d")]
    first, second = describe_mounts(directories, [], [5, 7], MOUNTINFO)
    assert (first.mount_point, first.images, second.source, second.images) == (
        "/mnt/mount_0", 5, "192.168.10.23:/imagenet", 7,
    )  # fmt: skip
    assert describe_mounts(directories, [], [0, 0], "")[0].mount_point == ""
