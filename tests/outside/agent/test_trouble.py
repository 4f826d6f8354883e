"""A collector that is slow, stuck, dead or mad."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.conftest import LIMIT_S

from dumpstream import _native

if TYPE_CHECKING:
    from pathlib import Path

    from tests.outside.agent.conftest import Collector, Targets

FILES = 16  #: of two steps


def test_full_ring_waits_for_its_reader(collector: Collector, targets: Targets, config: Path) -> None:
    collector.config = config

    collector.run(targets.linked, "init", "large=1", "finalize")

    assert collector.peer.whole_files() == 8
    assert collector.peer.wakes > 0


def test_ring_in_a_file_serves_too(collector: Collector, targets: Targets, config: Path) -> None:
    collector.config, collector.in_file = config, True

    collector.run(targets.linked, "init", "large=1", "finalize")

    assert collector.peer.whole_files() == 8


def test_stuck_collector_costs_one_time_limit(collector: Collector, targets: Targets, config: Path) -> None:
    collector.config, collector.block_ns = config, 200_000_000
    collector.reading = False
    process = collector.start(targets.linked, "init", "large=2", "exit")
    collector.until(lambda: process.poll() is not None)

    collector.reading = True
    collector.serve(process)

    _, _, callbacks, _, _, losses = collector.peer.statistics()
    assert process.returncode == 0
    assert callbacks == 16
    assert sum(chunks for chunks, _ in losses.values()) == 16
    assert {loss[1] for loss in collector.peer.losses} <= set(_native.CAUSES)


def test_a_dead_collector_is_reported_and_the_process_does_not_wait(
    collector: Collector, targets: Targets, config: Path
) -> None:
    collector.config, collector.block_ns = config, 600_000_000_000
    collector.reading = False
    process = collector.start(targets.linked, "init", "wait", "large=1", "finalize")
    collector.until(lambda: "errno kept 1" in collector.stdout)

    collector.close()
    process.communicate("\n", timeout=LIMIT_S)

    assert process.returncode == 0
    assert "the collector is gone; of 8 chunks" in collector.stderr
    assert len(collector.stderr.splitlines()) == 1


def test_refusals_are_in_the_goodbye(collector: Collector, targets: Targets, config: Path) -> None:
    collector.config, collector.block, collector.size = config, False, 1 << 16
    collector.reading = False
    process = collector.start(targets.linked, "init", "run=2", "finalize", "wait")
    collector.until(lambda: "finalize 0" in collector.stdout)

    collector.reading = True
    collector.until(lambda: bool(collector.peer.of("bye")))
    process.communicate("\n", timeout=LIMIT_S)

    (bye,) = collector.peer.of("bye")
    losses = collector.peer.statistics()[5]
    assert int(bye["callbacks"]) == FILES
    assert int(bye["lost"]) == sum(chunks for chunks, _ in losses.values()) > 0
    assert int(bye["lost_bytes"]) == sum(size for _, size in losses.values())


_SOUND = b"ring\0size=65536\0block=1\0block_ns=1\0max_file_bytes=1\0"


@pytest.mark.parametrize(
    ("answer", "descriptors"),
    [
        (b"ring", 1),
        (b"ring\0", 1),
        (b"\0\0\0", 1),
        (b"x" * 60000, 0),
        (_SOUND, 0),
        (_SOUND, 2),
        (_SOUND, 1),  # not sealed
        (_SOUND.replace(b"65536", b"65537"), 1),
        (_SOUND.replace(b"65536", b"-1"), 1),
        (_SOUND.replace(b"block=1", b"block=2"), 1),
        (_SOUND + b"config=/" + b"x" * 5000 + b"\0", 1),
    ],
)
def test_answer_that_makes_no_sense_leaves_the_program_alone(
    collector: Collector, targets: Targets, answer: bytes, descriptors: int
) -> None:
    memory = os.memfd_create("ring")
    os.ftruncate(memory, 4096 + (112 << 10) + (1 << 16))
    collector.answer = answer, [memory] * descriptors

    code = collector.run(targets.linked, "init", "finalize")

    os.close(memory)
    assert code == 0
    assert collector.stderr.endswith("this process is not captured\n")
