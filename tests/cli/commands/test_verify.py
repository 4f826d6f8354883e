from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.cli.screen.terminal import TerminalProgram

from dumpstream.archive.rows import FileRow, LossRow, Outcome, StoredPart
from dumpstream.cli import main
from dumpstream.format.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import CaptureBuilder

#: A dump file: the length of its header, a header that promises one output of 4 bytes, and these.
DUMP = b"\x0b\0\0\0\0\0\0\0" + b"\x0a\x032.0\x1a\x04\x30\x04\x48\x01" + b"data"
PLAIN = b"no header at all"


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(path: Path) -> tuple[int, dict[str, Any]]:
        code = main(["verify", "--json", str(path)])
        return code, json.loads(capsys.readouterr().out)

    return run


def kinds(result: dict[str, Any]) -> list[str]:
    return [problem["kind"] for problem in result["problems"]]


def test_whole_capture_passes(builder: CaptureBuilder, verify: Any) -> None:
    builder.add("dump", DUMP, Verdict.COMPLETE)
    builder.add("text.csv", b"a,b\n", Verdict.COMPLETE)
    builder.add("other", b"", Verdict.UNPARSED)
    for number in range(200):
        builder.add(f"many/{number}", PLAIN * number, Verdict.UNPARSED)

    code, result = verify(builder.finish())

    assert (code, result["whole"], result["problems"], result["leftovers"]) == (0, True, [], [])
    assert (result["files"], result["parts"]) == (203, 203)
    assert result["bytes"] == len(DUMP) + 4 + len(PLAIN) * sum(range(200))


def test_missing_damaged_and_extra_files_are_found(builder: CaptureBuilder, verify: Any) -> None:
    for name in ("kept", "missing", "damaged", "short"):
        builder.add(name, os.urandom(100))
    files = builder.path / "files"
    (files / "missing.zst").unlink()
    (files / "short.zst").write_bytes((files / "short.zst").read_bytes()[:-1])
    damaged = bytearray((files / "damaged.zst").read_bytes())
    damaged[50] ^= 1
    (files / "damaged.zst").write_bytes(damaged)
    (files / "deep").mkdir()
    (files / "deep/extra.zst").touch()

    code, result = verify(builder.finish())

    assert code == 3
    assert [(problem["kind"], problem["subject"]) for problem in result["problems"]] == [
        ("missing", "missing"),
        ("damaged", "damaged"),
        ("damaged", "short"),
        ("extra", "files/deep/extra.zst"),
    ]


def test_planted_link_is_an_extra_file(builder: CaptureBuilder, verify: Any) -> None:
    (builder.path / "files").mkdir()
    (builder.path / "files/link").symlink_to("/")

    code, result = verify(builder.finish())

    assert code == 3
    assert kinds(result) == ["extra"]


def test_leftovers_are_named_apart_and_harmless(builder: CaptureBuilder, verify: Any) -> None:
    (builder.path / "files").mkdir()
    (builder.path / "files/.1.dumpstream-part").touch()

    code, result = verify(builder.finish())

    assert code == 0
    assert result["leftovers"] == ["files/.1.dumpstream-part"]


@pytest.mark.parametrize(
    ("data", "claimed"),
    [
        (DUMP[:-1], Verdict.COMPLETE),
        (DUMP + b"x", Verdict.COMPLETE),
        (DUMP[:12], Verdict.UNPARSED),
        (PLAIN, Verdict.COMPLETE),
    ],
)
def test_verdict_that_the_header_contradicts_is_damage(
    builder: CaptureBuilder, verify: Any, data: bytes, claimed: Verdict
) -> None:
    builder.add("dump", data, claimed)

    code, result = verify(builder.finish())

    assert code == 3
    assert kinds(result) == ["damaged"]
    assert "by its header" in result["problems"][0]["detail"]


def test_row_that_promises_more_than_its_part_is_damage(builder: CaptureBuilder, verify: Any) -> None:
    part = builder.store("files/a.zst", b"data")
    builder.write(FileRow("a", 5, 1, Verdict.UNPARSED, [part]).to_line())

    code, result = verify(builder.finish())

    assert code == 3
    assert result["problems"][0]["detail"] == "files/a.zst holds 4 of the 5 bytes in the journal"


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if not verdict.whole])
def test_file_that_is_not_whole_fails_with_its_meaning(
    builder: CaptureBuilder, verify: Any, verdict: Verdict
) -> None:
    builder.add("a", b"data", verdict, cause="ring_full", lost_bytes=17)

    code, result = verify(builder.finish())

    assert code == 3
    assert kinds(result) == ["verdict"]
    assert result["problems"][0]["detail"].startswith(f"{verdict}: ")
    assert "17 bytes (ring_full)" in result["problems"][0]["detail"]


