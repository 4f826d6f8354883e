"""Sinks of the wrong shape, which are refused before a capture begins."""

from __future__ import annotations

import asyncio
import functools
import types
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

import pytest
from anyio.to_thread import run_sync

from dumpstream import RingOptions, RingSource, SinkError, Stored, open_capture
from dumpstream.sinks._shape import refuse_misshapen

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from pathlib import Path

pytestmark = pytest.mark.anyio


class Right:
    """A sink that has all methods."""

    closed = 0

    async def open(self, name: str, *, offset: int = 0) -> Any:
        raise AssertionError

    async def put(self, files: Sequence[Any]) -> Any:
        return [Stored() for _ in files]

    async def aclose(self) -> None:
        self.closed += 1


class Delegating(Right):
    """One whose method says that it returns something to await."""

    def put(self, files: Sequence[Any]) -> Coroutine[Any, Any, Any]:
        return super().put(files)


class Passing(Right):
    """One that passes on what another sink's method of this name returns, and does not say so."""

    def __init__(self) -> None:
        self._inner = Right()

    def put(self, files: Sequence[Any]):  # type: ignore[no-untyped-def]  # noqa: ANN201
        return self._inner.put(files)


def logged(method: Any) -> Any:
    @functools.wraps(method)
    def calling(*arguments: Any, **keywords: Any) -> Any:
        return method(*arguments, **keywords)

    return calling


class Decorated(Right):
    """One whose methods are called by a function of another, which keeps their names."""

    open = logged(Right.open)
    put = logged(Right.put)
    aclose = logged(Right.aclose)


class Promising(Right):
    """One that returns a task."""

    def put(self, files: Sequence[Any]) -> asyncio.Task[Any]:  # type: ignore[override]
        return asyncio.create_task(super().put(files))


class Generated(Right):
    """One whose method is a generator that may be awaited."""

    @types.coroutine
    def put(self, files: Sequence[Any]) -> Any:
        yield
        return [Stored() for _ in files]


class WithoutOpen(Right):
    open = None  # type: ignore[assignment]


class WithoutAll:
    pass


class NumberedPut(Right):
    put = 7  # type: ignore[assignment]


class SynchronousPut(Right):
    def put(self, files: Sequence[Any]) -> Any:
        return [Stored() for _ in files]


class SynchronousClose(Right):
    def aclose(self) -> None:  # type: ignore[override]
        pass


class YieldingPut(Right):
    async def put(self, files: Sequence[Any]) -> Any:
        for _ in files:
            yield Stored()


class ForgetfulPut(Right):
    async def put(self, files: Sequence[Any]) -> None:
        list(files)


class HalfForgetfulPut(Right):
    async def put(self, files: Sequence[Any]) -> Any:
        return [Stored() for _ in files] if files else None


class RaisingPut(Right):
    async def put(self, files: Sequence[Any]) -> Any:
        raise SinkError("the queue is away; start it")


class ForgetfulOpen(Right):
    async def open(self, name: str, *, offset: int = 0) -> None:
        if offset:
            return


class OpenWithoutOffset(Right):
    async def open(self, name: str) -> Any:  # type: ignore[override]
        raise AssertionError


class PutOfOne(Right):
    async def put(self, name: str, data: bytes) -> Any:  # type: ignore[override]
        raise AssertionError


class OpenOfAStep(Right):
    async def open(self, name: str, *, offset: int = 0, step: int | None) -> Any:  # type: ignore[override]
        raise AssertionError


class PutWithVerdicts(Right):
    async def put(self, files: Sequence[Any], *, verdicts: Any, steps: Any) -> Any:  # type: ignore[override]
        raise AssertionError


def capturing(path: Path, sink: object) -> Any:
    source = RingSource(RingOptions(buffer_bytes=1 << 20))
    return open_capture(path, source=source, sinks=[sink])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        (WithoutOpen(), r"^the withoutopen sink does not fit: it has no open\(\), write `async def open` "),
        (WithoutAll(), r"no open\(\), .*; it has no put\(\), .*; it has no aclose\(\), "),
        (object(), "the object sink does not fit"),
        (NumberedPut(), "its put is not a method, write `async def put`"),
        (SynchronousPut(), r"its put\(\) is not async, write `async def put`"),
        (SynchronousClose(), r"its aclose\(\) is not async, write `async def aclose`"),
        (YieldingPut(), r"its put\(\) is not async"),
        (ForgetfulPut(), r"its put\(\) returns None, it must return a list with a Stored or a SinkError for"),
        (ForgetfulOpen(), r"its open\(\) returns None, it must return a SinkFile"),
        (OpenWithoutOffset(), r"its open\(\) cannot be called as open\(..., offset=...\)"),
        (PutOfOne(), r"its put\(\) cannot be called as put\(...\)"),
        (OpenOfAStep(), r"its open\(\) needs step, which must have a default: `step=None`"),
        (PutWithVerdicts(), r"its put\(\) needs verdicts and steps, .* a default: `verdicts=None`"),
    ],
    ids=lambda it: type(it).__name__ if not isinstance(it, str) else "",
)
async def test_a_sink_of_the_wrong_shape_is_refused_when_the_capture_begins(
    tmp_path: Path, sink: Any, problem: str
) -> None:
    with pytest.raises(SinkError, match=problem):
        async with capturing(tmp_path / "run", sink):
            pytest.fail("the capture has begun")

    assert not await run_sync(lambda: [*tmp_path.iterdir()])


@pytest.mark.parametrize(
    "kind",
    [
        Right,
        Delegating,
        Passing,
        Decorated,
        Promising,
        Generated,
        HalfForgetfulPut,
        RaisingPut,
    ],
)
async def test_a_sink_of_the_right_shape_is_taken_and_closed_once(tmp_path: Path, kind: type[Right]) -> None:
    sink = kind()
    async with capturing(tmp_path / "run", sink):
        pass

    assert sink.closed == 1


def test_a_sink_that_stands_for_another_in_a_test_is_taken() -> None:
    refuse_misshapen("mock", AsyncMock(spec=Right()))


def test_a_class_of_sinks_is_judged_by_its_methods() -> None:
    refuse_misshapen("right", Right)
    with pytest.raises(SinkError, match=r"the bad sink does not fit: its put\(\) is not async"):
        refuse_misshapen("bad", SynchronousPut)
