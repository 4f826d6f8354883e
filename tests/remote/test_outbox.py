"""The outbox: where objects wait on the disk, and who may open it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dumpstream._errors import (
    DestinationError,
    DestinationInUseError,
)
from dumpstream.remote.outbox import Outbox
from dumpstream.remote.outboxes import find_outboxes
from dumpstream.remote.quota import Quota
from dumpstream.source import OnFull

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    outbox = Outbox.make(tmp_path, "s3://bucket/run", quota=Quota(100), on_full=OnFull.BLOCK)
    yield outbox
    outbox.close()


def test_outbox_in_use_is_not_opened_by_another(outbox: Outbox) -> None:
    with pytest.raises(DestinationInUseError):
        Outbox.open(outbox.path)


def test_outbox_that_cannot_be_made_asks_for_a_spill() -> None:
    with pytest.raises(DestinationError, match="name another with --spill"):
        Outbox.make(Path("/proc/nowhere"), "s3://bucket/run", quota=None, on_full=OnFull.BLOCK)


def test_outbox_on_a_full_disk_asks_for_a_spill_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dumpstream.remote.outbox.replace_file", fail)
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(DestinationError, match=r"No space left .* name another with --spill"):
        Outbox.make(tmp_path, "s3://bucket/run", quota=None, on_full=OnFull.BLOCK)

    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_outbox_that_is_needed_stays(tmp_path: Path) -> None:
    outbox = Outbox.make(tmp_path, "s3://bucket/run", quota=None, on_full=OnFull.BLOCK)
    outbox.needed = True
    outbox.close()

    assert list(find_outboxes(tmp_path)) == [outbox.path]
    again = Outbox.open(outbox.path)
    again.needed = False
    again.close()
    assert list(find_outboxes(tmp_path)) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "destination": "x"}', '{"format": 1}', "[" * 99999]
)
def test_description_that_cannot_be_understood_is_refused(tmp_path: Path, text: str) -> None:
    outbox = Outbox.make(tmp_path, "s3://bucket/run", quota=None, on_full=OnFull.BLOCK)
    outbox.needed = True
    outbox.close()
    (outbox.path / "outbox.json").write_text(text)

    with pytest.raises(DestinationError, match=r"is not an outbox: its outbox\.json"):
        Outbox.open(outbox.path)
