"""Whether an object has the methods of a sink, before a capture relies on it."""

import dis
import inspect
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import CodeType
from typing import Any

from dumpstream._errors import SinkError

#: The methods of a sink, and how the pipeline calls them.
_CALLS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "open": (("name",), {"offset": 0}),
    "put": (([],), {}),
    "aclose": ((), {}),
}
#: What they are given besides if they have a parameter for it.
_OPTIONAL = {"open": ("step",), "put": ("verdicts", "steps")}
#: Those of them whose result is used, and what it must be.
_RESULTS = {"open": "a SinkFile", "put": "a list with a Stored or a SinkError for each file"}

#: What a method that is not async may say that it returns.
_AWAITED = ("Awaitable", "Coroutine", "Future", "Task")


def refuse_misshapen(label: str, sink: object) -> None:
    """Raise `SinkError` if *sink*, an object or a class of them, lacks a method or has it in another shape.

    Nothing is called: what a method does in the end is seen only when it has files to store.
    """
    problems = [problem for name in _CALLS for problem in _problems(sink, name)]
    if problems:
        raise SinkError(f"the {label} sink does not fit: {'; '.join(problems)} (docs/sinks.md)")


def _problems(sink: object, name: str) -> Iterator[str]:
    method, (arguments, keywords) = getattr(sink, name, None), _CALLS[name]
    if method is None:
        yield f"it has no {name}(), write `async def {name}`"
    elif not callable(method):
        yield f"its {name} is not a method, write `async def {name}`"
    elif not _may_be_awaited(inspect.unwrap(method), name):
        yield f"its {name}() is not async, write `async def {name}`"
    elif name in _RESULTS and _returns_nothing(method):
        yield f"its {name}() returns None, it must return {_RESULTS[name]}"
    elif isinstance(sink, type) or _takes(method, arguments, keywords):
        return
    elif _takes(method, arguments, keywords | dict.fromkeys(needed := _needed(method, name))):
        yield f"its {name}() needs {' and '.join(needed)}, which must have a default: `{needed[0]}=None`"
    else:
        words = ["..."] * len(arguments) + [f"{key}=..." for key in keywords]
        yield f"its {name}() cannot be called as {name}({', '.join(words)})"


def _may_be_awaited(method: Callable[..., Any], name: str) -> bool:
    """Whether *method* is declared with ``async def``, or may well return something to await."""
    if inspect.iscoroutinefunction(method):
        return True
    if not (inspect.isfunction(method) or inspect.ismethod(method)):
        return True  # as a class, or an object that can be called
    if method.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE:
        return True
    returns = str(method.__annotations__.get("return", ""))
    return any(word in returns for word in _AWAITED) or _passes_on(method.__code__, name)


def _passes_on(code: CodeType, name: str) -> bool:
    """Whether *code* calls the method *name* of another object, as ``return self.inner.put(files)`` does."""
    return not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR) and any(
        step.argval == name and step.opname in {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
        for step in dis.get_instructions(code)
    )


def _returns_nothing(method: Callable[..., Any]) -> bool:
    """Whether *method* has no way to its end other than by returning None."""
    code = getattr(method, "__code__", None)
    if type(code) is not CodeType or not inspect.iscoroutinefunction(method):
        return False
    returned = [
        before.argval if before.opname == "LOAD_CONST" and not step.is_jump_target else ...
        for before, step in pairwise(dis.get_instructions(code))
        if step.opname == "RETURN_VALUE"
    ]
    returned += [step.argval for step in dis.get_instructions(code) if step.opname == "RETURN_CONST"]
    return bool(returned) and all(value is None for value in returned)


def _needed(method: Callable[..., Any], name: str) -> list[str]:
    """Return which optional arguments *method* cannot be called without."""
    try:
        parameters = inspect.signature(method).parameters
    except ValueError:
        return []
    return [
        it
        for it in _OPTIONAL.get(name, ())
        if it in parameters and parameters[it].default is inspect.Parameter.empty
    ]


def _takes(method: Callable[..., Any], arguments: tuple[object, ...], keywords: dict[str, object]) -> bool:
    try:
        inspect.signature(method).bind(*arguments, **keywords)
    except TypeError:
        return False
    except ValueError:  # one that is written in C has no signature
        return True
    return True
