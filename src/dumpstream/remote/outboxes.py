"""The outboxes that captures left: where they are, what waits in them, and what to do about it."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from dumpstream.remote.outbox import DESCRIPTION, OBJECTS


def state_directory() -> Path:
    """Return where outboxes are without a spill directory."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home, "dumpstream").expanduser()


def find_outboxes(directory: Path) -> Iterator[Path]:
    """Yield the outboxes in *directory*, oldest first, or *directory* itself if it is one."""
    if (directory / DESCRIPTION).exists():
        yield directory
        return
    for path in sorted(directory.glob(f"*/{DESCRIPTION}")):
        yield path.parent


def count_objects(path: Path) -> int:
    """Return how many objects wait in the outbox at *path*."""
    return sum(not object_path.suffix for object_path in (path / OBJECTS).glob("*"))


def upload_command(directory: Path | None) -> str:
    """Return the command that uploads what waits in *directory*, or in the state directory."""
    return "dumpstream upload" if directory is None else f"dumpstream upload {shlex.quote(str(directory))}"


def waiting_text(files: int, spill: Path | None) -> str:
    """Return how many *files* a capture with *spill* leaves behind, and the remedy."""
    what = {0: "the end of the journal waits", 1: "1 file waits"}.get(files, f"{files} files wait")
    return f"{what} for the store; upload what is missing with: {upload_command(spill)}"
