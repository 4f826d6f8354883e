"""Status: how a run is getting on, as its manifest, its journals and its locks say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dumpstream.analysis.sources import left_by_sink
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.inputs import is_capture
from dumpstream.reading.stored import State, StoredCapture
from dumpstream.system.location import Prefix

_MOST_PROCESSES = 2000
_LONGEST_COMMAND = 200
_MOST_ALERTS = 200
_OF_ALERT = ("time", "sentence", "model", "op_name", "io", "index", "step")
_FRESH_S = 10.0  #: an older pulse says nothing about now


def status_of(path: Path | Prefix, ranks: Sequence[int] = ()) -> dict[str, Any]:
    """Return the state of the run at *path*, its processes and its losses, as JSON can hold them.

    ``version`` changes whenever a file has been finished, and with the state. ``ring`` is only known of a
    process that captures into a directory now.

    Raises:
        DumpstreamError: it cannot be read.
    """
    if not is_capture(path):
        return {
            "run": str(path),
            "state": "finished",
            "version": "",
            "members": [],
            "files": 0,
            "bytes": 0,
            "alerts": [],
        }
    collection = Collection.open(path, ranks)
    members = [*collection.members()]
    captures = [member.capture for member in members if member.capture is not None]
    described = [_member(member) for member in members]
    state = str(collection.state(it.state for it in captures))
    return {
        "run": str(path),
        "state": state,
        "version": _digest([state, *(it.version for it in captures)]),
        "files": sum(it["files"] for it in described),
        "bytes": sum(it["bytes"] for it in described),
        "measured": _have_statistics(captures),
        "alerts": _alerts(members),
        "members": described[:_MOST_PROCESSES],
    }


def _digest(value: object) -> str:
    """Return a short text, another one for another *value*."""
    return hashlib.sha256(repr(value).encode("utf-8", "backslashreplace")).hexdigest()[:24]


def _have_statistics(captures: Iterable[StoredCapture]) -> bool:
    """Whether the statistics sink has left a table of each capture that has files."""
    rows = (next(capture.files.rows(), None) for capture in captures)
    return all(left_by_sink(row, ".parquet") for row in rows if row is not None)


def _alerts(members: Iterable[Member]) -> list[dict[str, Any]]:
    """Return what was told while the run went on, the corrected instead of what they correct."""
    found: list[dict[str, Any]] = []
    for member in members:
        last: dict[int | None, int] = {}  # of each device, where its last alert is
        for alert in () if member.capture is None else member.capture.totals.alerts:
            told = {name: alert[name] for name in _OF_ALERT}
            told |= {"process": _name(member), "host": member.host, "rank": member.rank}
            place = last.get(alert["device"])
            if alert["corrects"] and place is not None:
                found[place] = told
            else:
                last[alert["device"]] = len(found)
                found.append(told)
    return sorted(found, key=lambda it: str(it["time"]))[:_MOST_ALERTS]


def _name(member: Member) -> str:
    return member.prefix.removesuffix("/") or "the program"


def _member(member: Member) -> dict[str, Any]:
    process, capture = member.process, member.capture
    totals = None if capture is None else capture.totals
    about: dict[str, Any] = {} if member.host is None else {"host": member.host}
    about |= {} if process is None else {"rank": process.rank, "pid": process.pid, "ending": process.ending}
    return {
        "name": _name(member),
        "command": "" if process is None else " ".join(process.command)[:_LONGEST_COMMAND],
        **about,
        "state": None if capture is None else str(capture.state),
        "problem": member.problem or (None if process is None else process.problem),
        "files": 0 if totals is None else totals.files,
        "bytes": 0 if totals is None else totals.bytes,
        "stored_bytes": 0 if totals is None else totals.stored_bytes,
        "verdicts": {} if totals is None else dict(sorted(totals.verdicts.items())),
        "losses": {} if totals is None else {cause: [*lost] for cause, lost in totals.losses.items()},
        **({} if capture is None else _now(capture)),
    }


def _now(capture: StoredCapture) -> dict[str, Any]:
    """Return what the capturing process says of this moment, over what the journal says."""
    pulse = capture.place.read_pulse() if capture.state is State.RUNNING else None
    if pulse is None or not pulse.is_fresh(_FRESH_S):
        return {}
    return {
        "ring": {"bytes": pulse.ring_bytes, "fill": pulse.ring_fill},
        "received": pulse.bytes,
        "open_files": pulse.open_files,
        "losses": {cause: [*lost] for cause, lost in pulse.losses.items()},
    }
