"""Names from the runtime: made safe to use as paths, and matched with patterns. Does no I/O."""

import re
from collections.abc import Callable, Iterable
from fnmatch import translate
from functools import lru_cache
from hashlib import blake2b

#: The file in which CANN lists names that are too long for files.
MAPPING = "mapping.csv"
#: The longest component: NAME_MAX (255) less room for ``.<number>.zst``.
MAX_COMPONENT_BYTES = 240
#: The longest path: PATH_MAX (4096) less room for the destination in front and a suffix behind.
MAX_PATH_BYTES = 3072
#: The deepest path: tools that descend by recursion can still reach its end.
MAX_DEPTH = 128

_PREFIX_BYTES = 64
_DIGEST_BYTES = 16
#: A component that stays as it is: ASCII that can be shown, and no mark of a hash.
_PLAIN = re.compile(rf"(?!\.\.?\Z)[ -.0-}}]{{1,{MAX_COMPONENT_BYTES}}}")
#: How a component ends that has a hash. Names from the runtime that end so get one, too.
_HASHED = re.compile(rf".*~[0-9a-f]{{{2 * _DIGEST_BYTES}}}", re.DOTALL)


def clean_name(name: str) -> tuple[str, ...]:
    """Return the path below a destination that stands for *name*, as components.

    There is at least one. None is empty, ``.`` or ``..``, or longer than `MAX_COMPONENT_BYTES`, and none has
    a ``/`` or a character that cannot be shown or encoded. Empty components and ``.``, of which CANN's names
    are full, are dropped. Every other change is marked with a hash of the original, and a component that
    looks as if it were marked is changed. So names get different paths unless they differ only in what is
    dropped.
    """
    folder, _, last = name.rpartition("/")
    above = _plain_folder(folder)
    if above is not None and _PLAIN.fullmatch(last):
        return (*above, last)
    components = tuple([part for part in name.split("/") if part and part != "."])
    # If the whole name can be a component, so can every part of it.
    if "~" in name or ".." in components or not _usable(name):
        components = tuple([part if _usable(part) else hashed_component(part) for part in components])
    if 0 < len(components) <= MAX_DEPTH and len("/".join(components).encode()) <= MAX_PATH_BYTES:
        return components
    return (hashed_name(name),)


class NamePatterns:
    """Patterns with ``*``, ``?`` and ``[ ]``, each of a whole name; one without them is the name itself."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._names = frozenset(patterns)
        self._matches = re.compile("|".join(map(translate, sorted(self._names)))).match

    def match(self, name: str) -> bool:
        """Whether *name* is or matches one of them."""
        return name in self._names or (bool(self._names) and self._matches(name) is not None)


@lru_cache(1024)
def _plain_folder(folder: str) -> tuple[str, ...] | None:
    """Return the components of *folder* if they stay as they are, whatever component follows.

    Most names share their folders with many others.
    """
    components = tuple([part for part in folder.split("/") if part and part != "."])
    fits = len(components) < MAX_DEPTH and len(folder) < MAX_PATH_BYTES - MAX_COMPONENT_BYTES
    return components if fits and all(map(_PLAIN.fullmatch, components)) else None


def hashed_name(name: str) -> str:
    """Return the one component that stands for *name* where the path from `clean_name` cannot be used.

    It is unlike every component in a path from `clean_name`, except that of this name.
    """
    return _hashed(_last(name), name, b"name")


def hashed_component(component: str) -> str:
    """Return what stands for *component*, in any name, if it cannot be used."""
    return _hashed(component, component, b"component")


def hashed_repetition(name: str, source: str, number: int) -> str:
    """Return the component that stands for *name* where another name has its path.

    *source* is where the name comes from, and *number* how many came before with that path. It is unlike
    every other component.
    """
    return _hashed(_last(name), f"{number}:{len(source)}:{source}{name}", b"repetition")


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def free_number(is_taken: Callable[[int], bool], taken: int) -> int:
    """Return a free number above *taken*, after a few looks however many are taken.

    The numbers in use have no gaps unless files were removed, so doubling the step until a number is free
    and halving it again finds the first.
    """
    step = 1
    while is_taken(taken + step):
        taken += step
        step *= 2
    while step > 1:
        step //= 2
        if is_taken(taken + step):
            taken += step
    return taken + 1


def _usable(component: str) -> bool:
    return (
        component != ".."
        and component.isprintable()
        and len(component.encode()) <= MAX_COMPONENT_BYTES
        and not ("~" in component and _HASHED.fullmatch(component))
    )


def _hashed(readable: str, original: str, kind: bytes) -> str:
    """Return a short component: what can be shown of *readable*, and a hash of *original*.

    Hashes of different kinds differ, also of the same *original*.
    """
    shown = "".join(char if char.isprintable() else "_" for char in readable[:_PREFIX_BYTES])
    prefix = shown.encode()[:_PREFIX_BYTES].decode(errors="ignore").replace("..", "__") or "_"
    # surrogatepass: undecodable bytes are lone surrogates in a str, and different ones must hash differently.
    data = original.encode(errors="surrogatepass")
    return f"{prefix}~{blake2b(data, digest_size=_DIGEST_BYTES, person=kind).hexdigest()}"
