from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream.archive.manifest import read_manifest
from dumpstream.cli import main
from dumpstream.simulation import simulated_library

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no other process of this machine want to profile."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))


def run_capture(out: Path, *arguments: object, simulate: str = "small") -> int:
    flags = ["--out", str(out), "--simulate", simulate, "--buffer-bytes", "1M"]
    return main(["capture", *flags, *map(str, arguments)])


def test_a_profile_is_stored_beside_the_capture_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"

    codes = [run_capture(out, "--profile", simulate="small,device_id=3"), main(["verify", str(out)])]

    assert codes == [0, 0]
    assert f"\nprofile in {out / 'profile'}\n" in capsys.readouterr().out
    assert list(out.glob("profile/PROF_*/device_3/end_info.3"))


def test_the_report_names_the_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_capture(tmp_path / "run", "--profile", "--json")

    assert json.loads(capsys.readouterr().out)["profile"] == "profile"


def test_flags_say_what_is_collected(tmp_path: Path) -> None:
    flags = ["--profile", "--profile-devices", "0,2", "--profile-collect", "task_time,aicpu"]
    flags += ["--profile-metric", "l2_cache", "--profile-set", "storage_limit=300MB"]
    flags += ["--profile-set", "host_sys=cpu,mem"]

    code = run_capture(tmp_path / "run", *flags)

    assert code == 0
    (run,) = read_manifest(tmp_path / "run").runs
    assert run.profile == {
        "path": "profile",
        "devices": [0, 2],
        "collect": ["task_time", "aicpu"],
        "metric": "l2_cache",
        "extra": {"storage_limit": "300MB", "host_sys": "cpu,mem"},
    }
    (sample,) = (tmp_path / "run").glob("profile/PROF_*/device_2/sample.json")
    assert json.loads(sample.read_text()) == {
        "device": 2,
        "data_types": 10,
        "aicore_metrics": 6,
        "storage_limit": "300MB",
        "host_sys": "cpu,mem",
    }


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--profile-devices", "0"], "need --profile"),
        (["--profile-set", "dvpp_freq=1"], "need --profile"),
        (["--profile", "--profile-devices", "0,0"], "name each only once"),
        (["--profile", "--profile-devices", "64"], "from 0 to 63"),
        (["--profile", "--profile-set", "llc_mode=read"], "needs sys_hardware_mem_freq"),
        (["--profile", "--profile-devices", "x"], "not a list of devices"),
        (["--profile", "--profile-collect", "nonsense"], "cannot be collected; known: acl_api"),
        (
            ["--profile", "--profile-metric", "nonsense"],
            "there is no 'nonsense'; choose from arithmetic_utilization",
        ),
        (["--profile", "--profile-set", "nonsense"], "is not NAME=VALUE"),
        (["--profile", "--profile-set", "dvpp_freq=0"], "a number of Hz from 1 to 100"),
    ],
)
def test_wrong_flags_are_wrong_usage_and_leave_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], problem: str
) -> None:
    try:
        code: object = run_capture(tmp_path / "run", *flags)
    except SystemExit as exc:
        code = exc.code

    assert code == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_library_that_cannot_profile_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = tmp_path / "libdumponly.so"
    source = "int acldumpRegCallback(void) { return 0; }"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)

    code = run_capture(tmp_path / "run", "--profile", "--acl-lib", library)

    assert code == 1
    error = capsys.readouterr().err
    assert error.startswith("dumpstream: no library can profile; tried ")
    assert error.endswith("libmsprofiler.so, or leave profiling out\n")
    assert not (tmp_path / "run").exists()


def test_a_second_profiling_process_is_refused_by_the_pid_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import sys, pathlib; from dumpstream import Profiler; from dumpstream.acl import load_profiling\n"
        f"profiler = Profiler(load_profiling({str(simulated_library())!r}))\n"
        f"profiler.init(pathlib.Path({str(tmp_path / 'theirs')!r}))\n"
        "print('begun', flush=True); sys.stdin.read(); profiler.finalize()"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"begun\n"

        refused = run_capture(tmp_path / "run", "--profile")
        other.communicate(timeout=LIMIT_S)

    assert refused == 1
    assert f"process {other.pid} is profiling" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert run_capture(tmp_path / "run", "--profile") == 0
