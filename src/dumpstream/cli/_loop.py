"""The event loop of the commands that capture or recover."""

from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TypeVar, TypeVarTuple, Unpack

import anyio

from dumpstream.cli._notices import notices_said

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


def run_async(work: Callable[[Unpack[_Arguments]], Awaitable[_Result]], *arguments: *_Arguments) -> _Result:
    """Return what *work* returns; it runs on uvloop if that is installed. What is logged is said."""
    options = {"use_uvloop": find_spec("uvloop") is not None}
    with notices_said():
        return anyio.run(work, *arguments, backend_options=options)
