"""Programs that know nothing of it are captured by the agent, however they come by ACL."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dumpstream.outside.wire import VERSION

if TYPE_CHECKING:
    from tests.outside.agent.conftest import Collector, Targets

FILES = 16  #: of two steps
CONFIGURED = [
    "acldumpRegCallback",
    "aclmdlInitDump",
    "aclmdlSetDump",
    "aclmdlFinalizeDump",
    "acldumpUnregCallback",
]
REGISTERED = ["acldumpRegCallback", "acldumpUnregCallback"]


def command(targets: Targets, way: str) -> list[str | Path]:
    """Return the start of a command that runs a job in that *way*."""
    ways: dict[str, list[str | Path]] = {
        "linked": [targets.linked],
        "opened": [targets.opened, targets.library],
        "extension": [targets.host, targets.extension],
        "looked up": [targets.host, targets.looked_up],
        "shell": ["sh", "-c", 'true; "$@"; exit $?', "sh", targets.linked],
    }
    return ways[way]


@pytest.mark.parametrize("way", ["linked", "opened", "extension", "looked up", "shell"])
def test_configured_by_the_collector_every_file_comes_whole(
    collector: Collector, targets: Targets, config: Path, way: str
) -> None:
    collector.config = config

    code = collector.run(*command(targets, way), "init", "run=2", "finalize")

    peer = collector.peer
    assert code == 0, collector.stderr
    assert collector.stdout == ["init 0", "errno kept 1", "files 16", "finalize 0", "own 0"]
    assert (peer.whole_files(), peer.losses) == (FILES, [])
    assert peer.calls() == CONFIGURED
    assert peer.of("bye") == [
        {"callbacks": str(FILES), "lost": "0", "lost_bytes": "0", "lost_configurations": "0"}
    ]
    assert peer.statistics()[2:] == (FILES, peer.statistics()[3], 0, {})
    assert not list(collector.directory.glob("**/*.0.*"))


@pytest.mark.parametrize("method", ["none", "fork", "spawn", "forkserver"])
def test_python_programs_are_captured_process_by_process(
    collector: Collector, targets: Targets, config: Path, python: str, method: str
) -> None:
    collector.config = config

    code = collector.run(python, targets.called, targets.library, "2", method)

    assert code == 0, collector.stderr
    assert [peer.whole_files() for peer in collector.peers] == [FILES] * (1 if method == "none" else 2)
    assert len({peer.pid for peer in collector.peers}) == len(collector.peers)


def test_front_that_forwards_by_the_same_name_is_captured_once(
    collector: Collector, targets: Targets, config: Path
) -> None:
    collector.config = config

    preload = f"{collector.environment['LD_PRELOAD']}:{targets.front}"

    code = collector.run(targets.linked, "init", "run=2", "finalize", LD_PRELOAD=preload)

    assert code == 0, collector.stderr
    assert collector.peer.whole_files() == FILES
    assert collector.peer.calls() == CONFIGURED


def test_program_introduces_itself(collector: Collector, targets: Targets) -> None:
    words: list[str | Path] = [targets.linked, "init", "finalize"]

    collector.run(*words, RANK="3", LOCAL_RANK="1", WORLD_SIZE="8")

    hello = collector.peer.hello
    assert hello["version"] == [str(VERSION)]
    assert hello["pid"] == [str(collector.peer.pid)]
    assert hello["parent"] == [str(os.getpid())]
    assert hello["argv"] == [str(word) for word in words]
    assert hello["cwd"] == [str(Path.cwd())]
    assert (hello["env.RANK"], hello["env.LOCAL_RANK"], hello["env.WORLD_SIZE"]) == (["3"], ["1"], ["8"])


def test_program_that_never_touches_acl_is_not_seen(collector: Collector, targets: Targets) -> None:
    code = collector.run(targets.linked)

    assert code == 0
    assert (collector.peers, collector.stderr) == ([], "")


def test_program_runs_as_usual_without_a_collector(
    collector: Collector, targets: Targets, config: Path
) -> None:
    collector.path.unlink()

    code = collector.run(targets.linked, "init", f"drive={config}", "undrive", "finalize")

    assert code == 0
    assert "this process is not captured" in collector.stderr
    assert len(collector.stderr.splitlines()) == 1


def test_refusal_is_told_once_and_the_program_goes_on(collector: Collector, targets: Targets) -> None:
    collector.refusal = "there is no room; raise --buffer-bytes"

    code = collector.run(targets.linked, "init", "finalize", "init", "finalize")

    assert code == 0
    assert collector.stderr == (
        "dumpstream: there is no room; raise --buffer-bytes; this process is not captured\n"
    )


def test_configuration_that_acl_refuses_is_told(
    collector: Collector, targets: Targets, tmp_path: Path
) -> None:
    collector.config = tmp_path / "none.json"

    code = collector.run(targets.linked, "init", "run=1", "finalize")

    failed = [fields for fields in collector.peer.of("acl") if fields["code"] != "0"]
    assert code == 0
    assert [(fields["call"], fields["code"]) for fields in failed] == [("aclmdlSetDump", "100003")]
    assert collector.peer.calls() == [REGISTERED[0], "aclmdlInitDump", "aclmdlFinalizeDump", REGISTERED[1]]
    assert collector.stderr.endswith("none.json was refused with code 100003\n")


class TestDrivenByTheProgram:
    """A program that drives the dump itself is left alone."""

    def test_agent_only_registers(self, collector: Collector, targets: Targets, config: Path) -> None:
        code = collector.run(targets.linked, "init", f"drive={config}", "run=2", "undrive", "finalize")

        assert code == 0, collector.stderr
        assert collector.peer.whole_files() == FILES
        assert collector.peer.calls() == REGISTERED
        assert collector.peer.of("driven") == [{"call": "aclmdlInitDump"}]

    def test_agent_that_had_started_the_dump_steps_back(
        self, collector: Collector, targets: Targets, config: Path
    ) -> None:
        collector.config = config

        code = collector.run(
            targets.linked, "init", "run=1", f"drive={config}", "run=1", "undrive", "run=1", "finalize"
        )

        assert code == 0, collector.stderr
        assert collector.stdout[3:5] == ["init_dump 0", "set_dump 0"]
        assert collector.peer.statistics()[2] == FILES
        assert collector.peer.of("driven") == [{"call": "aclmdlInitDump"}]

    def test_configuration_given_to_aclinit_counts_as_driving(
        self, collector: Collector, targets: Targets, config: Path
    ) -> None:
        collector.config = config

        code = collector.run(targets.linked, f"init={config}", "run=2", "finalize")

        assert code == 0, collector.stderr
        assert collector.peer.whole_files() == FILES
        assert collector.peer.calls() == REGISTERED
        assert collector.peer.of("driven") == [{"call": "aclInit"}]

    def test_configuration_without_a_dump_section_does_not(
        self, collector: Collector, targets: Targets, config: Path, tmp_path: Path
    ) -> None:
        collector.config = config
        other = tmp_path / "other.json"
        other.write_text(json.dumps({"err_msg_mode": "dump", "dumps": 1}))

        collector.run(targets.linked, f"init={other}", "run=2", "finalize")

        assert collector.peer.whole_files() == FILES
        assert collector.peer.calls() == CONFIGURED

    @pytest.mark.parametrize("words", [["init", "register"], ["register", "init"]])
    def test_callback_of_its_own_gets_everything_too(
        self, collector: Collector, targets: Targets, config: Path, words: list[str]
    ) -> None:
        code = collector.run(targets.linked, *words, f"drive={config}", "run=2", "undrive", "finalize")

        assert code == 0, collector.stderr
        assert f"own {FILES}" in collector.stdout
        assert collector.peer.whole_files() == FILES


class TestInterposing:
    """What the agent must not change."""

    def test_rtld_next_means_what_it_meant(self, collector: Collector, targets: Targets) -> None:
        preload = f"{collector.environment['LD_PRELOAD']}:{targets.next}"

        code = collector.run(targets.linked, "init", "finalize", LD_PRELOAD=preload)

        assert code == 0, collector.stderr
        assert collector.peer.hello["pid"] == [str(collector.peer.pid)]

    def test_acl_is_not_there_for_who_looks_for_it_in_vain(self, collector: Collector, python: str) -> None:
        look = "import ctypes; exit(hasattr(ctypes.CDLL(None), 'aclInit'))"

        assert collector.run(python, "-c", look) == 0

    def test_agent_needs_nothing_but_the_c_library(self, agent: Path) -> None:
        needed = subprocess.run(["readelf", "-d", agent], capture_output=True, text=True, check=True).stdout

        libraries = {line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line}
        assert all(
            library.startswith(("libc.", "ld-linux", "libdl.", "libpthread.")) for library in libraries
        )
        (constructors,) = (line for line in needed.splitlines() if "(INIT_ARRAYSZ)" in line)
        assert constructors.endswith(" 8 (bytes)")  # the compiler's own

    def test_agent_exports_nothing_else(self, agent: Path) -> None:
        symbols = subprocess.run(
            ["nm", "-D", "--defined-only", agent], capture_output=True, text=True, check=True
        )

        names = {line.split()[-1].partition("@")[0] for line in symbols.stdout.splitlines()}
        assert names == {
            "aclInit",
            "aclFinalize",
            "aclFinalizeReference",
            "aclmdlInitDump",
            "aclmdlSetDump",
            "aclmdlFinalizeDump",
            "acldumpRegCallback",
            "acldumpUnregCallback",
            "dlsym",
            "ds_agent_join",
            "ds_agent_leave",
            "ds_agent_step",
        }


def test_running_process_joins_and_leaves_by_itself(
    collector: Collector, targets: Targets, config: Path, python: str, agent: Path
) -> None:
    collector.config = config
    program = f"""
