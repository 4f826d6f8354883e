from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.conftest import CaptureBuilder

from dumpstream.archive.rows import FileRow, StoredPart
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict
from dumpstream.names import hashed_component, hashed_name
from dumpstream.testing import HOSTILE_NAMES

#: Few different parts, so that names are often in each other's way.
_PARTS = st.sampled_from(
    ["", ".", "..", "p", "q", "p.2", "\n", "\udcff", "x" * 300, hashed_component(".."), hashed_name("p")]
)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def extract(capture: Path, *arguments: Any, out: Path) -> int:
    return main(["extract", str(capture), "--out", str(out), *map(str, arguments)])


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }


def test_every_file_comes_back_under_its_cleaned_name(builder: CaptureBuilder, out: Path) -> None:
    builder.add("/x//a", b"one")
    builder.add("b", b"")
    builder.add("large", large := os.urandom(3 << 20))

    code = extract(builder.finish(), out=out)

    assert code == 0
    assert contents(out) == {"x/a": b"one", "b": b"", "large": large}
    assert (out / "x/a").stat().st_mode & 0o777 == 0o600
    assert (out / "x").stat().st_mode & 0o777 == 0o700


def test_parts_of_a_name_that_came_again_are_joined(builder: CaptureBuilder, out: Path) -> None:
    builder.add("a", b"one")
    builder.write(FileRow("a", 3, 1, Verdict.UNPARSED, [builder.store("files/a.2.zst", b"two")]).to_line())

    code = extract(builder.finish(), out=out)

    assert code == 0
    assert contents(out) == {"a": b"onetwo"}


@pytest.mark.parametrize(
    ("pattern", "found"), [("x/a", {"x/a"}), ("x/*", {"x/a", "x/b"}), ("?", {"c"}), ("[c]", {"c"})]
)
def test_names_and_patterns_select(builder: CaptureBuilder, out: Path, pattern: str, found: set[str]) -> None:
    for name in ("x/a", "x/b", "c"):
        builder.add(name, b"data")

    code = extract(builder.finish(), pattern, out=out)

    assert code == 0
    assert contents(out).keys() == found


def test_names_may_stand_before_and_behind_the_flags(builder: CaptureBuilder, out: Path) -> None:
    for name in ("a", "b", "c"):
        builder.add(name, b"data")

    code = main(["extract", str(builder.finish()), "a", "--out", str(out), "b"])

    assert code == 0
    assert contents(out).keys() == {"a", "b"}


def test_name_with_pattern_characters_can_be_given_exactly(builder: CaptureBuilder, out: Path) -> None:
    builder.add("a[1]", b"data")

    extract(builder.finish(), "a[1]", out=out)

    assert contents(out) == {"a[1]": b"data"}


