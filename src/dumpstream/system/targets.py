"""Targets: for every name a path of its own below a directory."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from xxhash import xxh3_64_intdigest

from dumpstream.names import clean_name, hashed_component, hashed_repetition

#: The path below the directory that the files made from an input begin with.
Target = tuple[str, ...]

_MOST_SEEN = 1 << 16
_FEW = 1 << 12  #: names that are sorted without numpy


class Targets:
    """Where the files of *names* go: no two at one path, and none where another needs a directory.

    A name goes where `clean_name` says. If names differ only in what that drops, the first goes there, and
    the others beside it, under their hashes; so does a name that is the directory of another. Eight bytes are
    kept of each name while the paths are compared, and afterwards only of names that are in each other's way.
    Names that merely seem to be, because their checksums are equal, get a hash, too.

    Args:
        names: returns all names, each time it is called.
        reserved: components that files made from a name may have, so that no directory is called so.
    """

    def __init__(
        self, names: Callable[[], Iterable[str]], *, reserved: re.Pattern[str] | None = None
    ) -> None:
        self._reserved = reserved
        found, has_folders = array("Q"), False
        for path in map(self._path, names()):
            found.append(_key(path))
            has_folders = has_folders or len(path) > 1
        keys = _sorted(found)
        self._shared = {key for key, following in pairwise(keys) if key == following}
        self._folders = set(_found(map(self._path, names()), keys)) if has_folders else set()
        self._taken: Counter[int] = Counter()

    def choose(self, name: str, source: str = "") -> Target:
        """Return where the files made from *name* go; call it once for each name, in their order.

        *source* is where the name comes from; names that are equal should differ in it.
        """
        return self.target(name, self.take(name), source)

    def take(self, name: str) -> int | None:
        """Return what `target` needs to know of *name*; call it once for each name, in their order."""
        if not (self._shared or self._folders):
            return None
        key = _key(self._path(name))
        if key not in self._shared and key not in self._folders:
            return None
        number = self._taken[key]
        self._taken[key] += 1
        return None if number == 0 and key not in self._folders else number

    def target(self, name: str, taken: int | None, source: str = "") -> Target:
        """Return what `choose` does, given what `take` has returned for *name*; may be called at any time."""
        path = self._path(name)
        return path if taken is None else (*path[:-1], hashed_repetition(name, source, taken))

    def _path(self, name: str) -> Target:
        path = clean_name(name)
        if self._reserved is None or len(path) == 1 or not any(map(self._reserved.fullmatch, path[:-1])):
            return path
        above = (hashed_component(it) if self._reserved.fullmatch(it) else it for it in path[:-1])
        return (*above, path[-1])


def _key(path: Target) -> int:
    return xxh3_64_intdigest("/".join(path).encode())


def _sorted(keys: array[int]) -> Sequence[int]:
    """Return *keys* in order, in eight bytes each."""
    if len(keys) <= _FEW:
        return sorted(keys)
    import numpy as np  # noqa: PLC0415 - loads slowly

    np.frombuffer(keys, np.uint64).sort()
    return keys


def _found(paths: Iterable[Target], keys: Sequence[int]) -> Iterator[int]:
    """Yield the keys of directories that *paths* lead through and that are among *keys*, which are sorted."""
    seen: set[int] = set()
    above: Target = ()
    for path in paths:
        if path[:-1] == above:
            continue
        above = path[:-1]
        for depth in range(len(path) - 1, 0, -1):
            key = _key(path[:depth])
            if key in seen:
                break  # and so are those above
            if len(seen) >= _MOST_SEEN:
                seen.clear()
            seen.add(key)
            at = bisect_left(keys, key)
            if at < len(keys) and keys[at] == key:
                yield key
