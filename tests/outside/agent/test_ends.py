"""Beginnings and ends, in any order."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.outside.agent.conftest import Collector, Targets

FILES = 16  #: of two steps
CONFIGURED = [
    "acldumpRegCallback",
    "aclmdlInitDump",
    "aclmdlSetDump",
    "aclmdlFinalizeDump",
    "acldumpUnregCallback",
]


def test_second_finalize_changes_nothing(collector: Collector, targets: Targets, config: Path) -> None:
    collector.config = config

    code = collector.run(targets.linked, "init", "run=2", "finalize", "finalize")

    assert code == 0
    assert collector.stdout[-2] == "finalize 100037"
    assert collector.peer.whole_files() == FILES


def test_initialised_again_it_joins_again(collector: Collector, targets: Targets, config: Path) -> None:
    collector.config = config

    code = collector.run(targets.linked, "init", "run=2", "finalize", "init", "run=2", "finalize")

    assert code == 0, collector.stderr
    assert [peer.whole_files() for peer in collector.peers] == [FILES, FILES]
    assert len({peer.pid for peer in collector.peers}) == 1


def test_last_reference_ends_it(collector: Collector, targets: Targets, config: Path) -> None:
    collector.config = config

    code = collector.run(targets.linked, "init", "init", "reference", "run=2", "reference", "exit")

    assert code == 0, collector.stderr
    assert collector.stdout[2] == "init 100002"
    assert collector.peer.whole_files() == FILES
    assert collector.peer.calls() == CONFIGURED


@pytest.mark.parametrize(
    ("end", "code"), [("exit", 0), ("abort", -signal.SIGABRT), ("kill", -signal.SIGKILL)]
)
def test_what_was_committed_survives_any_end(
    collector: Collector, targets: Targets, config: Path, end: str, code: int
) -> None:
    collector.config, collector.size = config, 8 << 20
    collector.reading = False
    process = collector.start(targets.linked, "init", "run=2", end)
    collector.until(lambda: process.poll() is not None)

    collector.reading = True
    collector.serve(process)

    peer = collector.peer
    finished, (_, fill, callbacks, _, _, losses) = len(peer.files), peer.statistics()
    assert process.returncode == code
    assert peer.whole_files() == finished
    assert finished + losses.get("unfinished", (0, 0))[0] == callbacks
    assert fill == 0
    assert not peer.of("bye")
    if end == "exit":
        assert finished == FILES  # the runtime delivers what it has queued while the process ends


def test_forked_child_has_a_ring_of_its_own(collector: Collector, targets: Targets, config: Path) -> None:
    collector.config = config

    code = collector.run(targets.linked, "fork", "init", "run=2", "finalize")

    assert code == 0, collector.stderr
    assert [peer.whole_files() for peer in collector.peers] == [FILES, FILES]


def test_child_forked_in_the_middle_never_writes_into_its_parents_ring(
    collector: Collector, targets: Targets, config: Path
) -> None:
    code = collector.run(targets.linked, "init", "fork", f"drive={config}", "run=2", "undrive", "finalize")

    assert code == 0, collector.stderr
    assert collector.peer.whole_files() == FILES
    assert collector.peer.statistics()[2] == FILES


def test_child_of_a_captured_process_joins_when_it_initialises_acl(
    collector: Collector, targets: Targets, config: Path
) -> None:
    words = ["init", "fork", "init", f"drive={config}", "run=2", "undrive", "finalize"]

    code = collector.run(targets.linked, *words)

    assert code == 0, collector.stderr
    assert [peer.whole_files() for peer in collector.peers] == [FILES, FILES]
    assert [len(peer.of("bye")) for peer in collector.peers] == [1, 1]


def test_descriptors_that_the_program_closes_and_reuses_are_left_alone(
    collector: Collector, targets: Targets, config: Path
) -> None:
    collector.config = config

    code = collector.run(targets.linked, "init", "close", "run=2", "finalize", "strays")

    assert code == 0, collector.stderr
    assert collector.stdout[-1] == "strays 0"
    assert collector.peer.whole_files() == FILES
    assert not collector.peer.of("bye")
