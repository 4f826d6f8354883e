"""Captures from outside know what the processes were told to dump."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from dumpstream.archive.manifest import Run, read_manifest
from dumpstream.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.outside.conftest import Outside


class Configs:
    """Writes configurations, and reads back which were kept."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def write(self, name: str, *, size: int = 0, **settings: Any) -> Path:
        path = self._outside.directory / name
        settings = {"dump_path": str(self._outside.dump_path), **settings}
        path.write_text(json.dumps({"dump": settings}).ljust(size))
        return path

    def watch(self, *layer: str) -> Path:
        selection = {"layer": layer, "watcher_nodes": ["layer_2_LayerNorm"]}
        return self.write("watch.json", dump_scene="watcher", dump_list=[selection])

    def overflow(self) -> Path:
        return self.write("overflow.json", dump_debug="on")

    def run(self, directory: str | None = None) -> Run:
        """Return the run of a process, by default of the only one."""
        directory = directory or self._outside.processes()[0].directory
        (run,) = read_manifest(self._outside.out / directory).runs
        return run


@pytest.fixture
def configs(outside: Outside) -> Configs:
    return Configs(outside)


def simulate(outside: Outside, workload: str, *flags: object) -> list[object]:
    return [*outside.simulated, "--workload", f"{workload},models=1,steps=2", *flags]


