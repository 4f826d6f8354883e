"""The names of dump files: which operator of which model was dumped, when and where."""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from dumpstream.codec import without_suffix
from dumpstream.format.text import TEXT_SUFFIX

#: The type and the name of the operator in the names of overflow records.
OVERFLOW_OPERATOR = ("Opdebug", "Node_OpDebug")

_N = "[0-9]{1,20}"
_DEVICE = re.compile("[0-9]{1,5}")
_NUMBER = re.compile(_N)
_TIME = re.compile("[0-9]{14}")

_OPERATOR = re.compile(
    rf"(?P<op_type>[^./]+)\.(?P<op_name>[^./]+)\.(?P<task>{_N})(\.(?P<stream>{_N}))?\.(?P<timestamp>{_N})"
    rf"(\.{_N}\.(?P<context>{_N})\.(?P<thread>{_N})\.(?P<device>{_N}))?"
)
# Nearly all names look like this. Such a name does not fit what is tried before `_OPERATOR`: exceptions have
# another number of parts, and a captured graph has a number where this pattern does not allow one.
_COMMON = re.compile(rf"([^./]+)\.(?!{_N}\.)([^./]+)\.({_N})\.({_N})\.({_N})")
_ACLNN_TYPE = re.compile(r".+_[0-9]+_L[02]")
# The runtime leaves dots and slashes in the names of a captured graph, so only the end of a name is certain.
_GRAPH_END = re.compile(
    rf".+\.(?P<number>{_N})\.(?P<task>{_N})\.(?P<stream>{_N})\.(?P<timestamp>[0-9]{{13,20}})"
    rf"(\.FFTSPLUS\.(?P<context>{_N})\.(?P<thread>{_N})\.{_N})?"
)

_EXCEPTION_DIRECTORY = ["extra-info", "data-dump"]
_CORE = rf"\.(?P<core_type>[^./]+)\.(?P<core_id>{_N})"
_CALENDAR = "(?P<timestamp>[0-9]{17})"  # YYYYMMDDHHMMSSmmm, which only exception dumps have
# In any directory, and only in the directory of exception dumps.
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

_IN_FILE_NAMES = str.maketrans(dict.fromkeys(" ./\\", "_"))
_MODEL_LEVELS = 3
_TEXT_FIELDS = {"op_type", "op_name", "core_type"}
_KNOWN_DIRECTORIES, _KNOWN_TYPES = 64, 1024  # how many are remembered


class Scheme(StrEnum):
    """How CANN put a name together."""

    MODEL = "model"  #: an operator of a model
    FFTS = "ffts"  #: one of the threads over which FFTS+ splits such an operator
    ACLNN = "aclnn"  #: a single operator
    GRAPH = "graph"  #: an operator of a captured ACL graph
    STATISTICS = "statistics"  #: the runtime's own statistics of one of these
    OVERFLOW = "overflow"  #: the record of an overflow
    EXCEPTION = "exception"  #: what the device had in memory when an operator failed


class OpName(NamedTuple):
    """What the name of a dump file says; None for what it does not say."""

    scheme: Scheme | None = None
    op_type: str | None = None
    op_name: str | None = None  #: in an exception without an operator, the kernel's name
    task: int | None = None
    stream: int | None = None
    #: Microseconds since the epoch, by the device's clock; most exceptions have YYYYMMDDHHMMSSmmm instead.
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
    """Return what *name* says: a file name, or better a path, because directories name device and model.

    The suffix of a stored file at its end, such as ``.zst``, is ignored. For a name of an unknown scheme,
    every field is None.
    """
    directory, _, last = name.rpartition("/")
    match = _COMMON.fullmatch(last)
    if match is not None:
        op_type, op_name, task, stream, timestamp = match.groups()
        scheme, place = _scheme(op_type, op_name), _known_directory(directory)
        # By position, which takes half as long as keywords: a capture has many names.
        return OpName(scheme, op_type, op_name, int(task), int(stream), int(timestamp), *place)
    components = _components(without_suffix(name))
    if not components:
        return OpName()
    *parents, base = components
    text = base.endswith(TEXT_SUFFIX)
    if text:
        base = base.removesuffix(TEXT_SUFFIX)
    parsed = _exception(parents, base) or _graph(parents, base) or _operator(parents, base)
    if text and parsed is not None:
        parsed = parsed._replace(scheme=Scheme.STATISTICS)
    return parsed or OpName()


def as_in_file_names(name: str) -> str:
    """Return the *name* of an operator, a type or a model as the runtime has it in names of files."""
    return name.translate(_IN_FILE_NAMES)


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


def _operator(parents: list[str], base: str) -> OpName | None:
    match = _OPERATOR.fullmatch(base)
    if match is None or (match["context"] and not match["stream"]):
        return None
    scheme = Scheme.FFTS if match["context"] else _scheme(match["op_type"], match["op_name"])
    device, model, model_id, iteration = _directories(parents)
    said = _named(scheme, match, model=model, model_id=model_id, iteration=iteration)
    return said if device is None else said._replace(device=device)


def _scheme(op_type: str, op_name: str) -> Scheme:
    if (op_type, op_name) == OVERFLOW_OPERATOR:
        return Scheme.OVERFLOW
    return Scheme.ACLNN if _is_aclnn(op_type) else Scheme.MODEL


@lru_cache(_KNOWN_TYPES)
def _is_aclnn(op_type: str) -> bool:
    return _ACLNN_TYPE.fullmatch(op_type) is not None


@lru_cache(_KNOWN_DIRECTORIES)
def _known_directory(path: str) -> tuple[int | None, str | None, int | None, int | None]:
    """Return what `_directories` does, remembered: the files of a directory come together."""
    return _directories(_components(path))


def _directories(parents: list[str]) -> tuple[int | None, str | None, int | None, int | None]:
    """Return device, model, model id and iteration.

    They follow the directory that is named by the time of the run. All but the device may be missing: one
    number is the id, because every model has one, and two numbers are id and iteration.
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
    levels = [*parents, base[: match.start("number") - 1]]
    begin = _operator_begins(levels)
    op_type, _, op_name = "/".join(levels[begin:]).partition(".")
    if not op_type or not op_name:
        return None
    device = _device(levels[begin - 1]) if begin else None
    return _named(Scheme.GRAPH, match, op_type=op_type, op_name=op_name, device=device)


def _operator_begins(levels: list[str]) -> int:
    """Return which of *levels* begins with the operator's type; the last, unless its name has slashes."""
    last = len(levels) - 1
    places = (i for i in range(last, 0, -1) if "." in levels[i] and _DEVICE.fullmatch(levels[i - 1]))
    return next(places, last)


def _exception(parents: list[str], base: str) -> OpName | None:
    there = parents[-3:-1] == _EXCEPTION_DIRECTORY
    for pattern in [*_EXCEPTION_ANYWHERE, *(_EXCEPTION_THERE if there else [])]:
        match = pattern.fullmatch(base)
        if match is not None:
            return _named(Scheme.EXCEPTION, match, device=_device(parents[-1]) if there else None)
    return None


def _device(level: str) -> int | None:
    return int(level) if _DEVICE.fullmatch(level) else None


def _named(scheme: Scheme, match: re.Match[str], **others: Any) -> OpName:
    """Return what the groups of *match* say, and *others*."""
    said: dict[str, Any] = match.groupdict()
    for field, value in said.items():
        if value is not None and field not in _TEXT_FIELDS:
            said[field] = int(value)
    return OpName(scheme, **said, **others)
