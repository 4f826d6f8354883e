"""Status: how a run is getting on, as its manifest and its journals say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.inputs import is_capture
from dumpstream.system.location import Prefix

_MOST_PROCESSES = 2000
_LONGEST_COMMAND = 200


def status_of(path: Path | Prefix, ranks: Sequence[int] = ()) -> dict[str, Any]:
    """Return the state of the run at *path*, its processes and its losses, as JSON can hold them.

    ``version`` changes whenever a file has been finished.

    Raises:
        DumpstreamError: it cannot be read.
    """
    if not is_capture(path):
        return {"run": str(path), "state": "finished", "version": "", "members": [], "files": 0, "bytes": 0}
    collection = Collection.open(path, ranks)
    members = [*collection.members()]
    states = [member.capture.state for member in members if member.capture is not None]
    described = [_member(member) for member in members]
    return {
        "run": str(path),
        "state": str(collection.state(states)),
        "version": str([member.capture.version for member in members if member.capture is not None]),
        "files": sum(it["files"] for it in described),
        "bytes": sum(it["bytes"] for it in described),
        "members": described[:_MOST_PROCESSES],
    }


def _member(member: Member) -> dict[str, Any]:
    process, capture = member.process, member.capture
    totals = None if capture is None else capture.totals
    about = {} if process is None else {"rank": process.rank, "pid": process.pid, "ending": process.ending}
    return {
        "name": member.prefix.removesuffix("/") or "this process",
        "command": "" if process is None else " ".join(process.command)[:_LONGEST_COMMAND],
        **about,
        "state": None if capture is None else str(capture.state),
        "problem": member.problem or (None if process is None else process.problem),
        "files": 0 if totals is None else totals.files,
        "bytes": 0 if totals is None else totals.bytes,
        "stored_bytes": 0 if totals is None else totals.stored_bytes,
        "verdicts": {} if totals is None else dict(sorted(totals.verdicts.items())),
        "losses": {} if totals is None else {cause: [*lost] for cause, lost in totals.losses.items()},
    }
