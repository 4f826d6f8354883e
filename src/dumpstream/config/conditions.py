"""Conditions: when a rule of the table is broken, and where.

A rule gets those that need more than the subject, `always` to `blacklists`, as a `partial` with the rest.
If a configuration asks for exception dumps, CANN checks only the conflicts; if it asks for overflow dumps,
CANN does not check the selection. Nor do `items` and `blacklists`, then.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Final, get_args

from dumpstream.config.model import NEIGHBOURS, Blacklisted, DumpSettings, KernelData, Selection, _Part
from dumpstream.config.problem import Finding, Location, Subject
from dumpstream.config.steps import parse_steps

BLACKLISTS: Final = ("optype_blacklist", "opname_blacklist")

_REMOTE: Final = re.compile(r"((?:[0-9]{1,3}\.){3}[0-9]{1,3}):(.+)", re.DOTALL)
_REMOTE_CHARACTERS: Final = re.compile(r"[A-Za-z0-9\-=\[\];\\,./!@#$%^&*()_+{}:?]*")
_LARGEST_BYTE: Final = 255


def always(key: str, test: Callable[[DumpSettings], object], subject: Subject) -> Iterator[Finding]:
    """Break the rule at *key* if *test* is true of the settings."""
    if test(subject.dump):
        yield Finding(("dump", key) if key else ("dump",), {"dump": subject.dump})


def present(
    keys: Iterable[str], test: Callable[[DumpSettings, str], object], subject: Subject
) -> Iterator[Finding]:
    """Break the rule at each of *keys* that the file has and *test* is true of."""
    for key in keys:
        if subject.dump.has(key) and test(subject.dump, key):
            yield Finding(("dump", key), {"dump": subject.dump, "key": key})


def items(key: str, test: Callable[[DumpSettings, Selection], object], subject: Subject) -> Iterator[Finding]:
    """Break the rule at *key* of each item of ``dump_list`` that *test* is true of."""
    for place, item in _selections(subject):
        if test(subject.dump, item):
            yield Finding((*place, key), {"dump": subject.dump, "item": item})


def blacklists(
    test: Callable[[DumpSettings, tuple[Blacklisted, ...]], object], subject: Subject
) -> Iterator[Finding]:
    """Break the rule at each blacklist that *test* is true of."""
    for place, item in _selections(subject):
        for key in BLACKLISTS:
            entries = getattr(item, key)
            if test(subject.dump, entries):
                yield Finding((*place, key), {"dump": subject.dump, "key": key, "count": len(entries)})


def remote_path(path: str) -> str | None:
    """Return the path of ``a.b.c.d:path``, or None if *path* is on this machine."""
    match = _REMOTE.fullmatch(path)
    if match and all(int(part) <= _LARGEST_BYTE for part in match[1].split(".")):
        return match[2]
    return None


def has_bad_remote_path(dump: DumpSettings) -> bool:
    """Whether the path behind an address has characters that CANN does not accept."""
    remote = remote_path(dump.dump_path)
    return not dump.is_exception and remote is not None and not _REMOTE_CHARACTERS.fullmatch(remote)


def unusable_path(subject: Subject) -> Iterator[Finding]:
    """Find a ``dump_path`` that is not a directory to read and write."""
    path = subject.dump.dump_path
    if subject.dump.is_exception or not path or remote_path(path) is not None:
        return
    problem = None
    if "\0" in path or not os.path.exists(path):  # noqa: PTH110 - a Path changes what CANN would see
        expands = "$" in path or path.startswith("~")
        problem = f"does not exist{', and CANN expands neither variables nor ~' if expands else ''}"
    elif not os.path.isdir(path):  # noqa: PTH112 - likewise
        problem = "is not a directory"
    elif not os.access(path, os.R_OK | os.W_OK):
        problem = "cannot be read and written by this user"
    if problem:
        yield Finding(("dump", "dump_path"), {"name": path, "problem": problem})


def bad_steps(subject: Subject) -> Iterator[Finding]:
    """Find the items of ``dump_step`` that cannot be read."""
    if subject.dump.selects:
        for bad in parse_steps(subject.dump.dump_step)[1]:
            words = {"item": bad.text, "number": bad.index + 1, "problem": bad.problem}
            yield Finding(("dump", "dump_step"), words)


def empty_kernel_data(subject: Subject) -> Iterator[Finding]:
    """Find empty items of ``dump_kernel_data``."""
    for number, item in enumerate(subject.dump.dump_kernel_data.split(","), 1):
        if not item:
            yield Finding(("dump", "dump_kernel_data"), {"number": number})


def bad_kernel_data(subject: Subject) -> Iterator[Finding]:
    """Find items of ``dump_kernel_data`` that are not among the choices."""
    choices = get_args(KernelData)
    for item in subject.dump.dump_kernel_data.split(","):
        if item and item not in choices:
            yield Finding(("dump", "dump_kernel_data"), {"item": item, "choices": ", ".join(choices)})


def repeated_models(subject: Subject) -> Iterator[Finding]:
    """Find the items of ``dump_list`` that are not the first for their model."""
    seen = Counter[str]()
    for place, item in _selections(subject):
        seen[item.model_name] += 1
        if seen[item.model_name] > 1 and not subject.dump.is_watch:
            name = repr(item.model_name) if item.model_name else "all models"
            yield Finding((*place, "model_name"), {"name": name})


def replaced_watches(subject: Subject) -> Iterator[Finding]:
    """Find the items of ``dump_list`` that another one replaces in watch mode."""
    if subject.dump.is_watch:
        for place, _ in list(_selections(subject))[:-1]:
            yield Finding(place)


def watched_layers(subject: Subject) -> Iterator[Finding]:
    """Find names in ``layer`` that are also in ``watcher_nodes``."""
    for place, item in _selections(subject):
        watched = set(item.watcher_nodes)
        for position, name in enumerate(item.layer):
            if name in watched:
                yield Finding((*place, "layer", position), {"name": name})


def idle_entries(subject: Subject) -> Iterator[Finding]:
    """Find entries of blacklists in which the name or the position is missing."""
    for place, entry in _entries(subject):
        if not entry.name or not entry.pos:
            empty = "pos" if entry.name else "name"
            yield Finding((*place, empty), {"key": empty})


def bad_positions(subject: Subject) -> Iterator[Finding]:
    """Find positions in blacklists that name neither an input nor an output."""
    for place, entry in _entries(subject):
        for number, pos in enumerate(entry.pos):
            if not re.fullmatch(r"(input|output)[0-9]+", pos):
                yield Finding((*place, "pos", number), {"pos": pos})


def open_ranges(subject: Subject) -> Iterator[Finding]:
    """Find ranges without a begin or an end."""
    for place, item in _selections(subject):
        for position, ends in enumerate(item.opname_range):
            for key in ("begin", "end"):
                if not getattr(ends, key):
                    yield Finding((*place, "opname_range", position, key), {"key": key})


def collects(subject: Subject) -> Iterator[Finding]:
    """Find an environment that collects what the settings would dump."""
    if subject.environment.get("NPU_COLLECT_PATH") and subject.dump.is_data:
        yield Finding(("dump",))


def unknown_keys(subject: Subject) -> Iterator[Finding]:
    """Find keys that CANN is not known to read."""
    yield from _unknown((), subject.config, NEIGHBOURS)
    yield from _unknown(("dump",), subject.dump, frozenset({"dump_status"}))
    for index, item in enumerate(subject.dump.dump_list):
        place: Location = ("dump", "dump_list", index)
        yield from _unknown(place, item)
        for key in (*BLACKLISTS, "opname_range"):
            for position, entry in enumerate(getattr(item, key)):
                yield from _unknown((*place, key, position), entry)


def _unknown(place: Location, part: _Part, known: frozenset[str] = frozenset()) -> Iterator[Finding]:
    names = [*type(part).model_fields, *known]
    for key in part.unknown():
        if key not in known:
            close = get_close_matches(key, names, n=1)
            meant = f"write {close[0]!r} if that was meant" if close else "remove it if it is a mistake"
            yield Finding((*place, key), {"key": key, "meant": meant})


def _selections(subject: Subject) -> Iterator[tuple[Location, Selection]]:
    if subject.dump.selects:
        for index, item in enumerate(subject.dump.dump_list):
            yield ("dump", "dump_list", index), item


def _entries(subject: Subject) -> Iterator[tuple[Location, Blacklisted]]:
    for place, item in _selections(subject):
        for key in BLACKLISTS:
            for position, entry in enumerate(getattr(item, key)):
                yield (*place, key, position), entry
