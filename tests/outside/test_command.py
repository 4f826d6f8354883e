"""`capture -- COMMAND`: the command runs as it would alone, and everything that it dumps is captured."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream.cli import main
from dumpstream.outside.agent import agent_library
from dumpstream.simulation import simulated_library

if TYPE_CHECKING:
    from tests.outside.conftest import Outside


def test_the_dumps_of_a_command_are_captured(outside: Outside) -> None:
    result = outside.capture(outside.job)

    (process,) = outside.processes()
    assert result.returncode == 0
    assert (process.directory, process.ending) == (f"pid-{process.pid}", "exit code 0")
    assert process.command == outside.job
    assert outside.verdicts() == ["complete"] * 16
    assert not outside.problems()
    assert "16 files (16 complete) from 16 chunks" in result.stderr
    assert "files 16" in result.stdout


def test_a_configuration_is_applied_and_undone_by_the_agent(outside: Outside) -> None:
    job = [outside.programs.linked, "init", "run=2", "finalize"]

    result = outside.capture(job, "--config", outside.config)

    (process,) = outside.processes()
    assert result.returncode == 0
    assert process.problem is None
    assert outside.verdicts() == ["complete"] * 16
    assert not list(outside.dump_path.iterdir())


def test_ranks_have_their_own_directories(outside: Outside) -> None:
    result = outside.capture([*outside.simulated, "--ranks", "3"])

    processes = outside.processes()
    assert result.returncode == 0
    assert [process.directory for process in processes] == ["rank-0", "rank-1", "rank-2"]
    assert [(process.rank, process.device) for process in processes] == [(0, 0), (1, 1), (2, 2)]
    assert {process.ending for process in processes} == {"exit code 0"}
    assert outside.verdicts() == ["complete"] * 48


def test_commands_of_a_shell_are_captured_one_after_another(outside: Outside) -> None:
    job = " ".join(outside.job)

    result = outside.capture(["sh", "-c", f"RANK=0 {job}; RANK=0 {job} & wait; exit 5"])

    assert result.returncode == 5
    assert [process.directory for process in outside.processes()] == ["rank-0", "rank-0.2"]
    assert outside.verdicts() == ["complete"] * 32


@pytest.mark.parametrize("how", ["linked", "opened", "called"])
def test_a_job_is_captured_however_it_reaches_acl(outside: Outside, how: str) -> None:
    words = {
        "linked": [outside.programs.linked, "init", "run=2", "finalize"],
        "opened": [outside.programs.opened, simulated_library(), "init", "run=2", "finalize"],
        "called": [sys.executable, outside.programs.called, simulated_library(), "1", "none", ""],
    }

    result = outside.capture(words[how], "--config", outside.config)

    assert result.returncode == 0, result.stderr
    assert outside.verdicts() == ["complete"] * 16


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_that_a_pool_starts_are_captured(outside: Outside, method: str) -> None:
    words = [sys.executable, outside.programs.called, simulated_library(), "2", method, ""]

    result = outside.capture(words, "--config", outside.config)

    assert result.returncode == 0, result.stderr
    assert outside.verdicts() == ["complete"] * 32
    assert len(outside.processes()) == 2


def test_a_library_that_is_preloaded_already_stays(outside: Outside) -> None:
    code = "import os; print(os.environ['LD_PRELOAD'])"
    other = str(agent_library().with_name("libascendcl_sim.so"))

    result = outside.capture(outside.python(code), env={"LD_PRELOAD": other})

    assert result.stdout == f"{agent_library()}:{other}\n"


def test_a_command_without_acl_costs_nothing_and_is_no_error(outside: Outside) -> None:
    result = outside.capture(["true"])

    assert result.returncode == 0
    assert outside.processes() == []
    assert "no process used ACL" in result.stderr
    assert "LD_PRELOAD is stripped" in result.stderr


def test_a_cleared_environment_is_named_and_may_be_made_a_failure(outside: Outside) -> None:
    (outside.directory / "before").mkdir()
    command = ["env", "-i", *outside.job]

    result = outside.capture(command, "--config", outside.config)
    required = outside.capture(command, "--force", "--require-dump")

    assert result.returncode == 0
    assert "its environment was cleared, as by env -i" in result.stderr
    assert f"something was written to {outside.dump_path} meanwhile" in result.stderr
    assert required.returncode == 3
    assert "nothing was captured, and --require-dump asks for a dump" in required.stderr


def test_a_process_that_dumps_nothing_is_not_enough_if_a_dump_is_required(outside: Outside) -> None:
    idle = [outside.programs.linked, "init", "finalize"]

    codes = [outside.capture(idle, "--force", *flags).returncode for flags in ((), ("--require-dump",))]

    assert codes == [0, 3]
    assert outside.capture(outside.job, "--force", "--require-dump").returncode == 0


@pytest.mark.parametrize(("code", "expected"), [("exit 7", 7), ("kill -TERM $$", 143)])
def test_the_exit_code_is_what_a_shell_would_have(outside: Outside, code: str, expected: int) -> None:
    assert outside.capture(["sh", "-c", code]).returncode == expected


@pytest.mark.parametrize(
    ("word", "expected"), [("/nowhere/at/all", 127), ("/etc/passwd", 126), ("no-such-program", 127)]
)
def test_a_command_that_cannot_be_run_is_named(outside: Outside, word: str, expected: int) -> None:
    result = outside.capture([word])

    assert result.returncode == expected
    assert result.stderr.startswith(f"dumpstream: {word} cannot be run")
    assert len(result.stderr.splitlines()) == 1
    assert not outside.out.exists()  # so that the corrected command is not refused


def test_a_command_has_the_signals_and_limits_that_it_would_have_had(outside: Outside) -> None:
    code = (
        "import resource, signal\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], signal.pthread_sigmask(0, []),"
        " signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN)\n"
    )
    shell = f"ulimit -S -n 300; exec {sys.executable} -m dumpstream capture --out {outside.out} -- sh -c"

    inner = f"{sys.executable} -c '{code}'; grep SigIgn /proc/self/status"
    process = outside.start("sh", "-c", f'{shell} "$0"', inner)
    output, _ = process.communicate(timeout=LIMIT_S)

    assert output.splitlines()[0] == "300 set() True"  # Python itself ignores SIGPIPE
    ignored = int(output.split()[-1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"])
def test_signals_are_passed_on(outside: Outside, name: str) -> None:
    code = f"trap 'echo caught; exit 9' {name}; echo ready; while :; do sleep 0.01; done"
    process = outside.start_capture(["sh", "-c", code])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    process.send_signal(signal.Signals[f"SIG{name}"])

    assert process.communicate(timeout=LIMIT_S)[0] == "caught\n"
    assert process.returncode == 9


def test_a_command_has_the_directory_and_the_terminal_that_it_would_have_had(outside: Outside) -> None:
    terminal, theirs = pty.openpty()
    words = [*outside.dumpstream, "capture", "--out", outside.out, "--", "sh", "-c", "pwd; tty"]

    process = outside.start(*words, cwd=outside.directory, stdin=theirs)
    output, _ = process.communicate(timeout=LIMIT_S)

    assert output.splitlines() == [str(outside.directory), os.ttyname(theirs)]
    os.close(theirs)
    os.close(terminal)


def test_a_signal_that_was_ignored_from_the_start_stays_ignored(outside: Outside) -> None:
    capture = " ".join([*outside.dumpstream, "capture", "--out", str(outside.out), "--"])
    command = "sh -c 'echo $$; read line; exit 5'"
    process = outside.start("sh", "-c", f"trap '' HUP; exec {capture} {command}", stdin=subprocess.PIPE)
    assert process.stdout is not None
    pid = int(process.stdout.readline())

    process.send_signal(signal.SIGHUP)
    os.kill(pid, signal.SIGHUP)
    process.communicate("\n", timeout=LIMIT_S)

    assert process.returncode == 5


def test_a_program_may_follow_another_whose_child_has_not_closed_its_connection_yet(outside: Outside) -> None:
    code = (
        "import ctypes, os, sys, time\n"
        "ctypes.CDLL(sys.argv[1]).aclInit(None)\n"
        "is_socket = lambda fd: 'socket' in os.path.realpath(f'/proc/self/fd/{fd}')\n"
        "(connection,) = filter(is_socket, map(int, os.listdir('/proc/self/fd')))\n"
        "copy = os.dup(connection)\n"
        "if os.fork() == 0:\n"
        "    time.sleep(0.5)\n"
        "    os._exit(0)\n"
        "os.execv(sys.argv[2], sys.argv[2:])\n"
    )

    result = outside.capture(outside.python(code, simulated_library(), *outside.job))

    assert result.returncode == 0, result.stderr
    assert [process.ending for process in outside.processes()] == [
        "replaced by another program",
        "exit code 0",
    ]


def test_a_program_may_follow_another_while_a_child_of_the_first_lives(outside: Outside) -> None:
    code = (
        "import ctypes, os, sys\n"
        "ctypes.CDLL(sys.argv[1]).aclInit(None)\n"
        "ends, writes = os.pipe()\n"
        "os.set_inheritable(writes, True)\n"
        "if os.fork() == 0:\n"
        "    os.close(writes)\n"
        "    os._exit(len(os.read(ends, 1)))\n"
        "os.execv(sys.argv[2], sys.argv[2:])\n"
    )

    result = outside.capture(outside.python(code, simulated_library(), *outside.job))

    assert result.returncode == 0, result.stderr
    assert [process.ending for process in outside.processes()] == [
        "replaced by another program",
        "exit code 0",
    ]
    assert outside.verdicts() == ["complete"] * 16


def test_an_interrupted_job_leaves_whole_files(outside: Outside) -> None:
    process = outside.start_capture([*outside.simulated, "--steps", "100000", "--rate", "2M"])
    outside.until(lambda: outside.journal_lines() > 20)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)

    assert process.returncode == 0
    assert set(outside.verdicts()) == {"complete"}
    assert not outside.problems()


def test_success_with_losses_is_exit_code_3_and_failure_stays_what_it_is(outside: Outside) -> None:
    codes = [
        outside.capture(outside.job, "--max-file-bytes", "10k").returncode,
        outside.capture(
            ["sh", "-c", f"{' '.join(outside.job)}; exit 4"], "--max-file-bytes", "10k", "--force"
        ).returncode,
    ]

    assert codes == [3, 4]
    assert "lost" in outside.verdicts()


def test_a_process_beyond_the_total_runs_uncaptured_and_is_listed(outside: Outside) -> None:
    result = outside.capture(outside.ranks(2), "--buffer-bytes", "4M", env={"LOCAL_WORLD_SIZE": "2"})

    refused, captured = outside.processes()
    assert result.returncode == 3
    assert (refused.directory, bool(captured.directory)) == ("", True)
    assert "give the collector more --buffer-bytes" in (refused.problem or "")
    assert "dumpstream: no ring is left for this process" in result.stderr
    assert "refused: process" in result.stderr
    assert outside.verdicts() == ["complete"] * 16


def test_json_has_the_processes_behind_what_the_command_printed(outside: Outside) -> None:
    result = outside.capture(outside.ranks(2), "--json")

    report = json.loads(result.stdout[result.stdout.index("{") :])
    assert report["whole"]
    assert report["files"] == 32
    assert sorted(process["directory"] for process in report["processes"]) == ["rank-0", "rank-1"]
    assert all(process["report"]["files"] == 16 for process in report["processes"])


def test_processes_are_added_with_append_and_replaced_with_force(outside: Outside) -> None:
    outside.capture(outside.job, env={"RANK": "0"})

    again = outside.capture(outside.job, env={"RANK": "0"})
    appended = outside.capture(outside.job, "--append", env={"RANK": "0"})
    directories = [process.directory for process in outside.processes()]
    forced = outside.capture(outside.job, "--force", env={"RANK": "7"})

    assert [again.returncode, appended.returncode, forced.returncode] == [1, 0, 0]
    assert "already holds a capture" in again.stderr
    assert directories == ["rank-0", "rank-0.2"]
    assert [process.directory for process in outside.processes()] == ["rank-7"]


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--buffer-bytes", "1M"], 2, "at least 4194304"),
        (["--acl-lib", "x.so"], 2, "--acl-lib"),
        (["--profile"], 2, "--profile"),
        (["--simulate", "small"], 2, "--simulate"),
        (["--config", "/nowhere/acl.json"], 1, "/nowhere/acl.json"),
        (["--sink", "nosuch:"], 1, "no sink 'nosuch'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(
    outside: Outside, flags: list[str], code: int, words: str
) -> None:
    result = outside.capture(outside.job, *flags)

    assert result.returncode == code
    assert words in result.stderr


def test_a_capture_of_nothing_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "--out", "run"]) == 2
    assert "give either a command, behind --, or --simulate" in capsys.readouterr().err


def test_a_location_has_a_directory_for_each_process(outside: Outside) -> None:
    elsewhere = outside.directory / "elsewhere"

    result = outside.capture(outside.ranks(2), "--sink", f"zstd:{elsewhere}")

    assert result.returncode == 0
    assert sorted(path.name for path in elsewhere.iterdir()) == ["rank-0", "rank-1"]
    assert not outside.problems()


def test_the_command_ends_but_not_what_it_started_and_that_is_waited_for(outside: Outside) -> None:
    fifo = outside.directory / "fifo"
    os.mkfifo(fifo)
    said = outside.directory / "said"
    job = " ".join(outside.job).replace("init", "init wait", 1)
    joined = f"until grep -q init {said}; do sleep 0.01; done"

    process = outside.start_capture(
        ["sh", "-c", f": >{said}; ({job} <{fifo} >{said} 2>&1 &); {joined}; exit 6"]
    )
    with fifo.open("w"):
        outside.until(lambda: (outside.out / "manifest.json").exists() and outside.processes())
        assert process.stderr is not None
        assert "waiting for 1 process" in process.stderr.readline()
    process.communicate(timeout=LIMIT_S)

    (record,) = outside.processes()
    assert process.returncode == 6
    assert record.ending == "exit code 0"
    assert outside.verdicts() == ["complete"] * 16


def test_an_interrupt_ends_the_wait_for_what_the_command_left_behind(outside: Outside) -> None:
    fifo, said = outside.directory / "fifo", outside.directory / "said"
    os.mkfifo(fifo)
    job = " ".join(outside.job).replace("undrive", "wait", 1)
    dumped = f"until grep -q files {said}; do sleep 0.01; done"
    process = outside.start_capture(
        ["sh", "-c", f": >{said}; ({job} <{fifo} >{said} 2>&1 &); {dumped}; exit 6"]
    )
    with fifo.open("w"):
        assert process.stderr is not None
        assert "waiting for 1 process" in process.stderr.readline()

        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)

    (record,) = outside.processes()
    assert process.returncode == 6
    assert "finishing what has come" in errors
    assert "aborted" not in errors
    assert record.ending == "still running when its capture ended"
    assert outside.verdicts() == ["complete"] * 16


def test_a_worker_of_msrun_has_its_rank(outside: Outside) -> None:
    # msrun sets neither RANK nor RANK_ID.
    outside.capture(outside.job, env={"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "8", "MS_NODE_ID": "5"})

    assert [(process.directory, process.rank) for process in outside.processes()] == [("rank-5", 5)]
