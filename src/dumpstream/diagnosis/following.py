"""Following: a run that is diagnosed again and again while it is captured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dumpstream._errors import NotACaptureError
from dumpstream.diagnosis.answer import answer, examine
from dumpstream.diagnosis.badness import DEFAULT, Badness
from dumpstream.diagnosis.origins import find_origins
from dumpstream.diagnosis.subject import read_subject
from dumpstream.reading.collection import Collection
from dumpstream.reading.stored import State
from dumpstream.system.location import Prefix

#: The shortest time between two looks, and the share of the time that looking may take.
_PAUSE_S, _SHARE = 1.0, 0.25


def follow(
    path: Path | Prefix,
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    look_for: Sequence[Badness] = DEFAULT,
    tell: Callable[[str], None] = print,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> str | None:
    """Look at the run at *path* until its capture ends, and return what was told last.

    The answer is told when something bad is found, and again when more is known. A run that is not being
    captured is looked at once.

    Raises:
        DumpstreamError: there is no run, or its operators were not dumped as they ran.
    """
    told: str | None = None
    while True:
        running = is_running(path, ranks, hosts)  # before looking: what comes later is in the next look
        begun = time.monotonic()
        subject = read_subject(path, ranks, hosts)
        evidence = examine(subject, look_for, read_bytes=False)
        diagnosis = answer(subject, evidence, find_origins(evidence), read_bytes=False)
        if diagnosis.found and diagnosis.sentence != told:
            told = diagnosis.sentence
            tell(told)
        if not running:
            return told
        pause(max(_PAUSE_S, (time.monotonic() - begun) / _SHARE))


def is_running(path: Path | Prefix, ranks: Sequence[int] = (), hosts: Sequence[str] = ()) -> bool:
    """Whether a process is writing the capture at *path*, or one of those below it."""
    try:
        collection = Collection.open(path, ranks, hosts)
    except NotACaptureError:
        return False
    states = [it.capture.state for it in collection.members() if it.capture is not None]
    return collection.state(states) is State.RUNNING
