from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dumpstream._errors import AclError, LibraryNotFoundError
from dumpstream.acl.dump import Dump
from dumpstream.acl.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Fake


def dump_of(fake: Fake, config: Path | None) -> Dump:
    return Dump(Lifecycle(fake.acl, initialized=True), config)


def test_without_configuration_only_the_callback_is_registered(fake: Fake) -> None:
    dump = dump_of(fake, None)

    dump.begin()

    assert not dump.finalize(None)
    assert fake.calls == ["acldumpRegCallback"]


def test_with_configuration_it_starts_the_dump_and_stops_it_once(fake: Fake, config: Path) -> None:
    dump = dump_of(fake, config)

    dump.begin()

    assert dump.finalize(None)
    assert not dump.finalize(None)
    assert fake.calls == ["acldumpRegCallback", "aclmdlInitDump", "aclmdlSetDump", "aclmdlFinalizeDump"]


def test_dump_that_the_program_started_is_not_stopped(fake: Fake, config: Path) -> None:
    fake["aclmdlInitDump"] = 100002
    dump = dump_of(fake, config)

    dump.begin()

    assert not dump.finalize(0x7700)
    assert fake.calls == ["acldumpRegCallback", "aclmdlInitDump", "aclmdlSetDump"]


def test_device_is_synchronised_before_the_dump_is_stopped(fake: Fake, config: Path) -> None:
    dump = dump_of(fake, config)
    dump.begin()

    dump.finalize(0x7700)

    assert fake.calls[3:] == ["aclrtSetCurrentContext", "aclrtSynchronizeDevice", "aclmdlFinalizeDump"]


def test_device_that_fails_does_not_keep_the_dump_going(fake: Fake, config: Path) -> None:
    fake["aclrtSynchronizeDevice"] = 507018
    dump = dump_of(fake, config)
    dump.begin()

    with pytest.raises(AclError, match="aclrtSynchronizeDevice returned 507018"):
        dump.finalize(0x7700)

    assert fake.calls[-1] == "aclmdlFinalizeDump"


def test_dump_that_could_not_be_stopped_is_known_to_go_on(fake: Fake, config: Path) -> None:
    fake["aclmdlFinalizeDump"] = 500000
    dump = dump_of(fake, config)
    dump.begin()

    with pytest.raises(AclError, match="aclmdlFinalizeDump returned 500000"):
        dump.finalize(None)

    assert dump.started


@pytest.mark.parametrize("done", [Dump.undo, Dump.leave])
def test_what_was_undone_or_left_is_not_undone_again(
    fake: Fake, config: Path, done: Callable[[Dump], None]
) -> None:
    dump = dump_of(fake, config)
    dump.begin()
    done(dump)
    calls = list(fake.calls)

    dump.undo()

    assert fake.calls == calls


def test_refused_registration_begins_nothing(fake: Fake, config: Path) -> None:
    fake["acldumpRegCallback"] = 500000

    with pytest.raises(AclError, match="acldumpRegCallback returned 500000"):
        dump_of(fake, config).begin()

    assert fake.calls == ["acldumpRegCallback"]


def test_dump_that_cannot_start_is_unregistered(fake: Fake, config: Path) -> None:
    fake["aclmdlInitDump"] = 100001

    with pytest.raises(AclError, match="aclmdlInitDump returned 100001"):
        dump_of(fake, config).begin()

    assert fake.calls == ["acldumpRegCallback", "aclmdlInitDump", "acldumpUnregCallback"]


@pytest.mark.parametrize("finalize_code", [0, 500000])
def test_refused_configuration_undoes_everything(fake: Fake, config: Path, finalize_code: int) -> None:
    fake["aclmdlSetDump"] = 100009
    fake["aclmdlFinalizeDump"] = finalize_code

    with pytest.raises(AclError, match="aclmdlSetDump returned 100009"):
        dump_of(fake, config).begin()

    assert fake.calls == [
        "acldumpRegCallback",
        "aclmdlInitDump",
        "aclmdlSetDump",
        "aclmdlFinalizeDump",
        "acldumpUnregCallback",
    ]


def test_missing_function_undoes_the_registration(only_dump: Fake, config: Path) -> None:
    with pytest.raises(LibraryNotFoundError, match="has no aclmdlInitDump"):
        dump_of(only_dump, config).begin()

    assert only_dump.calls == ["acldumpRegCallback", "acldumpUnregCallback"]
