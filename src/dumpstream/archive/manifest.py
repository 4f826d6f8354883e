"""The manifest: what a capture is, which runs it had, and with which options and versions."""

import errno
import json
import os
import re
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from textwrap import indent
from typing import Any

from dumpstream._errors import NotACaptureError
from dumpstream.codec import Codec
from dumpstream.processes import KILLED
from dumpstream.system.location import Prefix
from dumpstream.system.nofollow import open_regular
from dumpstream.system.publishing import replace_file, replacement_of

#: Captures of this format and of earlier ones can be read; the first one has only zstd frames.
FORMAT = 2
MANIFEST = "manifest.json"
#: Processes that have changed since a long manifest was written.
CHANGES = "processes.jsonl"
#: What a kill can leave of a replacement.
TEMPORARY, TEMPORARY_CHANGES = replacement_of(MANIFEST), replacement_of(CHANGES)
#: The directories of what sinks without a location of their own store, and of profiles.
FILES, PACKS, STATS, PROFILE = "files", "packs", "stats", "profile"

_FOREIGN = f"holds no capture: its {MANIFEST} is not dumpstream's; choose another directory"
_TOO_LONG = f"cannot be read: its {MANIFEST} has more than 64 MiB; name the captures below it one by one"
#: The most bytes of the dump configurations of a run; longer ones would slow every read and write.
LONGEST_CONFIG = 256 << 10
#: `Configured.by` of a configuration that was not set by a call.
ENVIRONMENT = "environment"
#: No manifest is longer: a longer one is neither written nor read.
LARGEST_BYTES = 64 << 20
#: What the capture of a process came to: fields of `Process`.
FIGURES = ("files", "bytes", "stored_bytes", "verdicts", "lost_chunks")
_COUNTS = ("rank", "device", "files", "bytes", "stored_bytes", "lost_chunks")
#: What the fields of runs, processes and configurations are.
_TEXTS = {*("started", "python", "platform", "directory", "by", "call", "path", "first", "last")}
_OPTIONAL_TEXTS = {*("ended", "outcome", "acl_library", "ending", "problem", "ring")}
_OPTIONAL_OBJECTS = {*("config", "profile")}
_LARGEST = 1 << 62  # sums of two fit what databases and tables have
_NO_PROCESSES = "[]\n}\n"  # the end of such a manifest
_DIRECTORY = re.compile(r"(?:(?:rank|pid)-\d+(?:\.\d+)?)?", re.ASCII)


@dataclass(kw_only=True, slots=True)
class Configured:
    """A dump configuration that was put in force in a process captured from outside."""

    by: str  #: ``program``, ``agent`` for the collector, or ``environment``
    call: str  #: such as ``aclmdlSetDump``; empty if there was no call, or it is not known
    path: str  #: of the file as the program named it, or the variable
    first: str  #: when it was reported first
    last: str  #: and when it was reported last
    times: int = 1
    config: dict[str, Any] | None = None
    problem: str | None = None  #: why `config` is not known


@dataclass(kw_only=True, slots=True)
class Run:
    """One run of the pipeline into a capture."""

    run: int
    started: str
    ended: str | None = None
    outcome: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    codec: dict[str, Any] | None = None  #: its ``name``, and whether native code found ``libzstd``
    python: str
    platform: str
    acl_library: str | None = None
    config: dict[str, Any] | None = None  #: the dump configuration, the latest; None if not known, or long
    configured: list[Configured] = field(default_factory=list)  #: all of them, if it is from outside
    profile: dict[str, Any] | None = None  #: its directory (``path``), and what was collected


@dataclass(kw_only=True, slots=True)
class Process:
    """A process captured from outside; what it dumped is a capture of its own."""

    directory: str  #: of its capture, below that of the manifest; empty if it was refused
    pid: int
    parent: int
    command: list[str]
    rank: int | None = None
    device: int | None = None
    started: str
    ended: str | None = None
    ending: str | None = None  #: in words, such as ``exit code 0`` or ``killed by SIGKILL``
    problem: str | None = None  #: why it was not captured, or not as it should have been
    ring: str | None = None  #: the file of its ring, as long as it may still have chunks
    #: What its capture came to, so that a list of many needs no journal; None if its collector did not say.
    files: int | None = None
    bytes: int | None = None
    stored_bytes: int | None = None
    verdicts: dict[str, int] | None = None
    lost_chunks: int | None = None

    @property
    def killed(self) -> bool:
        """Whether a signal ended it."""
        return self.ending is not None and self.ending.startswith(KILLED)


