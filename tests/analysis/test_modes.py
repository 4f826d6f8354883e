from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from dumpstream import DumpstreamError
from dumpstream.analysis.modes import need_mode
from dumpstream.analysis.watch import find_watched
from dumpstream.archive.manifest import read_manifest
from dumpstream.config import Mode
from dumpstream.reading.inputs import find_inputs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import CaptureBuilder

Config = dict[str, Any]

OVERFLOW: Config = {"dump": {"dump_debug": "on"}}
EXCEPTION: Config = {"dump": {"dump_scene": "aic_err_norm_dump"}}


def watching(*layer: str) -> Config:
    return {"dump": {"dump_scene": "watcher", "dump_list": [{"layer": list(layer), "watcher_nodes": ["C"]}]}}


def is_refused(path: Path, mode: Mode) -> bool:
    """Return whether a capture is known not to be of *mode*."""
    try:
        need_mode(path, list(find_inputs([path])), mode)
    except DumpstreamError:
        return True
    return False


@pytest.fixture
def capture(builder: CaptureBuilder) -> CaptureBuilder:
    """A capture of two files, as the names of a watch are."""
    for number, name in enumerate(["Relu.C.3.1", "Relu.A_To_C.4.1"]):
        builder.add(f"/dump/20260530164725/0/net/1/0/{name}.{number}", b"x")
    return builder


def test_modes_are_all_that_a_process_put_in_force(capture: CaptureBuilder) -> None:
    capture.configure(OVERFLOW, watching("A"))

    path = capture.finish()

    assert [is_refused(path, mode) for mode in (Mode.OVERFLOW, Mode.WATCH, Mode.MODEL)] == [
        False,
        False,
        True,
    ]


def test_one_that_is_not_known_may_be_of_any_mode(capture: CaptureBuilder) -> None:
    capture.configure(OVERFLOW, None)

    assert not is_refused(capture.finish(), Mode.WATCH)


def test_what_the_environment_switches_on_says_nothing_of_chunks(capture: CaptureBuilder) -> None:
    capture.configure(EXCEPTION, by="environment")

    path = capture.finish()

    assert not is_refused(path, Mode.WATCH)
    assert read_manifest(path).runs[0].config is None


@pytest.mark.parametrize(
    ("configs", "unseen"),
    [
        ([watching("A", "B")], ("B",)),
        ([OVERFLOW, watching("A", "B"), {"dump": {}}], ("B",)),
        ([watching("A", "B"), watching("A", "D")], ()),
        ([watching("A", "B"), None], ()),
        ([], ()),
    ],
    ids=["one", "another mode", "another layer", "not known", "nothing told"],
)
def test_layer_is_that_of_the_watch_if_there_is_only_one(
    capture: CaptureBuilder, configs: list[Config | None], unseen: tuple[str, ...]
) -> None:
    capture.configure(*configs)

    (found,) = find_watched(find_inputs([capture.finish()]))

    assert found.unseen == unseen


def test_configurations_come_back_from_the_manifest_and_the_latest_is_the_runs(
    capture: CaptureBuilder,
) -> None:
    capture.configure(OVERFLOW, watching("A"))

    (run,) = read_manifest(capture.finish()).runs

    assert [it.config for it in run.configured] == [OVERFLOW, watching("A")]
    assert run.config == watching("A")