def test_losses_unreadable_lines_and_early_ends_fail(builder: CaptureBuilder, verify: Any) -> None:
    builder.write(LossRow("bad_length", 2, 0).to_line())
    builder.write("garbage")

    code, result = verify(builder.finish(Outcome.CANCELLED))

    assert code == 3
    assert kinds(result) == ["failed", "journal", "loss"]


def test_interrupted_capture_fails_though_its_files_are_sound(builder: CaptureBuilder, verify: Any) -> None:
    builder.add("a", PLAIN)
    builder.write('{"type":"fi', end="")

    code, result = verify(builder.interrupt())

    assert (code, result["state"], result["parts"]) == (3, "interrupted", 1)
    assert kinds(result) == ["interrupted"]


def test_running_capture_fails_without_crying_about_files_in_the_making(
    builder: CaptureBuilder, verify: Any
) -> None:
    builder.store("files/about-to-be-journalled.zst", b"data")
    (builder.path / "files/.1.dumpstream-part").touch()

    code, result = verify(builder.path)

    assert (code, kinds(result), result["leftovers"]) == (3, ["running"], [])


def test_parts_in_other_sinks_are_counted_as_not_checked(builder: CaptureBuilder, verify: Any) -> None:
    builder.write(FileRow("a", 4, 1, Verdict.COMPLETE, [StoredPart("bucket", "a", 0, 4, 4, None)]).to_line())

    code, result = verify(builder.finish())

    assert (code, result["parts"], result["skipped_parts"]) == (0, 0, 1)


@pytest.mark.parametrize(
    ("parts", "unread"),
    [
        ([StoredPart("bucket", "a", 0, 4, 4, None)], "1 part cannot be read back"),
        ([], "no bytes of 1 file are stored"),
    ],
    ids=["another sink", "no sink"],
)
def test_what_cannot_be_read_back_is_not_called_whole(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str], parts: list[StoredPart], unread: str
) -> None:
    builder.write(FileRow("a", 4, 1, Verdict.COMPLETE, parts).to_line())

    code = main(["verify", str(builder.finish())])

    assert code == 0
    assert capsys.readouterr().out == f"1 file, verified 0 parts, 0 B: no problem was found, but {unread}\n"


@pytest.mark.parametrize("more", [[], ["--only", "*MatMul*"]], ids=["all files", "some files"])
def test_statistics_beside_the_bytes_do_not_keep_them_from_being_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    run = str(tmp_path / "run")
    assert (
        main(["capture", "--out", run, "--sink", "zstd:", "--sink", "stats:", "--simulate", "small", *more])
        == 0
    )
    capsys.readouterr()

    assert main(["verify", run]) == 0

    assert capsys.readouterr().out.endswith(": everything is whole\n")


@pytest.mark.parametrize("path", ["../../outside", "/dev/zero", "/etc/passwd"])
def test_hostile_path_in_the_journal_is_damage(builder: CaptureBuilder, verify: Any, path: str) -> None:
    builder.write(FileRow("a", 4, 1, Verdict.COMPLETE, [StoredPart("zstd", path, 0, 4, 4, None)]).to_line())

    code, result = verify(builder.finish())

    assert code == 3
    assert kinds(result) == ["damaged"]


def test_text_names_each_problem_and_sums_up(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.add("a\n", b"data", Verdict.GAP)

    code = main(["verify", str(builder.finish())])

    assert code == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("verdict     a\\n: gap: ranges of it never came")
    assert lines[1] == "1 file, verified 1 part, 4 B: 1 problem, not everything is whole"


def test_nothing_captured_is_not_called_whole(
    builder: CaptureBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(builder.finish())]) == 0

    assert capsys.readouterr().out == "0 files, verified 0 parts, 0 B: nothing was captured\n"


def test_problems_break_no_word_on_a_terminal(builder: CaptureBuilder) -> None:
    builder.add(f"/{'directory/' * 5}{'name' * 6}", b"data", Verdict.GAP)
    program = TerminalProgram(["-m", "dumpstream", "verify", str(builder.finish())], columns=60)

    assert program.finish() == 3
    lines = program.plain.partition("1 file, ")[0].splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[0] == "verdict     /directory/directory/directory/directory/"
    assert lines[1].startswith(f"            directory/{'name' * 6}: gap: ranges")
    assert all(line.startswith(" " * 12) for line in lines[1:])


def test_directories_deeper_than_any_path_are_looked_through(
    builder: CaptureBuilder, verify: Any, make_deep: Callable[[Path, str], None]
) -> None:
    builder.add("a", PLAIN)
    make_deep(builder.path / "files", "file")

    code, report = verify(builder.finish())

    assert code == 3
    assert [problem["subject"] for problem in report["problems"]] == [f"files/{'d/' * 3000}file"]
