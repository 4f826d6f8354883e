"""Locations: what switches exception dumps on, and where they land, by CANN's source."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from dumpstream.config.model import DumpSettings

_SCENE: Final = "ASCEND_DUMP_SCENE"
_COLLECT: Final = "NPU_COLLECT_PATH"
_PATHS: Final = ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH")
_ENVIRONMENT_SCENES: Final = ("aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump")
_LONGEST_PATH: Final = 4096  #: bytes that Linux does not accept any more
_LONGEST_NAME: Final = 255  #: bytes of a component


class Switch(NamedTuple):
    """What switches exception dumps on."""

    name: str  #: a variable, or ``dump_scene``
    scene: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible directory, and why it is rejected, if it is."""

    name: str  #: the variable, ``dump_path``, or the current directory
    value: str | None
    rejected: str | None = None


@dataclass(frozen=True, slots=True)
class Landing:
    """Where exception dumps land."""

    switch: Switch
    candidates: tuple[Candidate, ...]  #: in order

    @property
    def chosen(self) -> Candidate:
        """The first candidate that is not rejected."""
        return next(candidate for candidate in self.candidates if candidate.rejected is None)

    @property
    def directory(self) -> str:
        """Where the files are, below one directory per device."""
        return os.path.join(self.chosen.value or ".", "extra-info", "data-dump")  # noqa: PTH118 - text to show


def landing(settings: DumpSettings, environment: Mapping[str, str] = os.environ) -> Landing | None:
    """Return where exception dumps land in a process with *settings* and *environment*; None if they are off.

    The environment comes first: CANN reads it before any configuration, and ignores a second switching-on.
    """
    switch = switched_on_by(environment)
    if switch is None and settings.is_exception:
        switch = Switch("dump_scene", str(settings.dump_scene))
    if switch is None:
        return None
    if switch.name == _COLLECT:
        return Landing(switch, (_variable(_COLLECT, environment),))
    candidates = [_variable(name, environment) for name in _PATHS]
    if switch.name == "dump_scene":
        path = settings.dump_path or None
        candidates.append(Candidate("dump_path", path, None if path else "not in the file"))
    candidates.append(Candidate("the current directory of the process", "."))
    return Landing(switch, tuple(candidates))


def switched_on_by(environment: Mapping[str, str] = os.environ, *, disk: bool = True) -> Switch | None:
    """Return the variable that switches exception dumps on without a configuration, if one does.

    Without *disk*, a directory that CANN could not make counts as well.
    """
    scene = environment.get(_SCENE, "")
    if scene in _ENVIRONMENT_SCENES:
        return Switch(_SCENE, scene)
    collects = environment.get(_COLLECT) and (not disk or _variable(_COLLECT, environment).rejected is None)
    return Switch(_COLLECT, "aic_err_norm_dump") if collects else None


def _variable(name: str, environment: Mapping[str, str]) -> Candidate:
    value = environment.get(name)
    if not value:
        return Candidate(name, value, "not set" if value is None else "set, but empty")
    if not _can_be_made(Path(value)):
        return Candidate(name, value, "cannot be made, read and written")
    return Candidate(name, value)


def _can_be_made(path: Path) -> bool:
    """Whether *path* is a usable directory, or one that CANN could make."""
    longest = max((len(os.fsencode(name)) for name in path.parts), default=0)
    if len(os.fsencode(path)) >= _LONGEST_PATH or longest > _LONGEST_NAME:
        return False
    existing = next((place for place in (path, *path.parents) if os.path.lexists(place)), Path())
    needed = os.R_OK | os.W_OK if existing == path else os.W_OK | os.X_OK
    return os.path.isdir(existing) and os.access(existing, needed)  # noqa: PTH112 - which does not raise
