"""Modes: what captures were configured to dump, as their manifests have it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from dumpstream._errors import DumpstreamError
from dumpstream.archive.manifest import ENVIRONMENT, Configured, Run
from dumpstream.config.model import UNCHECKED, AclConfig, DumpSettings, Mode

if TYPE_CHECKING:  # they load numpy, which a collector does not need
    from dumpstream.reading.inputs import Input
    from dumpstream.reading.stored import StoredCapture


def settings_of(capture: StoredCapture | None) -> list[DumpSettings | None]:
    """Return all settings of every run of *capture*; None for those that are not known.

    Those of files that are not in a capture are not known either.
    """
    runs = [] if capture is None else capture.manifest.runs
    return [None] if capture is None else [_settings(config) for run in runs for config in _configs(run)]


def known_settings(configured: Iterable[Configured]) -> list[DumpSettings]:
    """Return those settings of *configured* that are known."""
    return [settings for it in configured if (settings := _settings(it.config)) is not None]


def modes_of(configured: Iterable[Configured]) -> tuple[str, ...] | None:
    """Return the known modes of *configured*; None if none is known."""
    known = known_settings(configured)
    return tuple(dict.fromkeys(mode for it in known for mode in it.modes)) if known else None


def need_mode(path: Path, inputs: Iterable[Input], mode: Mode) -> None:
    """Raise `DumpstreamError` if *inputs*, those of *path*, are known to be of other modes than *mode*."""
    captures = {id(item.capture): item.capture for item in inputs}.values()
    known = [settings for capture in captures for settings in settings_of(capture)]
    modes = {it for settings in known if settings is not None for it in settings.modes}
    if known and None not in known and mode not in modes:
        found = f"in mode {' and '.join(sorted(modes))}" if modes else "without a mode"
        raise DumpstreamError(
            f"{path} was captured {found}, not {mode}; capture with what `config new --mode {mode}` writes"
        )


def _configs(run: Run) -> list[dict[str, Any] | None]:
    """Return the configurations that chunks may come from: those of the environment never cause any."""
    return [it.config for it in run.configured if it.by != ENVIRONMENT] or [run.config]


def _settings(config: object) -> DumpSettings | None:
    try:
        return AclConfig.model_validate(config, context=UNCHECKED).dump
    except ValidationError:
        return None
