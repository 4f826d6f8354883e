"""Names of dump files, taken apart: which operator, of which model, when and where."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

#: The type and the name that records of overflows have for an operator.
OVERFLOW_OPERATOR = ("Opdebug", "Node_OpDebug")

_N = "[0-9]{1,20}"
_DEVICE = re.compile("[0-9]{1,5}")
_NUMBER = re.compile(_N)
_TIME = re.compile("[0-9]{14}")

_OPERATOR = re.compile(
    rf"(?P<op_type>[^./]+)\.(?P<op_name>[^./]+)\.(?P<task>{_N})(\.(?P<stream>{_N}))?\.(?P<timestamp>{_N})"
    rf"(?P<ffts>\.{_N}\.(?P<context>{_N})\.(?P<thread>{_N})\.(?P<device>{_N}))?"
)
# Nearly all names look like this, and none that does fits what is tried before `_OPERATOR`: exceptions have
# fewer parts or more, and a captured graph has a number where the operator's name is, which is none here.
_COMMON = re.compile(rf"([^./]+)\.(?!{_N}\.)([^./]+)\.({_N})\.({_N})\.({_N})")
_ACLNN_TYPE = re.compile(r".+_[0-9]+_L[02]")
# The runtime leaves dots and slashes in the names of a captured graph, so only the end of one is certain.
_GRAPH_END = re.compile(
    rf"(?P<lead>.+)\.(?P<number>{_N})\.(?P<task>{_N})\.(?P<stream>{_N})\.(?P<timestamp>[0-9]{{13,20}})"
    rf"(\.FFTSPLUS\.(?P<context>{_N})\.(?P<thread>{_N})\.{_N})?"
)

_EXCEPTION_DIRECTORY = ["extra-info", "data-dump"]
_CORE = rf"\.(?P<core_type>[^./]+)\.(?P<core_id>{_N})"
_CALENDAR = "(?P<timestamp>[0-9]{17})"  # YYYYMMDDHHMMSSmmm, which only exception dumps have
# Wherever the file lies, and only in the directory of exception dumps.
_EXCEPTION_ANYWHERE = [
    re.compile(rf"exception_info\.(?P<stream>{_N})\.(?P<task>{_N})({_CORE})?\.(?P<timestamp>{_N})"),
    re.compile(rf"(?P<op_name>.+)\.(?P<stream>{_N})\.(?P<task>{_N})\.(?P<timestamp>{_N})\.core"),
    re.compile(rf".+\.custom\.(?P<timestamp>{_N})"),
    re.compile(rf"(?P<op_type>[^./]+)\.(?P<op_name>[^./]+)\.(?P<task>{_N})\.{_CALENDAR}"),
]
_EXCEPTION_THERE = [
    re.compile(rf"(?P<op_name>.+)\.(?P<stream>{_N})\.(?P<task>{_N}){_CORE}\.(?P<timestamp>{_N})"),
    re.compile(rf"(?P<op_type>[^./]+)\.(?P<op_name>[^./]+)\.(?P<task>{_N})\.(?P<timestamp>{_N})"),
]

_TEXT_SUFFIX, _ZSTD_SUFFIX = ".csv", ".zst"
_MODEL_LEVELS = 3
_KNOWN_DIRECTORIES, _KNOWN_TYPES = 64, 1024  # what is remembered of the names before


class Scheme(StrEnum):
    """How CANN put a name together."""

    MODEL = "model"  #: an operator of a model
    FFTS = "ffts"  #: a thread of one, split over several by FFTS+
    ACLNN = "aclnn"  #: a single operator
    GRAPH = "graph"  #: an operator of a captured ACL graph
    STATISTICS = "statistics"  #: the runtime's own statistics of any of these
    OVERFLOW = "overflow"  #: what detected an overflow
    EXCEPTION = "exception"  #: what was there when an operator failed


class OpName(NamedTuple):
    """What the name of a dump file says; None where it says nothing."""

    scheme: Scheme | None = None
    op_type: str | None = None
    op_name: str | None = None  #: the kernel's, of an exception that names no operator
    task: int | None = None
    stream: int | None = None
    #: Microseconds since the epoch, by the device's clock; of most exceptions YYYYMMDDHHMMSSmmm instead.
    timestamp: int | None = None
    device: int | None = None
    model: str | None = None
    model_id: int | None = None
    iteration: int | None = None
    context: int | None = None  #: of FFTS+
    thread: int | None = None  #: of FFTS+
    number: int | None = None  #: how many dumps of the captured graph came before
    core_type: str | None = None  #: of an exception
    core_id: int | None = None  #: of an exception


def parse_name(name: str) -> OpName:
    """Return what *name* says: a file name, or better a path, as the directories name device and model.

    A ``.zst`` behind it is ignored. A name by no known scheme gives an `OpName` that says nothing.
    """
    directory, _, last = name.rpartition("/")
    match = _COMMON.fullmatch(last)
    if match is not None:
        op_type, op_name, task, stream, timestamp = match.groups()
        device, model, model_id, iteration = _known_directory(directory)
        scheme = _scheme(op_type, op_name)
        # By position: names are what a capture has most of, and keywords take twice as long.
        return OpName(
            scheme,
            op_type,
            op_name,
            int(task),
            int(stream),
            int(timestamp),
            device,
            model,
            model_id,
            iteration,
        )
    components = _components(name.removesuffix(_ZSTD_SUFFIX))
    if not components:
        return OpName()
    *parents, base = components
    text = base.endswith(_TEXT_SUFFIX)
    if text:
        base = base.removesuffix(_TEXT_SUFFIX)
    parsed = _exception(parents, base) or _graph(parents, base) or _operator(parents, base)
    if text and parsed is not None:
        parsed = parsed._replace(scheme=Scheme.STATISTICS)
    return parsed or OpName()


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


def _operator(parents: list[str], base: str) -> OpName | None:
    match = _OPERATOR.fullmatch(base)
    if match is None or (match["ffts"] and not match["stream"]):
        return None
    op_type, op_name = match["op_type"], match["op_name"]
    scheme = Scheme.FFTS if match["ffts"] else _scheme(op_type, op_name)
    device, model, model_id, iteration = _directories(parents)
    return OpName(
        scheme=scheme,
        op_type=op_type,
        op_name=op_name,
        task=int(match["task"]),
        stream=_int(match["stream"]),
        timestamp=int(match["timestamp"]),
        device=_int(match["device"]) if device is None else device,
        model=model,
        model_id=model_id,
        iteration=iteration,
        context=_int(match["context"]),
        thread=_int(match["thread"]),
    )


def _scheme(op_type: str, op_name: str) -> Scheme:
    if (op_type, op_name) == OVERFLOW_OPERATOR:
        return Scheme.OVERFLOW
    return Scheme.ACLNN if _is_aclnn(op_type) else Scheme.MODEL


@lru_cache(_KNOWN_TYPES)
def _is_aclnn(op_type: str) -> bool:
    return _ACLNN_TYPE.fullmatch(op_type) is not None


@lru_cache(_KNOWN_DIRECTORIES)
def _known_directory(path: str) -> tuple[int | None, str | None, int | None, int | None]:
    """Return what `_directories` does, at once if it is one of the last few: files come by the directory."""
    return _directories(_components(path))


def _directories(parents: list[str]) -> tuple[int | None, str | None, int | None, int | None]:
    """Return device, model, model id and iteration.

    They follow the directory named by the time of the run. All but the device may be missing: a lone number
    is the id, since every model has one, and two are id and iteration.
    """
    for depth in range(2, 3 + _MODEL_LEVELS):
        levels = parents[-depth:]
        if len(levels) == depth and _TIME.fullmatch(levels[0]) and _DEVICE.fullmatch(levels[1]):
            break
    else:
        return None, None, None, None
    device, rest = int(levels[1]), list(levels[2:])
    model = None
    if len(rest) == _MODEL_LEVELS or (rest and not _NUMBER.fullmatch(rest[0])):
        model = rest.pop(0)
    numbers = [int(level) if _NUMBER.fullmatch(level) else None for level in rest]
    model_id, iteration = [*numbers, None, None][:2]
    return device, model, model_id, iteration


def _graph(parents: list[str], base: str) -> OpName | None:
    match = _GRAPH_END.fullmatch(base)
    if match is None:
        return None
    levels = [*parents, match["lead"]]
    begin = _operator_begins(levels)
    op_type, _, op_name = "/".join(levels[begin:]).partition(".")
    if not op_type or not op_name:
        return None
    return OpName(
        scheme=Scheme.GRAPH,
        op_type=op_type,
        op_name=op_name,
        task=int(match["task"]),
        stream=int(match["stream"]),
        timestamp=int(match["timestamp"]),
        device=int(levels[begin - 1]) if begin and _DEVICE.fullmatch(levels[begin - 1]) else None,
        context=_int(match["context"]),
        thread=_int(match["thread"]),
        number=int(match["number"]),
    )


def _operator_begins(levels: list[str]) -> int:
    """Return which of *levels* names the operator's type; the last, unless there are slashes in its name."""
    last = len(levels) - 1
    places = (i for i in range(last, 0, -1) if "." in levels[i] and _DEVICE.fullmatch(levels[i - 1]))
    return next(places, last)


def _exception(parents: list[str], base: str) -> OpName | None:
    there = parents[-3:-1] == _EXCEPTION_DIRECTORY
    for pattern in [*_EXCEPTION_ANYWHERE, *(_EXCEPTION_THERE if there else [])]:
        match = pattern.fullmatch(base)
        if match is not None:
            found = match.groupdict()
            return OpName(
                scheme=Scheme.EXCEPTION,
                op_type=found.get("op_type"),
                op_name=found.get("op_name"),
                task=_int(found.get("task")),
                stream=_int(found.get("stream")),
                timestamp=_int(found.get("timestamp")),
                device=int(parents[-1]) if there and _DEVICE.fullmatch(parents[-1]) else None,
                core_type=found.get("core_type"),
                core_id=_int(found.get("core_id")),
            )
    return None


def _int(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
