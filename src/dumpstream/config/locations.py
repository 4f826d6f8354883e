"""Locations: where exception dumps land, by the source and by the documents, which do not agree."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dumpstream.config.model import DumpSettings
from dumpstream.config.problem import Origin

_SOURCE_ORDER: Final = ("ASCEND_DUMP_PATH", "ASCEND_WORK_PATH")
_DOCUMENTS_ORDER: Final = ("NPU_COLLECT_PATH", "ASCEND_WORK_PATH")
_ENVIRONMENT_SCENES: Final = ("aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible directory, and why it is rejected, if it is."""

    name: str  #: the variable, ``dump_path``, or the current directory
    value: str | None
    rejected: str | None = None


@dataclass(frozen=True, slots=True)
class Landing:
    """Where exception dumps land by one of the two orders."""

    order: Origin
    candidates: tuple[Candidate, ...]  #: in order

    @property
    def chosen(self) -> Candidate:
        """The first candidate that is not rejected."""
        return next(candidate for candidate in self.candidates if candidate.rejected is None)

    @property
    def directory(self) -> str:
        """Where the files are, below one directory per device."""
        return os.path.join(self.chosen.value or ".", "extra-info", "data-dump")  # noqa: PTH118 - text to show


def landings(settings: DumpSettings, environment: Mapping[str, str] = os.environ) -> tuple[Landing, Landing]:
    """Return where exception dumps of *settings* land now: by the source, then by the documents."""
    return (
        Landing(Origin.SOURCE, _candidates(_SOURCE_ORDER, settings, environment, creates=True)),
        Landing(Origin.DOCUMENTS, _candidates(_DOCUMENTS_ORDER, settings, environment, creates=False)),
    )


def switched_on_by(environment: Mapping[str, str] = os.environ) -> tuple[str, str] | None:
    """Return the variable that switches exception dumps on by itself, and the scene that it selects."""
    scene = environment.get("ASCEND_DUMP_SCENE", "")
    if scene in _ENVIRONMENT_SCENES:
        return "ASCEND_DUMP_SCENE", scene
    return ("NPU_COLLECT_PATH", "aic_err_norm_dump") if environment.get("NPU_COLLECT_PATH") else None


def _candidates(
    variables: tuple[str, ...], settings: DumpSettings, environment: Mapping[str, str], *, creates: bool
) -> tuple[Candidate, ...]:
    found = [_variable(name, environment.get(name), creates=creates) for name in variables]
    path = settings.dump_path or None
    found.append(Candidate("dump_path", path, None if path else "not in the file"))
    found.append(Candidate("the current directory of the process", "."))
    return tuple(found)


def _variable(name: str, value: str | None, *, creates: bool) -> Candidate:
    if not value:
        return Candidate(name, value, "not set" if value is None else "set, but empty")
    if creates and not _can_be_made(Path(value)):
        return Candidate(name, value, "cannot be made, read and written")
    return Candidate(name, value)


def _can_be_made(path: Path) -> bool:
    """Whether *path* is a usable directory, or one that the source could make."""
    existing = next((place for place in (path, *path.parents) if os.path.lexists(place)), Path())
    return existing.is_dir() and os.access(existing, os.R_OK | os.W_OK | os.X_OK)
