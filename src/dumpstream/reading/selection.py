"""Selection: the files of captures that names and patterns stand for."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice

from dumpstream._errors import DumpstreamError
from dumpstream.names import NamePatterns
from dumpstream.reading.collection import Collection, Member
from dumpstream.reading.filelist import Slice
from dumpstream.reading.stored import StoredCapture
from dumpstream.reading.storedfile import StoredFile

#: Files that are kept, or looked for one by one.
FEW = 16
_WILDCARD = re.compile(r"[*?\[]")


#: Returns texts, which may become more: a caller does without files of the capture whose lines contain one.
Dispensable = Callable[[StoredCapture], Sequence[bytes]]


class Selection:
    """All files, or those whose names, with the prefix of their process, are or match one of *patterns*.

    Without *patterns*, files that are *dispensable* may be left out.
    """

    def __init__(self, patterns: Sequence[str], dispensable: Dispensable | None = None) -> None:
        self._dispensable = dispensable or (lambda _: ())
        self._patterns = tuple(dict.fromkeys(patterns))
        self._matching = NamePatterns(self._patterns)
        self._unnoted: Sequence[str] = self._patterns
        self._found: dict[tuple[str, str], list[StoredFile]] = {}  # by prefix and pattern, if they are few

    @property
    def everything(self) -> bool:
        """Whether all files are selected."""
        return not self._patterns

    def files(self, member: Member, within: Slice | None = None) -> Iterator[StoredFile]:
        """Yield the files of *member* that are selected, each once, or those *within* a slice if all are."""
        if member.capture is None:
            return
        files, prefix = member.capture.files, member.prefix
        if self.everything:
            yield from files.without(self._dispensable(member.capture), within)
        elif any(map(_WILDCARD.search, self._patterns)) and len(self._patterns) > 1:
            yield from (file for file in files if self.selects(prefix + file.name))
        else:
            for pattern in self._patterns:
                yield from self._found.get((prefix, pattern)) or _files(member, pattern)

    def refuse_unmatched(self, collection: Collection) -> None:
        """Raise `DumpstreamError` if a pattern selects no file of *collection*.

        Files that are found here are not looked for again, if they are few.
        """
        unmatched = dict.fromkeys(self._patterns)
        if unmatched:
            for member in collection.members():
                for pattern in self._patterns:
                    found = [*islice(_files(member, pattern), FEW + 1)]
                    if found:
                        unmatched.pop(pattern, None)
                    if len(found) <= FEW and len(self._found) < FEW:
                        self._found[member.prefix, pattern] = found
        refuse_unmatched(unmatched)

    def selects(self, name: str) -> bool:
        """Whether a file of that *name*, with its prefix, is selected."""
        return self.everything or self._matching.match(name)

    def note(self, name: str) -> None:
        """Take note that there is a file of that *name*, with its prefix."""
        if self._unnoted:
            self._unnoted = [it for it in self._unnoted if not (name == it or fnmatchcase(name, it))]

    @property
    def unnoted(self) -> Sequence[str]:
        """The patterns that select none of the files that were noted."""
        return self._unnoted

    def refuse_unnoted(self) -> None:
        """Raise `DumpstreamError` if a pattern selects none of the files that were noted."""
        refuse_unmatched(self._unnoted)


def refuse_unmatched(patterns: Iterable[str]) -> None:
    """Raise `DumpstreamError` about the first of *patterns*, which select no file."""
    for pattern in patterns:
        part = "" if _WILDCARD.search(pattern) else f"; for a part of a name write '*{pattern}*'"
        raise DumpstreamError(f"no file matches {pattern!r}{part}; `dumpstream ls` shows the names")


def _files(member: Member, pattern: str) -> Iterator[StoredFile]:
    """Yield the file that is called *pattern*, and those that match it."""
    if member.capture is None:
        return
    files, prefix = member.capture.files, member.prefix
    is_pattern = _WILDCARD.search(pattern) is not None
    # A file that is called like a pattern which matches itself is among those that match.
    if pattern.startswith(prefix) and not (is_pattern and fnmatchcase(pattern, pattern)):
        exact = files.find(pattern.removeprefix(prefix))
        if exact is not None:
            yield exact
    if is_pattern:
        yield from files.matching(pattern, prefix)
