from __future__ import annotations

import errno
import os
import resource
import signal
import stat
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from blockbuster import BlockingError
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dumpstream._native import rename_noreplace
from dumpstream.names import hashed_component, hashed_name
from dumpstream.system import publishing
from dumpstream.system import tree as tree_module
from dumpstream.system.publishing import is_temporary
from dumpstream.system.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@contextmanager
def tree_below(root: Path, *, directories: int = 4, durable: bool = False) -> Iterator[Tree]:
    tree = Tree(root, below=(), suffix=".zst", base=root, directories=directories, durable=durable)
    try:
        yield tree
    finally:
        tree.close()


def store(tree: Tree, name: str, data: bytes = b"data", *, number: int = 1) -> str:
    draft, fd = tree.create(name)
    os.write(fd, data)
    os.close(fd)
    return tree.publish(draft, number=number)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def open_descriptors() -> int:
    return len(names(Path("/proc/self/fd")))


def test_a_draft_is_hidden_and_known_as_temporary_until_published(tmp_path: Path) -> None:
    with tree_below(tmp_path) as tree:
        draft, fd = tree.create("a/name")
        os.close(fd)
        before = names(tmp_path / "a")
        path = tree.publish(draft)

    assert before == [draft.temporary]
    assert is_temporary(draft.temporary)
    assert path == "a/name.zst"
    assert names(tmp_path / "a") == ["name.zst"]
    assert not is_temporary("name.zst")


def test_a_discarded_draft_is_gone(tmp_path: Path) -> None:
    with tree_below(tmp_path) as tree:
        draft, fd = tree.create("name")
        os.close(fd)
        tree.discard(draft)
        tree.discard(draft)

    assert names(tmp_path) == []


def test_directories_and_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        with tree_below(tmp_path / "root") as tree:
            store(tree, "a/b/name")
    finally:
        os.umask(umask)

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"root": 0o700, "a": 0o700, "b": 0o700, "name.zst": 0o600}


def test_a_repeated_name_takes_the_next_number(tmp_path: Path) -> None:
    with tree_below(tmp_path) as tree:
        paths = [store(tree, "name", b"%d" % number) for number in range(1, 20)]

    assert paths == ["name.zst", *(f"name.{number}.zst" for number in range(2, 20))]
    assert [(tmp_path / path).read_bytes() for path in paths] == [b"%d" % number for number in range(1, 20)]


def test_the_thousandth_repetition_takes_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2, 1000):
        (tmp_path / f"name.{number}.zst").touch()
    (tmp_path / "name.zst").touch()
    looks = []
    exists = tree_module._exists

    def look(name: str, dir_fd: int) -> bool:
        looks.append(name)
        return exists(name, dir_fd)

    monkeypatch.setattr(tree_module, "_exists", look)

    with tree_below(tmp_path) as tree:
        path = store(tree, "name")

    assert path == "name.1000.zst"
    assert len(looks) <= 20


def test_a_part_behind_a_gap_never_takes_the_place_of_the_first(tmp_path: Path) -> None:
    with tree_below(tmp_path) as tree:
        paths = [store(tree, "name", number=2), store(tree, "name", number=2), store(tree, "name")]

    assert paths == ["name.2.zst", "name.3.zst", "name.zst"]


def test_a_directory_in_the_place_of_a_file_stays(tmp_path: Path) -> None:
    with tree_below(tmp_path) as tree:
        paths = [store(tree, "name.zst/below"), store(tree, "name")]

    assert paths == ["name.zst/below.zst", "name.2.zst"]


def test_a_file_in_the_place_of_a_directory_sends_the_name_elsewhere(tmp_path: Path) -> None:
    with tree_below(tmp_path) as tree:
        paths = [store(tree, "name"), store(tree, "name.zst/below"), store(tree, "name.zst/below")]

    stem = hashed_name("name.zst/below")
    assert paths == ["name.zst", f"{stem}.zst", f"{stem}.2.zst"]


@pytest.mark.parametrize("target", ["outside", "nowhere"])
def test_a_planted_link_to_a_directory_is_not_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / target)

    with tree_below(tmp_path / "root") as tree:
        path = store(tree, "link/below")

    assert path == f"{hashed_name('link/below')}.zst"
    assert names(tmp_path) == ["outside", "root"]
    assert names(tmp_path / "outside") == []


@pytest.mark.parametrize("target", ["victim", "nowhere"])
def test_a_planted_link_in_the_place_of_a_file_is_left_alone(tmp_path: Path, target: str) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "name.zst").symlink_to(tmp_path / target)

    with tree_below(tmp_path / "root") as tree:
        path = store(tree, "name")

    assert path == "name.2.zst"
    assert (tmp_path / "root" / "name.zst").is_symlink()
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert names(tmp_path) == ["root", "victim"]


def test_a_draft_replaced_by_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    with tree_below(tmp_path / "root") as tree:
        draft, fd = tree.create("name")
        os.close(fd)
        (tmp_path / "root" / draft.temporary).unlink()
        (tmp_path / "root" / draft.temporary).symlink_to(tmp_path / "victim")

        with pytest.raises(OSError, match="Too many levels of symbolic links"):
            tree.append(draft, memoryview(b"new"))

    assert (tmp_path / "victim").read_bytes() == b"precious"


def test_no_more_directories_stay_open_than_allowed_and_none_after_close(tmp_path: Path) -> None:
    before = open_descriptors()
    with tree_below(tmp_path, directories=3) as tree:
        counts = []
        for number in range(20):
            store(tree, f"{number}/name")
            counts.append(open_descriptors() - before)

    assert max(counts) == 3 + 1
    assert open_descriptors() == before


