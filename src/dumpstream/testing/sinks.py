"""The test that every sink must pass."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, cast

import anyio
from xxhash import xxh3_64_hexdigest

from dumpstream._errors import SinkError
from dumpstream.sinks import Sink, Stored, WholeFile, takes_repeated_names

Read: TypeAlias = Callable[[str], Awaitable[Sequence[bytes]]]

_MANY = 300
_LARGE = bytes(range(256)) * (20 << 10)  # 5 MiB

#: Names that a runtime may give; each is a file of its own.
HOSTILE_NAMES = (
    "/absolute/name",
    "relative//with///empty/./components",
    "../outside",
    "inside/../../../outside",
    "..",
    "/",
    "./.",
    "10.0.0.1:/remote/path",
    "new\nline",
    "escape \x1b[31m",
    "not UTF-8 \udcff",
    "not UTF-8 \udcfe",
    "名前/ünï cödé",
    "-option",
    "long" * 100,
    "long" * 100 + "er",
    "deep/" * 800 + "down",
    "clash",
    "clash/below",
    "clash.zst/below",
    "clash.zst",
    "clash.dsz/below",
    "clash.dsz",
    "clash.raw/below",
    "clash.raw",
)


async def check_sink(make_sink: Callable[[], Sink], read: Read) -> None:
    """Check that the sinks *make_sink* returns keep every promise of `Sink` and `SinkFile`.

    Args:
        make_sink: returns a new sink; called once for each promise. The sinks may share a destination.
        read: returns what the newest sink shows under a name: the bytes of every part, in the order of the
            commits; nothing if the file does not exist.

    Raises:
        AssertionError: a promise is broken; the message says which.
    """
    for check in _CHECKS:
        sink = make_sink()
        await check(sink, read)
        await sink.aclose()
        await sink.aclose()  # a second time, which does nothing


async def _check_invisible_before_commit(sink: Sink, read: Read) -> None:
    for size in (3, len(_LARGE)):
        name = f"invisible/{size}"

        file = await sink.open(name)
        await file.write([_LARGE[:size]])
        await _expect(read, name, [], "nothing is visible before commit")

        await file.commit()
        await _expect(read, name, [_LARGE[:size]], "commit makes the file visible")


async def _check_pieces_in_order(sink: Sink, read: Read) -> None:
    pieces = [b"first", b"", b"second", _LARGE, b"third", _LARGE[:70_000], b"last"]

    file = await sink.open("ordered")
    await file.write(pieces[:3])
    await file.write([])
    await file.write(pieces[3:])
    stored = await file.commit()

    await _expect(read, "ordered", [b"".join(pieces)], "pieces are appended in order")
    _expect_stored(stored, b"".join(pieces))


async def _check_bytes_copied(sink: Sink, read: Read) -> None:
    for size in (3, len(_LARGE)):
        name, buffer = f"copied/{size}", bytearray(_LARGE[:size])

        file = await sink.open(name)
        await file.write([memoryview(buffer)])
        buffer[:] = bytes(size)
        await file.commit()
        buffer[:] = _LARGE[:size]
        await sink.put([WholeFile(name, memoryview(buffer))])
        buffer[:] = bytes(size)

        await _expect(read, name, [_LARGE[:size]] * 2, "buffers are free for reuse when a call returns")


async def _check_abort_leaves_nothing(sink: Sink, read: Read) -> None:
    for size in (0, 3, len(_LARGE)):
        name = f"aborted/{size}"

        file = await sink.open(name)
        await file.write([_LARGE[:size]])
        await file.abort()
        await _expect(read, name, [], "abort leaves nothing")

        await sink.put([WholeFile(name, b"again")])
        await _expect(read, name, [b"again"], "the name of an aborted file can be used again")


async def _check_abort_after_failed_write(sink: Sink, read: Read) -> None:
    for begin in (b"", b"abc", _LARGE):
        name = f"failed/{len(begin)}"

        file = await sink.open(name)
        await file.write([begin])
        try:
            await file.write([b"abc", cast("bytes", object())])
        except Exception:  # noqa: BLE001 - a sink may raise anything
            await file.abort()
        else:
            raise AssertionError("write raises if it cannot store a piece")

        await _expect(read, name, [], "abort after a failed write leaves nothing")


async def _check_name_again(sink: Sink, read: Read) -> None:
    parts = [b"one", b"two", b"three", b"four"]

    await sink.put([WholeFile("again", parts[0])])
    await sink.put([WholeFile("again", parts[1])])
    for part, offset in zip(parts[2:], (0, 100), strict=True):
        await _store(sink, "again", [part], offset=offset)

    await _expect(read, "again", parts, "a further file of the same name goes beside the first")


async def _check_name_again_in_one_call(sink: Sink, read: Read) -> None:
    if not takes_repeated_names(sink):
        return
    parts = [b"%d" % number * (1 + number % 4 * 70_000) for number in range(24)]
    names = ["repeated/one", "repeated/two", "elsewhere"]

    await sink.put([WholeFile(names[number % 3], part) for number, part in enumerate(parts)])

    for number, name in enumerate(names):
        await _expect(read, name, parts[number::3], "files of one name in one call of put keep their order")


async def _check_empty_files(sink: Sink, read: Read) -> None:
    await (await sink.open("empty/unwritten")).commit()
    _expect_stored(await _store(sink, "empty/written", [b"", b""]), b"")
    results = await sink.put([WholeFile("empty/whole", b"")])

    _expect_stored(results[0], b"")
    for name in ("empty/unwritten", "empty/written", "empty/whole"):
        await _expect(read, name, [b""], "an empty file is a file")


async def _check_put_many(sink: Sink, read: Read) -> None:
    files = [WholeFile(f"many/{number % 7}/{number}", b"%d" % number * number) for number in range(_MANY)]
    files.insert(5, WholeFile("many/large", _LARGE))

    results = await sink.put(files)

    _expect_true(len(results) == len(files), "put returns one result for each file")
    for file, result in zip(files, results, strict=True):
        _expect_stored(result, bytes(file.data))
        await _expect(read, file.name, [bytes(file.data)], "put stores every file under its own name")
    _expect_true(list(await sink.put([])) == [], "put of nothing returns nothing")


async def _check_many_open_at_once(sink: Sink, read: Read) -> None:
    names = [f"open/{number}" for number in range(_MANY)]

    files = [await sink.open(name) for name in names]
    for letter in (b"a", b"b", b"c"):
        for file in files:
            await file.write([letter, letter])
    for file in files:
        await file.commit()

    for name in names:
        await _expect(read, name, [b"aabbcc"], "files may be written in turns")


async def _check_calls_overlap(sink: Sink, read: Read) -> None:
    async def put(name: str) -> None:
        await sink.put([WholeFile(f"{name}/{number}", name.encode()) for number in range(_MANY)])

    async with anyio.create_task_group() as group:
        for number in range(4):
            name = f"overlap/written/{number}"
            group.start_soon(_store, sink, name, [name.encode(), _LARGE])
            group.start_soon(put, f"overlap/put/{number}")

    for number in range(4):
        name = f"overlap/written/{number}"
        await _expect(read, name, [name.encode() + _LARGE], "calls for different files may overlap")
        name = f"overlap/put/{number}"
        await _expect(read, f"{name}/{_MANY - 1}", [name.encode()], "calls of put may overlap")


async def _check_hostile_names(sink: Sink, read: Read) -> None:
    for number, name in enumerate(HOSTILE_NAMES):
        if number % 2:
            _expect_stored((await sink.put([WholeFile(name, ascii(name).encode())]))[0], None)
        else:
            await _store(sink, name, [ascii(name).encode()])

    for name in HOSTILE_NAMES:
        await _expect(read, name, [ascii(name).encode()], f"the name {name!r:.60} is a file of its own")


_CHECKS = (
    _check_invisible_before_commit,
    _check_pieces_in_order,
    _check_bytes_copied,
    _check_abort_leaves_nothing,
    _check_abort_after_failed_write,
    _check_name_again,
    _check_name_again_in_one_call,
    _check_empty_files,
    _check_put_many,
    _check_many_open_at_once,
    _check_calls_overlap,
    _check_hostile_names,
)


async def _store(sink: Sink, name: str, pieces: Sequence[bytes], *, offset: int = 0) -> Stored:
    file = await sink.open(name, offset=offset)
    await file.write(pieces)
    return await file.commit()


async def _expect(read: Read, name: str, parts: Sequence[bytes], promise: str) -> None:
    found = [bytes(part) for part in await read(name)]
    if found != list(parts):
        raise AssertionError(f"{promise}: expected {_brief(parts)} under {name!r:.60}, found {_brief(found)}")


def _expect_true(fact: bool, promise: str) -> None:  # noqa: FBT001 - the fact is what is expected
    if not fact:
        raise AssertionError(promise)


def _expect_stored(result: Stored | SinkError, data: bytes | None) -> None:
    """Expect that *result* is a success, with the hash of *data* unless that is None."""
    if not isinstance(result, Stored):
        raise AssertionError(f"a working sink stores what it is given: {result!r}")  # noqa: TRY004 - a broken promise
    if data is not None and result.xxh3 is not None:
        _expect_true(result.xxh3 == xxh3_64_hexdigest(data), "xxh3 is that of the original bytes")


def _brief(parts: Sequence[bytes]) -> str:
    return f"[{', '.join(f'{part[:20]!r} ({len(part)} bytes)' for part in parts)}]"
