from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

import pytest

from dumpstream._errors import AclError, LibraryNotFoundError
from dumpstream.acl.pyacl import PyAclSource
from dumpstream.source import OnFull, RingOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.acl.conftest import Clock

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

OPTIONS = RingOptions(buffer_bytes=64 << 10, on_full=OnFull.DROP)


class Mdl:
    """What pyACL's ``acl.mdl`` does with a callback: keeps the first, calls it with a dict."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.callback: Callable[..., int] | None = None

    def dump_reg_callback(self, callback: Callable[..., int], flag: int) -> int:
        assert flag == 0
        if self.code == 0:
            self.callback = callback
        return self.code

    def dump_unreg_callback(self) -> int:
        self.callback = None
        return 0

    def call(self, *arguments: object) -> int:
        assert self.callback is not None
        return self.callback(*arguments)


class Acl:
    def __init__(self, mdl: Any) -> None:
        self.mdl = mdl


def chunk(buffer: ctypes.Array[ctypes.c_char], **changes: object) -> dict[str, Any]:
    values = {
        "file_name": "file",
        "data_buf": ctypes.addressof(buffer),
        "buf_len": len(buffer),
        "is_last_chunk": 0,
        "offset": 0,
        "flag": 0,
    }
    return {**values, **changes}


@pytest.fixture
def mdl() -> Mdl:
    return Mdl()


@pytest.fixture
async def source(mdl: Mdl) -> AsyncIterator[PyAclSource]:
    async with PyAclSource(Acl(mdl), OPTIONS) as source:
        yield source


@pytest.fixture
def buffer() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(b"payload", 7)


async def test_one_dict_is_a_chunk(
    source: PyAclSource, mdl: Mdl, buffer: ctypes.Array[ctypes.c_char]
) -> None:
    result = mdl.call(chunk(buffer, offset=3, is_last_chunk=1, flag=9))
    buffer.raw = b"changed"

    (received,) = (await source.receive()).chunks

    assert result == 0
    assert (received.name, bytes(received), received.offset) == ("file", b"payload", 3)
    assert (received.is_last, received.flag) == (True, 9)


async def test_dict_and_length_are_a_chunk_too(
    source: PyAclSource, mdl: Mdl, buffer: ctypes.Array[ctypes.c_char]
) -> None:
    assert mdl.call(chunk(buffer), 4120 + 7) == 0

    (received,) = (await source.receive()).chunks

    assert bytes(received) == b"payload"


@pytest.mark.parametrize(("given", "meant"), [(2**64 - 1, -1), (-1, -1), (0, 0), (1 << 39, 1 << 39)])
async def test_offset_may_come_unsigned(
    source: PyAclSource, mdl: Mdl, buffer: ctypes.Array[ctypes.c_char], given: int, meant: int
) -> None:
    assert mdl.call(chunk(buffer, offset=given)) == 0

    (received,) = (await source.receive()).chunks

    assert received.offset == meant


@pytest.mark.parametrize("name", ["dir/\u00fc", "dir/\u00fc".encode(), "dir/\udcff", b"dir/\xff"])
async def test_name_may_be_text_or_bytes(
    source: PyAclSource, mdl: Mdl, buffer: ctypes.Array[ctypes.c_char], name: str | bytes
) -> None:
    assert mdl.call(chunk(buffer, file_name=name)) == 0

    (received,) = (await source.receive()).chunks

    expected = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
    assert received.name.encode("utf-8", "surrogateescape") == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"file_name": None},
        {"file_name": "\ud800"},
        {"data_buf": "address"},
        {"buf_len": None},
        {"buf_len": -1},
        {"buf_len": 1 << 70},
        {"offset": "far"},
        {"offset": 1 << 70},
        {"flag": 1 << 40},
    ],
)
async def test_value_that_makes_no_sense_is_counted(
    source: PyAclSource, mdl: Mdl, buffer: ctypes.Array[ctypes.c_char], changes: dict[str, object]
) -> None:
    assert mdl.call(chunk(buffer, **changes)) != 0

    assert source.statistics().losses == {"bad_name": (1, 0)}


@pytest.mark.parametrize("missing", ["file_name", "data_buf", "buf_len", "is_last_chunk", "offset", "flag"])
async def test_missing_key_is_counted(
    source: PyAclSource, mdl: Mdl, buffer: ctypes.Array[ctypes.c_char], missing: str
) -> None:
    incomplete = chunk(buffer)
    del incomplete[missing]

    assert mdl.call(incomplete) != 0

    assert source.statistics().losses == {"bad_name": (1, 0)}


async def test_no_dict_at_all_is_counted(source: PyAclSource, mdl: Mdl) -> None:
    assert mdl.call(None) != 0

    assert source.statistics().losses == {"bad_name": (1, 0)}


async def test_offset_far_below_zero_is_a_loss_by_name(
    source: PyAclSource, mdl: Mdl, buffer: ctypes.Array[ctypes.c_char]
) -> None:
    assert mdl.call(chunk(buffer, offset=2**64 - 5)) != 0

    assert source.statistics().losses == {"bad_offset": (1, 7)}


async def test_quiet_waits_for_the_chunks_to_end(
    source: PyAclSource, mdl: Mdl, buffer: ctypes.Array[ctypes.c_char], clock: Clock
) -> None:
    def produce() -> None:
        if len(clock.waits) <= 10:
            mdl.call(chunk(buffer))

    clock.meanwhile = produce
    await source.quiet(0.02)

    assert source.statistics().callbacks == 10
    assert clock.waits == [0.02] * 11


async def test_callback_is_unregistered_at_the_end(mdl: Mdl) -> None:
    async with PyAclSource(Acl(mdl), OPTIONS):
        assert mdl.callback is not None

    assert mdl.callback is None


async def test_callback_stays_to_refuse_what_comes_when_the_rest_is_discarded(
    mdl: Mdl, buffer: ctypes.Array[ctypes.c_char]
) -> None:
    async with PyAclSource(Acl(mdl), OPTIONS) as source:
        source.discard()

    assert mdl.call(chunk(buffer)) != 0


async def test_unregistering_is_left_to_a_thread_and_may_fail_without_keeping_the_ring(mdl: Mdl) -> None:
    threads = []

    def refuse() -> int:
        threads.append(threading.current_thread())
        raise OSError("no more")

    mdl.dump_unreg_callback = refuse  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no more"):
        async with PyAclSource(Acl(mdl), OPTIONS):
            pass

    assert threads != [threading.current_thread()]
    async with PyAclSource(Acl(Mdl()), OPTIONS):
        pass


@pytest.mark.parametrize(
    ("broken", "error"),
    [(Mdl(code=100001), AclError), (object(), LibraryNotFoundError)],
    ids=["refuses", "lacks"],
)
async def test_registration_that_fails_leaves_the_ring_to_others(
    mdl: Mdl, broken: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"acl\.mdl\.dump_reg_callback"):
        await PyAclSource(Acl(broken), OPTIONS).__aenter__()

    async with PyAclSource(Acl(mdl), OPTIONS):
        assert mdl.callback is not None