import ctypes
acl, agent = ctypes.CDLL({str(targets.library)!r}), ctypes.CDLL({str(agent)!r})
acl.dssim_workload_open.restype = ctypes.c_void_p
socket = {str(collector.path)!r}.encode()
assert acl.aclInit(None) == acl.aclrtSetDevice(0) == 0
assert agent.ds_agent_leave() == -{errno.ENOTCONN}
assert agent.ds_agent_join(socket) == 0
assert agent.ds_agent_join(socket) == -{errno.EALREADY}
error = ctypes.create_string_buffer(200)
acl.dssim_load(ctypes.c_void_p(acl.dssim_workload_open(b"models=2\\nops=4\\n", error, 200)))
assert acl.dssim_run(2) == {FILES}
assert agent.ds_agent_leave() == 0
assert acl.dssim_run(1) == 0
assert acl.aclFinalize() == 0
"""

    code = collector.run(python, "-c", program, LD_PRELOAD="", DUMPSTREAM_SOCKET="")

    assert code == 0, collector.stderr
    assert collector.peer.whole_files() == FILES
    assert collector.peer.calls() == CONFIGURED


def test_joining_where_there_is_no_collector_says_why(agent: Path, tmp_path: Path) -> None:
    library = ctypes.CDLL(str(agent))

    assert library.ds_agent_join(os.fsencode(tmp_path / "none")) == -errno.ENOENT
    assert library.ds_agent_join(b"/" + b"x" * 200) == -errno.ENAMETOOLONG
