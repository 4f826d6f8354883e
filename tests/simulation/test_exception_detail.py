"""Detailed exception dumps: before the device is set, for one process on a device, and then the end."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.simulation.exceptions import BRIEF, DETAIL, NORM, WORKLOAD, dumps_below, scene_of

from dumpstream.simulation import SimulatedRuntime

if TYPE_CHECKING:
    from .conftest import Dump


def test_detailed_dumps_that_are_switched_on_after_the_device_was_set_are_brief(dump: Dump) -> None:
    dump.run(replace(WORKLOAD, models=1), dump_scene=DETAIL)

    (path,) = dumps_below(dump.path)
    assert scene_of(path) == BRIEF


CHILD = """
import sys
from dumpstream.simulation import SimulatedRuntime, Workload
with SimulatedRuntime(Workload.parse(sys.argv[1]), config=sys.argv[2]) as runtime:
    print("ready", flush=True)
    sys.stdin.readline()
    runtime.run()
"""


def start_child(dump: Dump, workload: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, workload, str(dump.config)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_second_process_on_a_device_gets_brief_dumps(dump: Dump) -> None:
    workload = replace(WORKLOAD, models=1, ops=4, fails="2@1")
    dump.configure(dump_scene=DETAIL)
    with start_child(dump, "models=1,ops=4,steps=2,fails=3@1,device_id=3") as first:
        with SimulatedRuntime(workload, config=dump.config) as runtime:
            runtime.run()
        second = dumps_below(dump.path)
        first.communicate("\n")
    alone = replace(workload, device_id=4)
    with SimulatedRuntime(alone, config=dump.config) as runtime:
        runtime.run()

    assert [scene_of(path) for path in second] == [BRIEF]
    assert sorted(scene_of(path) for path in dumps_below(dump.path)) == [BRIEF, DETAIL, DETAIL]


@pytest.mark.parametrize(("scene", "code"), [(DETAIL, -9), (NORM, 0)])
def test_a_detailed_dump_may_end_the_process_as_cann_does(dump: Dump, scene: str, code: int) -> None:
    dump.configure(dump_scene=scene)

    with start_child(dump, "models=1,ops=4,steps=2,fails=2@1,after_detail=die") as process:
        process.communicate("\n")

    assert process.returncode == code
    assert [scene_of(path) for path in dumps_below(dump.path)] == [scene]


def test_the_first_scene_stays_and_only_a_detailed_one_outlives_its_dump(dump: Dump) -> None:
    with SimulatedRuntime(replace(WORKLOAD, fails="2")) as runtime:
        counts = [runtime.counters.exceptions]
        for scene in (DETAIL, NORM):
            dump.configure(dump_scene=scene)
            dump.library.aclmdlInitDump()
            assert dump.library.aclmdlSetDump(os.fsencode(dump.config)) == 0
            dump.library.aclrtResetDevice(3)
            dump.library.aclrtSetDevice(3)
            runtime.run(1)
            dump.finalize()
        runtime.run(1)
        counts.append(runtime.counters.exceptions)

    assert counts == [0, 6]
    assert all(".AIC." in file.name for file in dumps_below(dump.path))