def test_watch_has_the_suspects_of_the_programs_own_configuration(
    outside: Outside, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configs.watch("layer_8_MatMulV2", "nowhere")

    outside.capture(simulate(outside, "watch", "--config", config))
    code = main(["watch", str(outside.out)])

    assert configs.run().config == json.loads(config.read_text())
    assert code == 3
    assert "    by layer_8_MatMulV2, nowhere, or an operator in between" in capsys.readouterr().out


def test_overflow_and_watch_refuse_a_process_of_another_mode(
    outside: Outside, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    outside.capture(simulate(outside, "overflow", "--no-dump"), "--config", configs.overflow())

    codes = [main(["overflow", str(outside.out)]), main(["watch", str(outside.out)])]

    assert codes == [0, 1]
    output, errors = capsys.readouterr()
    assert output.endswith("4 overflows\n")
    assert "was captured in mode overflow, not watch" in errors
    assert [(it.by, it.call) for it in configs.run().configured] == [("agent", "aclmdlSetDump")]


def test_ranks_may_have_different_configurations(
    outside: Outside, configs: Configs, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"0": configs.watch("layer_8_MatMulV2"), "1": configs.overflow()}
    jobs = [
        " ".join(map(str, [f"RANK={rank}", *simulate(outside, path.stem, "--config", path)]))
        for rank, path in own.items()
    ]

    result = outside.capture(["sh", "-c", f"{jobs[0]} & {jobs[1]}; wait"])
    codes = [main(["watch", str(outside.out), "--rank", rank]) for rank in own]

    assert result.returncode == 0, result.stderr
    for rank, path in own.items():
        assert configs.run(f"rank-{rank}").config == json.loads(path.read_text())
    assert codes == [3, 1]
    assert "was captured in mode overflow, not watch" in capsys.readouterr().err


def test_what_is_set_in_the_middle_is_known_too(outside: Outside, configs: Configs) -> None:
    first, second = outside.config, configs.overflow()
    words = [
        "init",
        f"drive={first}",
        "run=1",
        f"set={second}",
        "run=1",
        f"set={first}",
        "undrive",
        "finalize",
    ]

    outside.capture([outside.programs.linked, *words])

    run = configs.run()
    told = [(it.path, it.times, it.config) for it in run.configured]
    assert told == [
        (str(second), 1, json.loads(second.read_text())),
        (str(first), 2, json.loads(first.read_text())),
    ]
    assert run.config == json.loads(first.read_text())
    assert outside.verdicts().count("complete") >= 8


def test_a_configuration_of_aclinit_is_known(outside: Outside, configs: Configs) -> None:
    outside.capture([outside.programs.linked, f"init={outside.config}", "run=2", "finalize"])

    (found,) = configs.run().configured
    assert (found.by, found.call, found.path) == ("program", "aclInit", str(outside.config))
    assert found.config == json.loads(outside.config.read_text())


def test_a_configuration_that_dumps_nothing_is_told_while_the_job_runs(outside: Outside) -> None:
    empty = outside.directory / "empty.json"
    empty.write_text(json.dumps({"dump": {"dump_path": str(outside.dump_path), "dump_list": []}}))
    none = outside.directory / "none.json"
    none.write_text("{}")

    own = outside.capture([outside.programs.linked, "init", f"drive={empty}", "run=1", "undrive", "finalize"])
    asked = outside.capture([outside.programs.linked, "init", "finalize"], "--force", "--config", empty)
    other = outside.capture([outside.programs.linked, f"init={none}", "finalize"], "--force")

    assert re.search(rf"dumpstream: pid-\d+: nothing is dumped by {empty} \(aclmdlSetDump\); ", own.stderr)
    assert asked.stderr.startswith(f"dumpstream: {empty}: $.dump.dump_list: nothing is dumped: ")
    assert "nothing is dumped by" not in asked.stderr + other.stderr


def test_the_longest_configuration_arrives_and_a_longer_one_is_named(
    outside: Outside, configs: Configs
) -> None:
    fits, longer = (configs.write(f"{size}.json", size=size, dump_debug="on") for size in (1 << 20, 2 << 20))

    result = outside.capture(
        [outside.programs.linked, "init", f"drive={fits}", f"set={longer}", "undrive", "finalize"]
    )

    run = configs.run()
    assert result.returncode == 0, result.stderr
    assert [it.problem for it in run.configured] == [None, "it has more than 1 MiB"]
    assert run.configured[0].config == json.loads(fits.read_text())
    assert run.configured[1].path == str(longer)
    assert run.config is None


def test_a_killed_process_leaves_what_it_had_put_in_force(outside: Outside, configs: Configs) -> None:
    outside.capture([outside.programs.linked, "init", f"drive={outside.config}", "run=1", "kill"])

    assert configs.run().config == json.loads(outside.config.read_text())


def test_another_configuration_than_that_of_the_command_line_is_said_in_a_line(
    outside: Outside, configs: Configs
) -> None:
    own = configs.overflow()
    words = ["init", f"drive={own}", "undrive", "finalize"]

    driven = outside.capture([outside.programs.linked, *words], "--config", outside.config)
    given = outside.capture(
        [outside.programs.linked, f"init={own}", "finalize"], "--config", outside.config, "--force"
    )

    (line,) = (line for line in driven.stderr.splitlines() if "--config" in line)
    assert line.endswith(
        f"it drives the dump itself (aclmdlInitDump), so --config held only until then; it dumps by {own}"
    )
    (line,) = (line for line in given.stderr.splitlines() if "--config" in line)
    assert line.endswith(f"(aclInit), so --config was not applied; it dumps by {own}")
    assert (driven.returncode, given.returncode) == (0, 0)


def test_the_same_under_another_directory_is_nothing_to_speak_of(outside: Outside, configs: Configs) -> None:
    elsewhere = outside.directory / "elsewhere"
    elsewhere.mkdir()
    asked = configs.write("asked.json", dump_path=str(elsewhere), dump_debug="on")
    words = ["init", f"drive={configs.overflow()}", "undrive", "finalize"]

    result = outside.capture([outside.programs.linked, *words], "--config", asked)

    assert "--config" not in result.stderr
    assert outside.processes()[0].problem is None


def test_one_that_is_not_known_is_not_taken_for_the_same(outside: Outside, configs: Configs) -> None:
    asked, own = configs.write("asked.json"), configs.write("own.json", size=2 << 20)
    words = ["init", f"drive={own}", "undrive", "finalize"]

    result = outside.capture([outside.programs.linked, *words], "--config", asked)

    assert f"; it dumps by {own}" in result.stderr


def test_exception_dumps_that_the_environment_switches_on_explain_an_empty_capture(
    outside: Outside, configs: Configs
) -> None:
    job = [outside.programs.linked, "init", "run=1", "finalize"]

    result = outside.capture(job, env={"ASCEND_DUMP_SCENE": "aic_err_norm_dump"})

    assert "only an exception scene is configured" in result.stderr
    assert "nothing configures a dump" not in result.stderr
    (found,) = configs.run().configured
    assert (found.by, found.path) == ("environment", "ASCEND_DUMP_SCENE")
    assert configs.run().config is None
