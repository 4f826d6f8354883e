"""Where exception dumps go, and what switches them on: as `dumpstream config explain` says it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.simulation.exceptions import BRIEF, DETAIL, NORM, PATHS, WORKLOAD, dumps_below, scene_of

from dumpstream.config import DumpSettings, landing
from dumpstream.simulation import SimulatedRuntime

if TYPE_CHECKING:
    from .conftest import Dump

#: For each variable: not set, empty, a directory to make, and something that is not a directory.
STATES = ("", "empty", "made", "refused")


class Case:
    """A directory for each combination of states, with the variables set accordingly."""

    def __init__(self, root: Path, states: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root / "-".join(states)
        for name in ("here", "dump"):
            (self.root / name).mkdir(parents=True)
        (self.root / "file").touch()
        monkeypatch.chdir(self.root / "here")
        for name, state in zip(PATHS, states, strict=True):
            values = {"made": str(self.root / "made" / name), "refused": str(self.root / "file/x")}
            monkeypatch.setenv(name, values.get(state, ""))
            if not state:
                monkeypatch.delenv(name)

    def files(self) -> list[Path]:
        return [file for name in ("here", "dump", "made") for file in dumps_below(self.root / name)]


@pytest.mark.parametrize("scene_variable", ["", BRIEF, DETAIL, "watcher"])
@pytest.mark.parametrize(
    "section",
    [
        {"dump_scene": BRIEF, "dump_path": "../dump"},
        {"dump_scene": BRIEF},
        {"dump_path": ".", "dump_list": []},
    ],
    ids=["scene-and-path", "scene", "neither"],
)
def test_the_runtime_follows_the_environment_as_explained(
    dump: Dump,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scene_variable: str,
    section: dict[str, Any],
) -> None:
    dump.config.write_text(json.dumps({"dump": section}))
    monkeypatch.setenv("ASCEND_DUMP_SCENE", scene_variable)
    for states in product(STATES, repeat=len(PATHS)):
        case = Case(tmp_path, states, monkeypatch)
        expected = landing(DumpSettings.model_validate(section))

        dump.library.dssim_reset()
        with SimulatedRuntime(WORKLOAD, config=dump.config) as runtime:
            runtime.run()

        if expected is None:
            assert case.files() == []
            continue
        directory = Path(case.root, "here", expected.directory, "3").resolve()
        assert [file.parent for file in case.files()] == [directory] * 2
        assert {scene_of(file) for file in case.files()} == {expected.switch.scene}


def test_the_directory_is_told_as_it_is_used(dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_COLLECT_PATH", str(dump.path / "collected"))

    with SimulatedRuntime(WORKLOAD) as runtime:
        assert runtime.exception_directory == dump.path / "collected/extra-info/data-dump/3"


def test_a_variable_that_cannot_be_used_is_passed_over(dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_DUMP_PATH", str(dump.config / "below-a-file"))

    dump.run(WORKLOAD, dump_scene=NORM)

    assert len(dumps_below(dump.path)) == 2


@pytest.mark.parametrize(
    ("name", "value", "prefix"),
    [
        ("ASCEND_DUMP_SCENE", BRIEF, "exception_info."),
        ("ASCEND_DUMP_SCENE", NORM, "LayerNorm."),
    ],
)
def test_a_variable_switches_them_on_without_a_configuration(
    dump: Dump, monkeypatch: pytest.MonkeyPatch, name: str, value: str, prefix: str
) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("ASCEND_WORK_PATH", str(dump.path))

    with SimulatedRuntime(WORKLOAD) as runtime:
        runtime.run()

    assert [file.name.startswith(prefix) for file in dumps_below(dump.path)] == [True, True]


def test_what_a_variable_switched_on_outlives_every_dump(dump: Dump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_COLLECT_PATH", str(dump.path))
    workload = replace(WORKLOAD, fails="2")

    dump.run(workload, dump_scene=BRIEF)
    after_the_dump = len(dumps_below(dump.path))
    with SimulatedRuntime(replace(workload, seed=1)) as runtime:
        runtime.run(1)
        runtime.run(1)

    assert after_the_dump == 4
    assert {scene_of(file) for file in dumps_below(dump.path)} == {NORM}
    assert runtime.counters.exceptions == 8