#: Returns what differs if a process has changed.
state_of = attrgetter(*(it.name for it in fields(Process)))


@dataclass(kw_only=True, slots=True)
class Manifest:
    """The content of `manifest.json`: of a capture with runs of its own, or with a capture per process."""

    dumpstream: str
    created: str
    runs: list[Run] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    changes: str | None = None  #: the key of the list of changes that belongs to it, if there is one
    host: str | None = None  #: its name, if it is one of the hosts of a job
    ended: str | None = None  #: when the collector of the processes ended; None while it runs, or if it died
    _texts: list[tuple[Any, str]] = field(init=False, default_factory=list, repr=False, compare=False)

    def text(self) -> str:
        """Return what `parse_manifest` reads; only processes that have changed are formatted again."""
        about: dict[str, Any] = {
            "format": self.format,
            "dumpstream": self.dumpstream,
            "created": self.created,
        }
        known = {"changes": self.changes, "host": self.host, "ended": self.ended}
        about |= {name: value for name, value in known.items() if value is not None}
        rest = {"runs": [asdict(run) for run in self.runs], "processes": []}
        text = json.dumps({**about, **rest}, indent=2, default=str) + "\n"
        if not self.processes:
            return text
        processes = ",\n".join([self._text_of(number) for number in range(len(self.processes))])
        return f"{text.removesuffix(_NO_PROCESSES)}[\n{processes}\n  ]\n}}\n"

    def _text_of(self, number: int) -> str:
        process = self.processes[number]
        state = state_of(process)
        if number == len(self._texts):
            self._texts.append((None, ""))
        if self._texts[number][0] != state:
            text = json.dumps(asdict(process), indent=2, default=str)
            self._texts[number] = (state, indent(text, "    "))
        return self._texts[number][1]

    @property
    def finished(self) -> bool:
        """Whether it says that nothing is written any more."""
        return all(run.ended for run in self.runs) if self.runs else self.ended is not None

    @property
    def format(self) -> int:
        """The format of the capture: the lowest that has what is in it, so that earlier versions read it."""
        return FORMAT if any(run.codec and run.codec.get("name") != Codec.ZSTD for run in self.runs) else 1

    @property
    def profiled(self) -> bool:
        """Whether a run had a profile, so that the directory of profiles is part of the capture."""
        return any(run.profile for run in self.runs)


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in the directory *path*, with all changes.

    Raises:
        NotACaptureError: it cannot be read.
    """
    manifest = _read_without_changes(path)
    while (key := manifest.changes) is not None and not _add_changes(path, manifest):
        manifest = _read_without_changes(path)
        if manifest.changes == key:  # it was not replaced meanwhile: a kill came before the first change
            break
    return manifest


def change_text(number: int, process: Process) -> bytes:
    """Return the line that says what the process *number* of a manifest is now."""
    return json.dumps({"number": number, **asdict(process)}, default=str).encode("ascii") + b"\n"


def changes_title(key: str) -> bytes:
    """Return the first line of a list of changes."""
    return json.dumps({"changes": key}).encode("ascii") + b"\n"


def _add_changes(path: Path, manifest: Manifest) -> bool:
    """Add the changes that belong to *manifest*; return False if there are none."""
    assert manifest.changes is not None
    try:
        with os.fdopen(open_regular(path / CHANGES, os.O_RDONLY), "rb") as file:
            data = file.read(LARGEST_BYTES)
    except OSError:
        return False
    if not data.startswith(changes_title(manifest.changes)):
        return False
    with suppress(LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        for line in data[: data.rfind(b"\n")].split(b"\n")[1:]:
            change = json.loads(line)
            number, process = int(change["number"]), _process(change)
            if not 0 <= number <= len(manifest.processes):
                break
            manifest.processes[number : number + 1] = [process]
    return True


def _read_without_changes(path: Path) -> Manifest:
    try:
        with os.fdopen(open_regular(path / MANIFEST, os.O_RDONLY), "rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise NotACaptureError(path, _absence(path)) from None
    except OSError as exc:
        raise NotACaptureError(path, f"cannot be read: {MANIFEST}: {exc.strerror}") from exc
    return parse_manifest(path, data)


def parse_manifest(location: Path | Prefix, data: bytes) -> Manifest:
    """Return the manifest in *data*; raises `NotACaptureError` about *location* if it cannot be read."""
    if len(data) > LARGEST_BYTES:
        raise NotACaptureError(location, _TOO_LONG)
    try:
        content = json.loads(data)
        number = int(content["format"])
        if number > FORMAT:
            raise NotACaptureError(
                location,
                f"has capture format {number} (dumpstream {content.get('dumpstream')}), "
                f"and this version reads up to format {FORMAT}; upgrade dumpstream",
            )
        return Manifest(
            created=str(content["created"]),
            dumpstream=str(content["dumpstream"]),
            runs=[_run(run) for run in content["runs"]],
            processes=[_process(process) for process in content.get("processes", ())],
            **{name: _text(content.get(name)) for name in ("changes", "host", "ended")},
        )
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise NotACaptureError(location, _FOREIGN) from None


def manifest_text(manifest: Manifest) -> str:
    """Return the text that `parse_manifest` reads.

    Raises:
        OSError: no reader would take it, because it is too long.
    """
    text = manifest.text()
    if len(text) > LARGEST_BYTES:
        raise OSError(errno.EFBIG, f"{MANIFEST} would have {len(text)} bytes, more than {LARGEST_BYTES}")
    return text


def write_manifest(manifest: Manifest, dir_fd: int) -> None:
    """Replace the manifest in the directory *dir_fd*; a reader sees the old one or the new one, whole.

    Raises:
        OSError: it cannot be written, or no reader would take it; the old one stays.
    """
    replace_file(MANIFEST, [manifest_text(manifest).encode("ascii")], dir_fd)


def _absence(path: Path) -> str:
    what = f"holds no capture (no {MANIFEST})"
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
    return f"{what}; name a directory that `dumpstream capture --out` wrote"


def _run(fields: dict[str, Any]) -> Run:
    configured = [_configured(it) for it in fields.get("configured", ())]
    options, codec = dict(fields.get("options", {})), fields.get("codec")
    checked = {"run": _number(fields["run"]), "options": options, "configured": configured}
    known = _checked(Run, fields)
    return Run(**{**known, **checked, "codec": None if codec is None else dict(codec)})


def _configured(fields: dict[str, Any]) -> Configured:
    return Configured(**{**_checked(Configured, fields), "times": _number(fields.get("times", 1))})


def _process(fields: dict[str, Any]) -> Process:
    known = _checked(Process, fields)
    if not _DIRECTORY.fullmatch(fields["directory"]):
        raise ValueError("a process has its capture in a directory that is not one of ours")
    if "\0" in (known.get("ring") or ""):
        raise ValueError("a process has its ring in a file that cannot be")
    numbers = {name: _number(fields[name]) for name in ("pid", "parent")}
    numbers |= {name: _number(known[name]) for name in _COUNTS if known.get(name) is not None}
    if (verdicts := known.get("verdicts")) is not None:
        if not all(map(str.isidentifier, verdicts)):
            raise ValueError("a process has files with verdicts that are not words")
        known["verdicts"] = {verdict: _number(count) for verdict, count in verdicts.items()}
    return Process(**{**known, **numbers, "command": [str(word) for word in fields["command"]]})


def _number(value: Any) -> int:
    number = int(value)
    if abs(number) > _LARGEST:
        raise ValueError("it counts more than there can be")
    return number


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _checked(kind: type[Run | Configured | Process], fields: dict[str, Any]) -> dict[str, Any]:
    """Return the *fields* that this version knows; raises `TypeError` unless they are what they should be."""
    known = {name: value for name, value in fields.items() if name in kind.__slots__}
    given = known.keys() - {name for name, value in known.items() if value is None}
    is_sound = (
        given.issuperset(_TEXTS & known.keys())
        and all(type(known[name]) is str for name in (_TEXTS | _OPTIONAL_TEXTS) & given)
        and all(type(known[name]) is dict for name in _OPTIONAL_OBJECTS & given)
    )
    if not is_sound:
        raise TypeError(f"not a {kind.__name__}")
    return known
