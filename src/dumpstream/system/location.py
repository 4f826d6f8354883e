"""Locations: a path, or a prefix in an object store as a URL names it. Connects to nothing."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from dumpstream._errors import StoreError

#: The options that a URL may have behind its ``?``; none of them is secret.
_OPTIONS = {
    "s3": {"endpoint", "region", "addressing"},
    "gs": {"endpoint"},
    "az": {"account", "endpoint"},
    "obs": {"endpoint", "region"},
}
SCHEMES = tuple(_OPTIONS)
#: The scheme of a store that was given as an object.
GIVEN = "object"

_URL = re.compile(rf"({'|'.join(SCHEMES)}):(?=//)")
#: Text that is meant as a URL, well written or not: also with a space or a quotation mark of a script or a
#: settings file in front of it. Other paths may have a colon, as in ``run:2``.
_MEANT_AS_URL = re.compile(
    rf"""[\s"']*(?:({"|".join(SCHEMES)}):|([a-z][a-z0-9+.-]*):/)""", re.IGNORECASE | re.ASCII
)
_EXAMPLES = ", ".join(f"{scheme}://bucket/prefix" for scheme in SCHEMES)
#: How other programs call what has another name here.
_ALIASES = {
    **dict.fromkeys(("s3a", "s3n"), "s3"),
    "gcs": "gs",
    **dict.fromkeys(("abfs", "abfss", "azure", "wasb", "wasbs"), "az"),
}
_NOT_HERE = "credentials do not belong in a URL: give them by environment variables or a profile"


@dataclass(frozen=True, slots=True)
class Prefix:
    """Everything in an object store whose key begins with *key*; ``prefix / "name"`` is a prefix below it."""

    scheme: str
    bucket: str
    key: str = ""  #: without a slash at its ends
    options: tuple[tuple[str, str], ...] = ()
    #: An obstore object that was given instead of a URL.
    store: Any = field(default=None, repr=False, hash=False)

    @classmethod
    def parse(cls, url: str) -> Prefix:
        """Return the prefix that *url* names; raises `StoreError`, without what may be secret in *url*."""
        split = urlsplit(url, allow_fragments=False)
        if split.scheme not in _OPTIONS or not split.netloc:
            raise StoreError(f"a location in an object store is written {_EXAMPLES}")
        if "@" in split.netloc or ":" in split.netloc:
            raise StoreError(f"{split.scheme}://...: {_NOT_HERE}")
        options = dict(parse_qsl(split.query, keep_blank_values=True))
        if unknown := sorted(options.keys() - _OPTIONS[split.scheme]):
            known = ", ".join(sorted(_OPTIONS[split.scheme]))
            raise StoreError(
                f"{split.scheme}://{split.netloc} has no option {unknown[0]!r} (known: {known}); {_NOT_HERE}"
            )
        if options.get("addressing", "path") not in {"path", "virtual"}:
            raise StoreError(f"{split.scheme}://{split.netloc}: addressing is path or virtual")
        if any(mark in options.get("endpoint", "") for mark in "@?#"):
            raise StoreError(f"{split.scheme}://{split.netloc}: {_NOT_HERE}")
        return cls(split.scheme, split.netloc, _clean(split.path), tuple(sorted(options.items())))

    @classmethod
    def of_object(cls, url: str) -> Prefix:
        """Return the prefix of the object at *url*, as a journal has it: the key unchanged, no options."""
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        return cls(scheme, bucket, key.strip("/"))

    @classmethod
    def of(cls, store: Any, key: str = "") -> Prefix:
        """Return the prefix *key* in *store*, an object of obstore."""
        return cls(GIVEN, type(store).__name__, _clean(key), store=store)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")

    def __truediv__(self, name: str) -> Prefix:
        return replace(self, key=_clean(f"{self.key}/{name}"))

    @property
    def url(self) -> str:
        """The URL that `parse` takes, with its options."""
        query = urlencode(self.options, safe="/:")
        return f"{self}?{query}" if query else str(self)

    def covers(self, other: Prefix) -> bool:
        """Whether *other* is this prefix or one below it."""
        same_bucket = replace(other, key="") == replace(self, key="")
        return same_bucket and f"{other}/".startswith(f"{self}/")

    @property
    def parent(self) -> Prefix:
        """The prefix that this one is directly below."""
        return replace(self, key=self.key.rpartition("/")[0])

    @property
    def name(self) -> str:
        """The last component, as of a path."""
        return self.key.rpartition("/")[2] or self.bucket


