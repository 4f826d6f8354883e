"""Keys: which keys of objects are taken, in memory that does not grow."""

from collections.abc import Iterator

from xxhash import xxh3_128_intdigest

from dumpstream.names import clean_name, free_number, hashed_name

#: Stores take 1024 bytes, and a number and a suffix are added.
_LONGEST_KEY_BYTES = 1000
_BITS = 1 << 26
_LEAST_BITS = 1 << 20
_HASHES = 4


class Keys:
    """Gives every file a key of its own.

    Taken keys are remembered in a Bloom filter of 8 MiB, or a share of that. It may take a free key for a
    taken one (at a million keys in 8 MiB, one in 100,000), and the file gets the next number then; it never
    takes a taken key for a free one.

    Args:
        root: the first component of every key.
        suffix: ends every key.
        prefix_bytes: what the prefix of the store adds to the length of a key.
        among: how many captures share the memory.
    """

    def __init__(self, root: str, *, suffix: str, prefix_bytes: int = 0, among: int = 1) -> None:
        self._root, self._suffix = root, suffix
        self._quota = _LONGEST_KEY_BYTES - prefix_bytes - len(root.encode()) - 1
        self._bits = bytearray(max(_BITS // among, _LEAST_BITS) // 8)

    def add(self, key: str) -> None:
        """Remember that *key* is taken."""
        for byte, mask in self._bits_of(key):
            self._bits[byte] |= mask

    def take(self, name: str, *, first: int = 1) -> str:
        """Take a free key for the file *name*, with a number of at least *first*, and return it."""
        stem = "/".join(clean_name(name))
        # Some stores take a backslash for a slash, which makes two keys one.
        if "\\" in stem or len(stem.encode()) > self._quota:
            stem = hashed_name(name).replace("\\", "_")
        key = self._numbered(stem, first)
        if self._is_taken(key):
            key = self._numbered(
                stem, free_number(lambda number: self._is_taken(self._numbered(stem, number)), first)
            )
        self.add(key)
        return key

    def _is_taken(self, key: str) -> bool:
        return all(self._bits[byte] & mask for byte, mask in self._bits_of(key))

    def _numbered(self, stem: str, number: int) -> str:
        numbered = stem if number == 1 else f"{stem}.{number}"
        return f"{self._root}/{numbered}{self._suffix}"

    def _bits_of(self, key: str) -> Iterator[tuple[int, int]]:
        digest = xxh3_128_intdigest(key.encode())
        for _ in range(_HASHES):
            bit = digest % (8 * len(self._bits))
            yield bit >> 3, 1 << (bit & 7)
            digest >>= 26
