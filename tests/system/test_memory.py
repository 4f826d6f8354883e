"""How much memory is left to a process in control groups, of either version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dumpstream.system import memory
from dumpstream.system.memory import available_memory

if TYPE_CHECKING:
    from pathlib import Path

_MACHINE = 1000


@pytest.fixture(params=memory._GROUPS, ids=["version 2", "version 1"])
def group(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    groups = request.param._replace(root=tmp_path / "cgroup")
    number = 4 if groups.controllers else 0
    (tmp_path / "membership").write_text(
        f"7:cpu,cpuacct:/elsewhere\n{number}:{groups.controllers}:/system.slice/service:one\n"
    )
    monkeypatch.setattr(memory, "_GROUPS", [groups])
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(memory, "_machine_available", lambda: _MACHINE)
    return Group(groups)


class Group:
    """Makes control groups."""

    def __init__(self, groups: memory._Groups) -> None:
        self._groups = groups

    def make(self, path: str, limit: int | str, used: int, **cached: int) -> None:
        groups = self._groups
        directory = groups.root / path
        directory.mkdir(parents=True, exist_ok=True)
        (directory / groups.limit).write_text(f"{limit}\n")
        (directory / groups.usage).write_text(f"{used}\n")
        prefix = "total_" if groups.controllers else ""
        lines = [f"{prefix}{name} {size}\n" for name, size in cached.items()]
        (directory / "memory.stat").write_text(f"anon 5\nshmem 7\n{''.join(lines)}")


def test_without_a_limit_it_is_what_the_machine_has(group: Group) -> None:
    group.make("", "max", 900)

    assert available_memory() == _MACHINE


@pytest.mark.parametrize("path", ["", "system.slice", "system.slice/service:one"])
def test_a_limit_around_the_process_counts(group: Group, path: str) -> None:
    group.make(path, 500, 300)

    assert available_memory() == 200


def test_the_limit_of_another_group_does_not(group: Group) -> None:
    group.make("elsewhere", 500, 300)

    assert available_memory() == _MACHINE


def test_the_smallest_counts(group: Group) -> None:
    group.make("", 900, 0)
    group.make("system.slice", 500, 300)
    group.make("system.slice/service:one", 400, 300)

    assert available_memory() == 100


def test_the_cache_of_files_is_not_in_the_way(group: Group) -> None:
    group.make("", 500, 499, inactive_file=150, active_file=100)

    assert available_memory() == 251


def test_a_group_that_is_over_its_limit_has_nothing(group: Group) -> None:
    group.make("", 500, 600)

    assert available_memory() == 0


def test_what_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "membership").write_text("nonsense\n")
    for membership in (tmp_path / "membership", tmp_path / "missing"):
        monkeypatch.setattr(memory, "_MEMBERSHIP", membership)
        assert available_memory() > 0
