"""Producer: chunks made in Python, and handed over by a native thread that plays the runtime's."""

from __future__ import annotations

import ctypes
import mmap
import os
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from compiled import load_compiled
from dumpstream._native import callback_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_NUMBER_DIGITS = 8

#: Where the payload of a chunk starts.
PAYLOAD_AT = 4116
#: The type of the function given to ``acldumpRegCallback``.
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)


class ChunkHead(ctypes.Structure):
    """The fixed part of a chunk, as the runtime lays it out."""

    _fields_ = (
        ("file_name", ctypes.c_char * 4096),
        ("length", ctypes.c_uint32),
        ("is_last", ctypes.c_uint32),
        ("offset", ctypes.c_int64),
        ("flag", ctypes.c_int32),
    )


class _Walk(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_uint64), ("at", ctypes.c_uint64))


class _Production(ctypes.Structure):
    _fields_ = (
        ("target", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("chunks", ctypes.c_void_p),
        ("chunk_count", ctypes.c_uint64),
        ("chunks_per_file", ctypes.c_uint64),
        ("calls", ctypes.c_uint64),
        ("number_at", ctypes.c_uint64),
        ("gap_ns", ctypes.c_uint64),
        ("call_ns", ctypes.c_void_p),
        ("elapsed_ns", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
    )


class Chunks:
    """Chunks in the runtime's layout, in touched memory, which are handed over in turn.

    Args:
        payloads: what each of them carries.
        per_file: how many of them make a file.
        prefix: what every name starts with; the number of the file follows.
    """

    def __init__(
        self, payloads: Iterable[bytes | memoryview], *, per_file: int = 1, prefix: str = "/dump/op."
    ) -> None:
        self.per_file = per_file
        self.number_at = len(os.fsencode(prefix))
        self._name = os.fsencode(prefix) + b"0" * _NUMBER_DIGITS
        self._buffers = [self._lay_out(payload) for payload in payloads]
        self.lengths = [len(buffer) - PAYLOAD_AT for buffer in self._buffers]
        self.addresses = np.array([buffer.ctypes.data for buffer in self._buffers], dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._buffers)

    def _lay_out(self, payload: bytes | memoryview) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        buffer = np.zeros(PAYLOAD_AT + len(payload), dtype=np.uint8)
        head = ChunkHead.from_buffer(buffer.data)
        head.file_name = self._name
        head.length = len(payload)
        head.offset = -1
        buffer[PAYLOAD_AT:] = np.frombuffer(payload, dtype=np.uint8)
        return buffer


def cut(data: bytes, size: int) -> list[memoryview]:
    """Return *data* in payloads of *size* bytes."""
    view = memoryview(data)
    return [view[start : start + size] for start in range(0, len(data), size)]


class Target(NamedTuple):
    """What takes the chunks: addresses of a C function and its context, and what keeps them valid."""

    function: int
    context: int
    kept: object


def ring_callback() -> Target:
    """Hand the chunks to dumpstream's callback."""
    return _target("bench_call", callback_address())


def python_callback(callback: Any) -> Target:
    """Hand the chunks to *callback*, a `CALLBACK`."""
    return _target("bench_call", ctypes.cast(callback, ctypes.c_void_p).value or 0, callback)


def bare_copy(size: int) -> Target:
    """Copy the payloads through a touched buffer of *size* bytes."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    buffer = ctypes.c_char.from_buffer(mmap.mmap(-1, size, flags=flags))
    walk = _Walk(base=ctypes.addressof(buffer), size=size)
    return _target("bench_copy", ctypes.addressof(walk), walk, buffer)


def file_append(path: Path) -> Target:
    """Open *path*, append the payload and close it, for every chunk."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    return _target("bench_append", ctypes.addressof(name), name)


def _target(function: str, context: int, *kept: object) -> Target:
    library = _library()
    return Target(ctypes.cast(library[function], ctypes.c_void_p).value or 0, context, (library, kept))


class Produced(NamedTuple):
    """What a production took."""

    seconds: float  #: from before the first call to after the last gap
    call_ns: Sequence[int]  #: of every call, less the cost of the clock; empty unless asked for


def produce(target: Target, chunks: Chunks, calls: int, *, gap_ns: int = 0, timed: bool = False) -> Produced:
    """Hand over *calls* chunks on a native thread, and wait for its end without the GIL.

    Args:
        target: what takes them.
        chunks: handed over in turn, and again from the first.
        calls: how many to hand over.
        gap_ns: how long to wait after each call.
        timed: whether to keep the time of every call.

    Raises:
        OSError: the thread cannot be made.
        RuntimeError: the target refused a chunk.
    """
    library = _library()
    call_ns = np.zeros(calls if timed else 0, dtype=np.uint64)
    production = _Production(
        target=target.function,
        context=target.context,
        chunks=chunks.addresses.ctypes.data,
        chunk_count=len(chunks),
        chunks_per_file=chunks.per_file,
        calls=calls,
        number_at=chunks.number_at,
        gap_ns=gap_ns,
        call_ns=call_ns.ctypes.data if timed else None,
    )
    if error := library.bench_produce(ctypes.byref(production)):
        raise OSError(error, os.strerror(error))
    if production.refused:
        raise RuntimeError(f"{production.refused} of {calls} chunks were refused")
    cost = library.bench_clock_cost_ns()
    return Produced(production.elapsed_ns / 1e9, np.maximum(call_ns.astype(np.int64) - cost, 0).tolist())


@cache
def _library() -> ctypes.CDLL:
    library = load_compiled("producer.c")
    library.bench_produce.argtypes = [ctypes.POINTER(_Production)]
    library.bench_clock_cost_ns.restype = ctypes.c_uint64
    return library