def test_name_that_matches_nothing_is_an_error(
    builder: CaptureBuilder, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add("a", b"data")

    code = extract(builder.finish(), "a", "b*", out=out)

    assert code == 1
    assert "no file matches 'b*'; `dumpstream ls`" in capsys.readouterr().err
    assert not out.exists()


def test_gapped_file_gives_what_is_before_the_gap(
    builder: CaptureBuilder, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add_gapped("a", b"before", b"behind", 100)

    code = extract(builder.finish(), out=out)

    assert code == 3
    assert contents(out) == {"a": b"before"}
    assert "a: not whole (gap)" in capsys.readouterr().err


def test_sparse_places_what_is_behind_the_gap(builder: CaptureBuilder, out: Path) -> None:
    builder.add_gapped("a", b"before", b"behind", 1 << 20)

    extract(builder.finish(), "--sparse", out=out)

    assert contents(out) == {"a": b"before".ljust(1 << 20, b"\0") + b"behind"}
    assert (out / "a").stat().st_blocks * 512 < 1 << 19


def test_sparse_ends_with_a_hole_if_the_end_is_missing(builder: CaptureBuilder, out: Path) -> None:
    part = builder.store("files/a.zst", b"before")
    builder.write(FileRow("a", 6, 1, Verdict.GAP, [part], missing=[(6, 10)]).to_line())

    extract(builder.finish(), "--sparse", out=out)

    assert contents(out) == {"a": b"before\0\0\0\0"}


def test_existing_file_stops_everything_before_it_begins(
    builder: CaptureBuilder, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add("a", b"new")
    builder.add("b", b"new")
    out.mkdir()
    (out / "b").write_bytes(b"old")

    code = extract(builder.finish(), out=out)

    assert code == 1
    assert f"{out / 'b'} already exists; replace it with --force" in capsys.readouterr().err
    assert contents(out) == {"b": b"old"}


def test_force_replaces_existing_files(builder: CaptureBuilder, out: Path) -> None:
    builder.add("a", b"new")
    out.mkdir()
    (out / "a").write_bytes(b"old")

    code = extract(builder.finish(), "--force", out=out)

    assert code == 0
    assert contents(out) == {"a": b"new"}


def test_force_replaces_a_link_and_not_what_it_leads_to(
    builder: CaptureBuilder, out: Path, tmp_path: Path
) -> None:
    builder.add("a", b"new")
    out.mkdir()
    (tmp_path / "precious").write_bytes(b"old")
    (out / "a").symlink_to(tmp_path / "precious")

    extract(builder.finish(), "--force", out=out)

    assert (tmp_path / "precious").read_bytes() == b"old"
    assert not (out / "a").is_symlink()


def test_directory_planted_as_a_link_is_not_followed(
    builder: CaptureBuilder, out: Path, tmp_path: Path
) -> None:
    builder.add("x/a", b"data")
    (tmp_path / "outside").mkdir()
    out.mkdir()
    (out / "x").symlink_to(tmp_path / "outside")

    code = extract(builder.finish(), out=out)

    assert code == 3
    assert contents(tmp_path / "outside") == {}


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_is_in_the_way_of_one_file_does_not_stop_the_others(
    builder: CaptureBuilder, out: Path, force: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "file/below", "z"):
        builder.add(name, b"data")
    out.mkdir()
    (out / "file").write_bytes(b"old")

    code = extract(builder.finish(), *force, out=out)

    assert code == 3
    assert contents(out) == {"a": b"data", "file": b"old", "z": b"data"}
    error = capsys.readouterr().err
    assert (
        f"file/below: {out}/file/below cannot be written under this name (Not a directory); choose" in error
    )


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.sets(st.lists(_PARTS, min_size=1, max_size=4).map("/".join), max_size=10), force=st.booleans()
)
@example(names={"p/q", "p~0d72d5bd89f3691f", "p"}, force=True)
@example(names={"../x", ".."}, force=False)
@example(names=set(HOSTILE_NAMES), force=False)
def test_every_name_gives_a_file_of_its_own(tmp_path: Path, names: set[str], *, force: bool) -> None:
    with TemporaryDirectory(dir=tmp_path) as root:
        builder, out = CaptureBuilder(Path(root) / "capture"), Path(root) / "out"
        for number, name in enumerate(names):
            part = builder.store(f"files/{number}.zst", str(number).encode())
            builder.write(FileRow(name, part.bytes, 1, Verdict.UNPARSED, [part]).to_line())

        code = extract(builder.finish(), *(["--force"] if force else []), out=out)

        assert code == 0
        assert sorted(contents(out).values()) == sorted(str(number).encode() for number in range(len(names)))
        assert sorted(path.name for path in Path(root).iterdir()) == ["capture", "out"]


@pytest.mark.parametrize(
    "name", ["../../escape", "/../escape", "x/../../../escape", "a\0b".replace("\0", "\n")]
)
def test_hostile_name_stays_below_the_directory(
    builder: CaptureBuilder, out: Path, tmp_path: Path, name: str
) -> None:
    builder.write(FileRow(name, 4, 1, Verdict.UNPARSED, [builder.store("files/h.zst", b"data")]).to_line())

    code = extract(builder.finish(), out=out)

    assert code == 0
    assert list(contents(out).values()) == [b"data"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capture", "out"]


def test_names_that_are_cleaned_alike_do_not_collide(builder: CaptureBuilder, out: Path) -> None:
    for number, name in enumerate(["x/a", "/x//a", "x", "x/a/b", "./x/a"]):
        part = builder.store(f"files/{number}.zst", str(number).encode())
        builder.write(FileRow(name, 1, 1, Verdict.UNPARSED, [part]).to_line())

    code = extract(builder.finish(), out=out)

    assert code == 0
    assert sorted(contents(out).values()) == [b"0", b"1", b"2", b"3", b"4"]
    assert contents(out)["x/a/b"] == b"3"


def test_path_does_not_depend_on_what_else_is_extracted(builder: CaptureBuilder, out: Path) -> None:
    for number, name in enumerate(["x/a", "/x//a"]):
        part = builder.store(f"files/{number}.zst", str(number).encode())
        builder.write(FileRow(name, 1, 1, Verdict.UNPARSED, [part]).to_line())
    path = builder.finish()

    extract(path, out=out / "all")
    extract(path, "/x//a", out=out / "one")

    assert contents(out / "one").items() <= contents(out / "all").items()


def test_damaged_file_is_left_out_and_the_others_written(
    builder: CaptureBuilder, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        builder.add(name, os.urandom(1000))
    damaged = bytearray((builder.path / "files/b.zst").read_bytes())
    damaged[500] ^= 1
    (builder.path / "files/b.zst").write_bytes(damaged)

    code = extract(builder.finish(), out=out)

    assert code == 3
    assert contents(out).keys() == {"a", "c"}
    assert "b: files/b.zst does not match its checksum" in capsys.readouterr().err


def test_file_that_cannot_be_read_back_is_reported(
    builder: CaptureBuilder, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.write(FileRow("a", 4, 1, Verdict.COMPLETE, [StoredPart("bucket", "a", 0, 4, 4, None)]).to_line())
    builder.write(FileRow("b", 0, 1, Verdict.LOST, [], cause="full").to_line())

    code = extract(builder.finish(), out=out)

    assert code == 3
    assert contents(out) == {}
    error = capsys.readouterr().err
    assert "a: a was stored by the sink bucket" in error
    assert "b: b has nothing stored" in error


def test_offset_that_no_file_can_have_is_an_error_of_that_file(builder: CaptureBuilder, out: Path) -> None:
    part = builder.store("files/a.zst", b"data")
    builder.write(FileRow("a", 4, 1, Verdict.GAP, [part._replace(offset=2**62 - 1)]).to_line())
    builder.add("b", b"data")

    code = extract(builder.finish(), "--sparse", out=out)

    assert code == 3
    assert contents(out) == {"b": b"data"}


def test_absolute_part_is_read_but_written_below_the_directory(
    builder: CaptureBuilder, out: Path, tmp_path: Path
) -> None:
    part = builder.add("a", b"data")
    (builder.path / "files/a.zst").rename(tmp_path / "elsewhere.zst")
    builder.write(
        FileRow("/b", 4, 1, Verdict.UNPARSED, [part._replace(path=str(tmp_path / "elsewhere.zst"))]).to_line()
    )

    extract(builder.finish(), "/b", out=out)

    assert contents(out) == {"b": b"data"}


def test_directory_inside_the_capture_is_refused(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add("a", b"data")
    path = builder.finish()

    code = extract(path, out=path / "files")

    assert code == 1
    assert "is inside the capture" in capsys.readouterr().err