def as_location(destination: str | os.PathLike[str] | Prefix | Any) -> Path | Prefix:
    """Return the location that *destination* stands for, be it read or written.

    A path that begins like a URL is refused, because it is one with a mistake in it. Write ``./http:/run``
    for such a directory.

    Raises:
        StoreError: it is a URL that cannot be used; the message says what to write, and nothing secret.
    """
    if isinstance(destination, Prefix):
        return destination
    if isinstance(destination, str) or hasattr(destination, "__fspath__"):
        text = os.fspath(destination)
        if not text:
            raise StoreError("the location is empty; write . for the current directory")
        if (match := _MEANT_AS_URL.match(text)) is not None:
            return _parse_url(text, match[1] or match[2], is_text=isinstance(destination, str))
        path = Path(text)
        # What other modules are given must not look like a URL, and a path forgets that it began with ./
        return path.absolute() if _MEANT_AS_URL.match(str(path)) else path
    if is_store(destination):
        return Prefix.of(destination)
    raise TypeError(f"a destination is a path, a URL ({_EXAMPLES}) or a store of obstore")


def as_path(path: str | os.PathLike[str], what: str) -> Path:
    """Return the path that *path* stands for; *what* says in an error what must be a path.

    Raises:
        StoreError: it is a URL, or looks like one.
    """
    if (match := _MEANT_AS_URL.match(os.fspath(path))) is not None:
        scheme = match[1] or match[2]
        if scheme.lower() != "file":
            raise StoreError(f"{scheme}:... is not a location; {what} must be a path on this machine")
    location = as_location(path)
    assert isinstance(location, Path)
    return location


def _parse_url(text: str, name: str, *, is_text: bool) -> Prefix:
    scheme = name.lower()
    if scheme in SCHEMES:
        if text.startswith(f"{name}://"):
            return Prefix.parse(text)
        remedy = f"write {scheme}://bucket/prefix"
        if not is_text:
            remedy += ", as text: a path object loses a slash"
        if not text.startswith(name):
            remedy = f"write {scheme}://bucket/prefix, without a space or a quotation mark in front of it"
    elif scheme in _ALIASES:
        remedy = f"write {_ALIASES[scheme]}://bucket/prefix"
    elif scheme == "file":
        remedy = "write the path without it"
    elif scheme in {"http", "https"}:
        remedy = "for a store with the S3 API, write s3://bucket/prefix?endpoint=https://HOST"
    else:
        remedy = f"write a path, or {_EXAMPLES}"
    raise StoreError(f"{name}:... is not a location; {remedy} (a directory of that name: ./{name}:...)")


def is_store(thing: Any) -> bool:
    """Whether *thing* is a store of obstore."""
    return any(kind.__module__.partition(".")[0] == "obstore" for kind in type(thing).__mro__)


def is_remote(sink: Any) -> bool:
    """Whether *sink*, as `open_capture` takes it, leads to an object store."""
    return sink.partition(":")[0] in SCHEMES if isinstance(sink, str) else is_store(sink)


def is_meant_as_url(text: str) -> bool:
    """Whether *text* begins like a URL, one that `as_location` takes or one that it refuses."""
    return _MEANT_AS_URL.match(text) is not None


def is_url(text: str) -> bool:
    """Whether *text*, a path in a journal, names an object."""
    return _URL.match(text) is not None


def _clean(path: str) -> str:
    return "/".join(part for part in path.split("/") if part and part not in {".", ".."})
