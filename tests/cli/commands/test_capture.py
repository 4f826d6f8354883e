from __future__ import annotations

import argparse
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dumpstream.archive.destination import Destination
from dumpstream.archive.manifest import read_manifest
from dumpstream.cli import main
from dumpstream.cli._options import capture_options
from dumpstream.cli.commands import capture
from dumpstream.cli.grammar.parser import make_parser
from dumpstream.names import clean_name
from dumpstream.reading.stored import StoredCapture
from dumpstream.simulation import Workload
from dumpstream.stages.options import CaptureOptions, StageOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SMALL_RING = ["--buffer-bytes", "1M"]


@pytest.fixture
def places(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[dict[str, Path]]:
    """Where a capture can go, and mostly cannot."""
    names = ("new", "missing", "file", "foreign", "used", "in_use", "bad_config", "dump")
    places = {name: tmp_path / name for name in names} | {"config": config}
    places["file"].write_text("")
    places["bad_config"].write_text('{"dump": {"dump_path": "/nowhere/at/all"}}')
    places["foreign"].mkdir()
    (places["foreign"] / "mine").write_text("")
    assert run_capture(places["used"]) == 0
    capsys.readouterr()
    holder = Destination.open(places["in_use"])
    yield places
    holder.close()


def run_capture(out: Path, *arguments: object, simulate: str = "small") -> int:
    return main(["capture", "--out", str(out), "--simulate", simulate, *_SMALL_RING, *map(str, arguments)])


def flags(parser: argparse.ArgumentParser) -> set[str]:
    return {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}


def test_a_run_is_captured_verified_and_extracted(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, dumps = tmp_path / "run", tmp_path / "dumps"
    expected = {file.name: file.data for file in Workload().expected_files(tmp_path / "dump")}

    codes = [
        run_capture(out, "--config", config),
        main(["verify", str(out)]),
        main(["extract", str(out), "--out", str(dumps)]),
    ]

    assert codes == [0, 0, 0]
    extracted = {name: dumps.joinpath(*clean_name(name)).read_bytes() for name in expected}
    assert extracted == expected
    summary, *_ = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"16 files \(16 complete\) from 16 chunks, 1\.5 MB stored in .*, .* s, .*/s, in .*/run", summary
    )


def test_json_is_the_report_in_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_capture(tmp_path / "run", "--json")

    report = json.loads(capsys.readouterr().out)
    assert code == 0
    assert (report["files"], report["chunks"], report["whole"]) == (16, 16, True)
    assert report["losses"] == {}


def test_files_that_are_not_whole_make_the_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_capture(tmp_path / "run", simulate="faults")

    output = capsys.readouterr()
    assert code == 3
    assert "2 never_closed" in output.out
    assert output.out.endswith(f"dumpstream ls {tmp_path / 'run'} shows which files\n")
    assert output.err == ""


def test_losses_are_in_the_summary_and_make_the_exit_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_capture(tmp_path / "run", "--max-file-bytes", "10k")

    output = capsys.readouterr().out
    assert code == 3
    assert re.search(
        r"^lost to too_large: \d+ chunks, .* kB$|^lost to too_large: .* MB$", output, re.MULTILINE
    )


def test_a_run_without_a_chunk_lists_the_likely_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_capture(tmp_path / "run", simulate="steps=0")

    output = capsys.readouterr().out
    assert code == 0
    assert "no chunk came at all; likely causes:\n  - " in output


def test_sinks_that_are_given_replace_the_default(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"

    codes = [
        run_capture(tmp_path / "null", "--sink", "null:"),
        run_capture(tmp_path / "two", "--sink", "null:", "--sink", f"zstd:{elsewhere}", "--no-pack"),
    ]

    assert codes == [0, 0]
    assert not (tmp_path / "null" / "files").exists()
    assert not (tmp_path / "two" / "files").exists()
    assert len(list(elsewhere.rglob("*.dsz"))) == 16
    assert main(["verify", str(tmp_path / "two")]) == 0


def test_append_adds_a_run_and_force_starts_anew(tmp_path: Path, config: Path) -> None:
    out = tmp_path / "run"

    codes = [
        run_capture(out, "--config", config),
        run_capture(out, "--config", config, "--append"),
        main(["verify", str(out)]),
    ]
    appended = StoredCapture.open(out)
    codes.append(run_capture(out, "--config", config, "--force"))
    fresh = StoredCapture.open(out)

    assert codes == [0, 0, 0, 0]
    assert {len(file.parts) for file in appended.files} == {2}
    assert len(appended.outcomes) == 2
    assert {len(file.parts) for file in fresh.files} == {1}


@pytest.mark.parametrize(
    ("dump", "first"),
    [
        ({"dump_debug": "on"}, "no operator overflowed"),
        ({"dump_scene": "aic_err_norm_dump"}, "only an exception scene is configured: "),
        ({"dump_list": [{"layer": ["x"]}]}, "no operator is called as dump_list has it"),
        ({"dump_op_switch": "on"}, "the program calls no single operators"),
        (
            {"dump_scene": "watcher", "dump_list": [{"watcher_nodes": ["x"]}]},
            "no watched operator is called as watcher_nodes has it",
        ),
        ({"dump_list": []}, "nothing is switched on in the configuration"),
    ],
    ids=["overflow", "exception", "model", "op", "watch", "nothing"],
)
def test_why_nothing_came_is_reported_by_the_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dump: dict[str, Any], first: str
) -> None:
    (tmp_path / "npu").mkdir()
    content = {"dump": {"dump_path": str(tmp_path / "npu"), **dump}}
    (tmp_path / "acl.json").write_text(json.dumps(content))

    code = run_capture(tmp_path / "run", "--config", tmp_path / "acl.json", simulate="ops=1,tensor_bytes=64")

    hints = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  - ")]
    assert code == 0
    assert hints[0].startswith(f"  - {first}")
    assert not any("nothing configures a dump" in hint for hint in hints)


@pytest.mark.parametrize(("names", "kept"), [(1, True), (30_000, False)], ids=["short", "long"])
def test_configuration_is_kept_with_the_run_unless_it_is_long(
    tmp_path: Path, names: int, *, kept: bool
) -> None:
    (tmp_path / "npu").mkdir()
    layer = [f"operator_{number}" for number in range(names)]
    content = {"dump": {"dump_path": str(tmp_path / "npu"), "dump_list": [{"layer": layer}], "unknown": 1}}
    (tmp_path / "acl.json").write_text(json.dumps(content))

    code = run_capture(tmp_path / "run", "--config", tmp_path / "acl.json", simulate="ops=1,tensor_bytes=64")

    (run,) = read_manifest(tmp_path / "run").runs
    assert code == 0
    assert run.config == (content if kept else None)


def test_every_option_reaches_the_capture(tmp_path: Path) -> None:
    code = run_capture(
        tmp_path / "run",
        *("--buffer-file", tmp_path / "ring"),
        *("--on-full", "drop", "--block-timeout", "7.5", "--max-file-bytes", "1G"),
        *(
            "--codec",
            "float",
            "--level",
            "3",
            "--workers",
            "3",
            "--fsync",
            "capture",
            "--max-descriptors",
            "64",
        ),
        *("--idle-timeout", "100", "--text-idle-timeout", "5"),
        *("--max-digests", "9", "--max-header-bytes", "64k", "--max-pieces", "11"),
        *("--max-open-files", "12", "--max-open-bytes", "1M"),
        *("--held-bytes", "1M", "--gathered-bytes", "2MiB", "--drain-timeout", "90"),
        *("--only", "*MatMul*", "--only", "*Relu*"),
        *("--pack", "--spill", tmp_path / "spill", "--spill-bytes", "1G"),
        simulate="tensor_bytes=64",
    )

    (run,) = read_manifest(tmp_path / "run").runs
    assert code == 0
    assert run.options == {
        "buffer_bytes": 1 << 20,
        "buffer_file": str(tmp_path / "ring"),
        "on_full": "drop",
        "block_timeout": 7.5,
        "max_file_bytes": 1 << 30,
        "codec": "float",
        "level": 3,
        "workers": 3,
        "fsync": "capture",
        "max_descriptors": 64,
        "idle_timeout": 100,
        "text_idle_timeout": 5,
        "max_digests": 9,
        "max_header_bytes": 64 << 10,
        "max_pieces": 11,
        "max_open_files": 12,
        "max_open_bytes": 1 << 20,
        "held_bytes": 1 << 20,
        "gathered_bytes": 2 << 20,
        "drain_timeout": 90,
        "only": ["*MatMul*", "*Relu*"],
        "pack": True,
        "spill": str(tmp_path / "spill"),
        "spill_bytes": 1 << 30,
    }
    assert not (tmp_path / "ring").exists()


def test_force_deletes_nothing_if_the_run_cannot_begin(
    places: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in places["used"].rglob("*") if path.is_file()}

    codes = [
        run_capture(places["used"], "--force", *[text.format(**places) for text in arguments])
        for arguments in (
            ["--sink", "s4:"],
            ["--acl-lib", "{missing}"],
            ["--level", "99"],
            ["--workers", "0"],
        )
    ]

    assert codes == [1, 1, 2, 2]
    assert {path: path.read_bytes() for path in places["used"].rglob("*") if path.is_file()} == before
    assert len(capsys.readouterr().err.splitlines()) == len(codes)


def test_a_run_that_cannot_begin_leaves_no_trace(places: dict[str, Path]) -> None:
    run_capture(places["new"] / "below", "--buffer-file", places["file"])

    assert not places["new"].exists()
    assert main(["ls", str(places["new"])]) == 1


def test_an_error_of_the_program_is_not_taken_for_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("dumpstream.run.session.BeginRow", fail)

    with pytest.raises(ValueError, match="a bug"):
        run_capture(tmp_path / "run")


def test_flags_are_options_of_the_capture_and_have_its_defaults() -> None:
    args = make_parser().parse_args(["capture", "--out", "run", "--simulate"])

    options = capture_options(args)

    assert options.keys() == CaptureOptions.__annotations__.keys()
    assert options["buffer_bytes"] == 256 << 20
    divided = StageOptions.divide(options, directory=Path("run"))
    assert divided.given.keys() == options.keys()
    assert divided._replace(given={}) == StageOptions.divide({}, directory=Path("run"))


def test_help_mentions_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    capture.add_arguments(parser)

    with pytest.raises(SystemExit) as ended:
        main(["capture", "--help"])

    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert {flag for flag in flags(parser) if flag not in shown} == set()
    assert "exit codes" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "remedy"),
    [
        (["--buffer-bytes", "0"], 2, "must be at least 65536"),
        (["--buffer-bytes", "900T"], 2, "keep the ring in a file with buffer_file (--buffer-file)"),
        (["--block-timeout", "-1"], 2, "must be 0 to 1000000000 seconds"),
        (["--simulate", "nothing"], 2, "give a preset (small, demo"),
        (["--simulate", "steps=many"], 2, "must be a whole number"),
        (["--level", "23"], 2, "level must be from -131072 to 22"),
        (["--workers", "0"], 2, "workers must be at least 1"),
        (["--idle-timeout", "nan"], 2, "idle_timeout must be at least 0 seconds"),
        (["--sink", "s4:bucket"], 1, "installed sinks: az:, gs:, memory:, null:"),
        (["--config", "{missing}"], 1, "name a regular file"),
        (["--config", "{bad_config}"], 1, "make a directory"),
        (["--acl-lib", "{missing}"], 1, "name the library with --acl-lib"),
        (["--buffer-file", "{file}"], 1, "give buffer_file (--buffer-file) another name"),
        (["--out", "{file}"], 1, "choose a directory"),
        (["--out", "/proc/dumpstream"], 1, "choose another destination"),
        (["--out", "{foreign}"], 1, "choose an empty or new directory"),
        (["--out", "{used}"], 1, "--append (append=True)"),
        (["--out", "{in_use}"], 1, "is being written by process"),
        (["--out", "{dump}/run", "--config", "{config}"], 1, "choose a destination outside it"),
    ],
)
def test_bad_circumstances_are_one_line_with_the_remedy(
    places: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    code: int,
    remedy: str,
) -> None:
    result = run_capture(places["new"], *[text.format(**places) for text in arguments])

    output = capsys.readouterr()
    assert result == code
    assert output.out == ""
    assert output.err.startswith("dumpstream: ")
    assert output.err.count("\n") == 1
    assert remedy in output.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["capture"],
        ["capture", "--out", "run", "--simulate", "--buffer-bytes", "much"],
        ["capture", "--out", "run", "--simulate", "--on-full", "explode"],
        ["capture", "--out", "run", "--simulate", "--append", "--force"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert "--help` explains" in capsys.readouterr().err


def test_progress_is_shown_on_a_terminal_and_removed(tmp_path: Path) -> None:
    terminal, process_end = pty.openpty()
    command = [sys.executable, "-m", "dumpstream", "capture", "--out", str(tmp_path / "run"), *_SMALL_RING]

    process = subprocess.Popen(
        [*command, "--simulate", "steps=20,rate=20000000"],
        stdout=subprocess.PIPE,
        stderr=process_end,
        text=True,
        env=os.environ | {"TERM": "xterm", "PYTHONIOENCODING": "utf-8"},
    )
    os.close(process_end)
    shown = read_terminal(terminal)
    output, _ = process.communicate()

    assert process.returncode == 0
    frames = re.sub(r"\x1b\[[0-9;]*m", "", shown).split("\r\x1b[J")
    assert re.fullmatch(r"capturing, 0:0\d +\d+ files +.* MB +.* MB/s +ring +[━╸╺]+ +\d+ %", frames[-2])
    assert frames[-1] == ""
    assert output.startswith("320 files")


def read_terminal(terminal: int) -> str:
    """Return what comes until the other end is closed."""
    shown = b""
    with os.fdopen(terminal, "rb", buffering=0) as file:
        while True:
            try:
                shown += file.read(4096)
            except OSError:  # the other end is closed
                return shown.decode()


def test_force_says_which_files_of_others_it_leaves(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    run_capture(out, "--config", config)
    (out / "files/other.zst").write_bytes(b"not of the capture")

    code = run_capture(out, "--config", config, "--force")

    assert code == 0
    assert (
        f"dumpstream: {out}: 1 file is left that the deleted capture had not made" in capsys.readouterr().err
    )
    assert (out / "files/other.zst").exists()
