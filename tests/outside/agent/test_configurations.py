"""The agent reports which configurations are put in force, and delays neither process for it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from dumpstream.simulation import dump_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.outside.agent.conftest import Collector, Targets


def told(by: str, call: str, path: Path, lost: int = 0) -> dict[str, str]:
    """Return what is told of the configuration *path*, which is a short one."""
    text = path.read_text()
    return {
        "by": by,
        "call": call,
        "lost": str(lost),
        "path": str(path),
        "size": str(len(text)),
        "offset": "0",
        "text": text,
    }


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another dump configuration."""
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"dump": {"dump_path": str(tmp_path), "dump_debug": "on"}}))
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A dump configuration that fits in no socket's buffer."""
    path = tmp_path / "large.json"
    path.write_text(dump_config(tmp_path).ljust(1 << 20))
    return path


@pytest.fixture
def counting(agent: Path, targets: Targets) -> str:
    """What to preload to have the process count how often it waited in vain."""
    return f"{agent} {targets.waits}"


def waits_in_vain(collector: Collector) -> int:
    (count,) = re.findall(r"waits in vain: (\d+)", collector.stderr)
    return int(count)


def test_every_configuration_that_is_set_is_told_when_it_is(
    collector: Collector, targets: Targets, config: Path, other: Path
) -> None:
    code = collector.run(
        targets.linked, "init", f"drive={config}", "run=1", f"set={other}", "undrive", "finalize"
    )

    assert code == 0, collector.stderr
    expected = [told("program", "aclmdlSetDump", path) for path in (config, other)]
    assert collector.peer.of("config") == expected


def test_a_thread_with_a_small_stack_may_set_one(
    collector: Collector, targets: Targets, config: Path, other: Path
) -> None:
    code = collector.run(targets.linked, "init", f"drive={config}", f"thread={other}", "finalize")

    assert code == 0, collector.stderr
    assert collector.peer.of("config")[-1] == told("program", "aclmdlSetDump", other)


def test_configuration_of_aclinit_is_told(collector: Collector, targets: Targets, config: Path) -> None:
    collector.run(targets.linked, f"init={config}", "run=2", "finalize")

    assert collector.peer.of("config") == [told("program", "aclInit", config)]


def test_configuration_that_the_collector_gave_is_told_as_it_was_applied(
    collector: Collector, targets: Targets, config: Path, other: Path
) -> None:
    collector.config = config

    collector.run(targets.linked, "init", "run=1", f"drive={other}", "undrive", "finalize")

    assert collector.peer.of("config") == [
        told("agent", "aclmdlSetDump", config),
        told("program", "aclmdlSetDump", other),
    ]


def test_what_does_not_come_into_force_is_not_told(
    collector: Collector, targets: Targets, config: Path, tmp_path: Path
) -> None:
    neighbours, garbage = tmp_path / "neighbours.json", tmp_path / "garbage.json"
    neighbours.write_text('{"err_msg_mode": "1"}')
    garbage.write_bytes(b"\xff\0{")

    code = collector.run(
        targets.linked, f"init={neighbours}", f"init={config}", "drive=/nowhere", "set", f"set={garbage}"
    )

    assert code == 0, collector.stderr
    assert collector.stdout[2] == "init 100002"
    assert collector.stdout[-3:] == ["set_dump 100003", "set_dump 100000", "set_dump 100009"]
    assert collector.peer.of("config") == []


def test_of_a_long_configuration_only_the_path_is_told(
    collector: Collector, targets: Targets, large: Path
) -> None:
    large.write_text(large.read_text().ljust(2 << 20))

    code = collector.run(targets.linked, "init", f"drive={large}", "run=1", "undrive", "finalize")

    (found,) = collector.peer.of("config")
    assert code == 0, collector.stderr
    assert found["problem"] == "it has more than 1 MiB"
    assert found["path"] == str(large)
    assert "text" not in found


def test_collector_that_does_not_read_is_waited_for_once_and_hears_how_many_it_missed(
    collector: Collector, targets: Targets, config: Path, large: Path, counting: str
) -> None:
    many = 60
    words = ["init", f"drive={config}", "wait", *[f"set={large}"] * many, "wait", f"set={config}", "finalize"]
    process = collector.start(targets.linked, *words, LD_PRELOAD=counting)
    assert process.stdin is not None
    collector.until(lambda: "set_dump 0" in collector.stdout)

    collector.reading = False
    process.stdin.write("\n")
    process.stdin.flush()
    collector.until(lambda: collector.stdout.count("set_dump 0") == 1 + many)
    collector.reading = True
    collector.until(lambda: any(message["offset"] == "0" for message in collector.peer.of("config")[1:]))
    process.stdin.write("\n")
    process.stdin.flush()
    collector.serve(process)

    assert process.returncode == 0, collector.stderr
    assert collector.peer.of("config")[-1] == told("program", "aclmdlSetDump", config, lost=many)
    assert collector.peer.of("bye")[0]["lost_configurations"] == str(many)
    assert waits_in_vain(collector) == 1


def test_collector_that_does_not_read_is_waited_for_once_whatever_there_is_to_tell(
    collector: Collector, targets: Targets, large: Path, counting: str
) -> None:
    rounds = 3  # each tells a configuration, that the callback is unregistered, and farewell
    collector.reading = False

    words = ["init", f"drive={large}", "undrive", "finalize"] * rounds
    process = collector.start(targets.linked, *words, LD_PRELOAD=counting)
    collector.until(lambda: process.poll() is not None)
    collector.reading = True
    collector.serve(process)

    assert process.returncode == 0, collector.stderr
    assert collector.stdout.count("finalize 0") == rounds
    assert collector.stderr.count("the collector does not read; 1 configurations of") == rounds
    assert waits_in_vain(collector) == rounds