def test_a_directory_in_use_is_not_closed_for_another(tmp_path: Path) -> None:
    with tree_below(tmp_path, directories=2) as tree, tree._lease(("busy",)) as busy:
        for number in range(5):
            store(tree, f"{number}/name")

        os.mkdir("still open", dir_fd=busy)

    assert (tmp_path / "busy" / "still open").is_dir()


def test_threads_may_share_a_tree_with_room_for_one_directory_each(tmp_path: Path) -> None:
    def fill(tree: Tree, thread: int) -> None:
        for number in range(200):
            store(tree, f"{number % 7}/{number}", b"%d" % thread)

    with tree_below(tmp_path, directories=4) as tree:
        threads = [Thread(target=fill, args=(tree, thread)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for number in range(200):
        parts = sorted((tmp_path / f"{number % 7}").glob(f"{number}.*zst"))
        assert sorted(path.read_bytes() for path in parts) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("root", "path"),
    [("capture", "name.zst"), ("capture/other", "other/name.zst"), ("elsewhere", "{}/elsewhere/name.zst")],
)
def test_paths_are_relative_only_inside_the_base(tmp_path: Path, root: str, path: str) -> None:
    tree = Tree(
        tmp_path / root, below=(), suffix=".zst", base=tmp_path / "capture", directories=1, durable=False
    )

    found = store(tree, "name")
    tree.close()

    assert found == path.format(tmp_path)


def test_a_durable_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    fsync = os.fsync

    def record_fsync(fd: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def record_rename(src_dir_fd: int, src: str, dst_dir_fd: int, dst: str) -> None:
        steps.append("rename")
        rename_noreplace(src_dir_fd, src, dst_dir_fd, dst)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(publishing, "rename_noreplace", record_rename)

    with tree_below(tmp_path, durable=True) as tree:
        store(tree, "a/name")

    assert steps[-3:] == ["file", "rename", "directory"]
    assert set(steps[:-3]) == {"directory"}


def test_the_path_to_a_durable_file_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced = set()
    fsync = os.fsync

    def record_fsync(fd: int) -> None:
        forced.add(os.path.realpath(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record_fsync)

    with tree_below(tmp_path / "new" / "root", durable=True) as tree:
        path = store(tree, "a/b/name")

    parents = (tmp_path / "new" / "root" / path).parents
    assert {str(parent) for parent in parents} <= forced


@pytest.mark.anyio
async def test_a_tree_used_on_the_loop_is_noticed(tmp_path: Path) -> None:
    with tree_below(tmp_path / "root") as tree, pytest.raises(BlockingError):
        tree.create("name")


_PARTS = st.sampled_from(
    ["", "..", "p", "p.2", "p.zst", "p.2.zst", "\n", hashed_name("p"), hashed_component("..")]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(_PARTS, min_size=1, max_size=3).map("/".join), max_size=10))
@example(["p", "p", "p.2", "p.2", "p", "p.zst/p", "p/p.2.zst/p", "p/p", "p/p"])
@example(["p.zst/p", "p", "..", "../p", "__"])
def test_whatever_is_stored_gets_a_path_of_its_own(tmp_path: Path, stored: list[str]) -> None:
    with TemporaryDirectory(dir=tmp_path) as root, tree_below(Path(root)) as tree:
        paths = [store(tree, name, str(number).encode()) for number, name in enumerate(stored)]

        contents = [(Path(root) / path).read_bytes() for path in paths]

    assert contents == [str(number).encode() for number in range(len(stored))]


def written(tree: Tree, names: Sequence[str]) -> list[str | OSError]:
    return tree.write([(name, os.fsencode(name) + b"!") for name in names])


@pytest.mark.parametrize("durable", [False, True])
def test_files_get_the_same_paths_together_as_one_by_one(tmp_path: Path, *, durable: bool) -> None:
    asked = ["a", "b/c", "a", "../a", "b/c", "b/c/d", "x" * 300, "a", "b/c.2", "b/c", "\udcff", "/", "a.2"]

    with tree_below(tmp_path / "together", directories=1, durable=durable) as tree:
        store(tree, "a", b"old")
        store(tree, "b/c.zst/below", b"old")  # in the place of a file
        together = written(tree, asked)
    with tree_below(tmp_path / "alone", durable=durable) as tree:
        store(tree, "a", b"old")
        store(tree, "b/c.zst/below", b"old")
        alone = [store(tree, name) for name in asked]

    assert together == alone
    assert len({*together}) == len(asked)
    contents = [(tmp_path / "together" / str(path)).read_bytes() for path in together]
    assert contents == [os.fsencode(name) + b"!" for name in asked]
    assert (tmp_path / "together" / "a.zst").read_bytes() == b"old"


def test_the_file_that_cannot_be_written_has_its_error_and_the_others_are_there(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with tree_below(tmp_path) as tree:
            one, two, three = tree.write([("one", b"1"), ("two", bytes(2000)), ("three", b"3")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)

    assert (one, three) == ("one.zst", "three.zst")
    assert isinstance(two, OSError)
    assert two.errno == errno.EFBIG
    assert names(tmp_path) == ["one.zst", "three.zst"]


def test_a_name_that_comes_very_often_is_written_with_few_looks_at_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    exists = tree_module._exists

    def look(name: str, dir_fd: int) -> bool:
        looks.append(name)
        return exists(name, dir_fd)

    monkeypatch.setattr(tree_module, "_exists", look)
    with tree_below(tmp_path) as tree:
        for _ in range(20):
            written(tree, ["again"] * 50)

    assert len(names(tmp_path)) == 1000
    assert len(looks) < 20 * 2 * 11  # twice the logarithm for each call
