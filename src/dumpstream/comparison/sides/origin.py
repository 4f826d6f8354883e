"""Origin: which execution of which operator a file is of, as its name and its directories say."""

from __future__ import annotations

import re
from typing import NamedTuple

from dumpstream.format.header import IO
from dumpstream.format.opname import OpName, Scheme, parse_name

_SEQUENCE = re.compile(r"(?P<call>.+)_(?P<number>[0-9]{1,18})_(?P<level>L[02])", re.ASCII)
_STARTED = re.compile(r"(?:^|/)([0-9]{14})(?=/)", re.ASCII)
_UNCLEAN = re.compile(r"[ ./\\]")
_LARGEST = (1 << 63) - 1  #: the largest number that a database takes

_IOS = "|".join(IO)
# What `convert` writes, what msaccucmp writes (a shape behind), what msprobe writes (format and type).
_TENSOR = re.compile(
    rf"(?P<base>.+)\.(?P<io>{_IOS})\.(?P<index>[0-9]{{1,9}})"
    r"(?:\.[0-9]+(?:x[0-9]+)*|\.[A-Za-z0-9_]+\.[a-z0-9_]+)?",
    re.ASCII,
)
# The calls of a framework: Functional.conv2d.1.forward.input.0, Module.layer.Linear.forward.0.output.0,
# Torch.add.0.forward.input.alpha
_CALL = re.compile(
    r"(?P<name>[A-Za-z_]\w*(?:\.\w+)*?)\.(?:(?P<number>[0-9]{1,18})\.(?P<way>forward|backward)"
    r"|(?P<other_way>forward|backward)\.(?P<other_number>[0-9]{1,18}))"
    r"\.(?P<io>input|output)(?:\.(?P<place>\w+(?:\.\w+)*))?",
    re.ASCII,
)
_GOLDEN = re.compile(r"(?P<name>.+)\.(?P<index>[0-9]{1,9})\.(?P<time>[0-9]{10,19})", re.ASCII)
_RANK, _STEP = re.compile(r"rank_?([0-9]{1,9})", re.ASCII), re.compile(r"step_?([0-9]{1,18})", re.ASCII)


class Origin(NamedTuple):
    """What is known of where a file is from; None for what is not known."""

    rank: int | None = None
    device: int | None = None
    model: str | None = None
    step: int | None = None
    op_type: str | None = None  #: without the number that aclnn gives to each call
    op_name: str | None = None
    part: str = (
        ""  #: tells the files of one execution apart that have the same tensors, as the threads of FFTS+
    )
    group: str = ""  #: files that have it in common are of one execution, if they have different tensors
    started: int = 0  #: when the dump was configured, as in the name of the directory
    sequence: int | None = None  #: the number of the call
    time: int | None = None  #: microseconds since the epoch, by the device's clock
    task: int | None = None


class TensorOrigin(NamedTuple):
    """The origin of a file that holds one tensor, and which one."""

    origin: Origin
    io: str
    index: int  # type: ignore[assignment]  # hides tuple.index


def clean_operator(name: str) -> str:
    """Return *name* as the device writes the names of operators."""
    return _UNCLEAN.sub("_", name)


def origin_of_dump(name: str, rank: int | None = None, step: int | None = None) -> Origin:
    """Return the origin of the dump file *name*; *step* is what was marked, if the name has none."""
    said = parse_name(name)
    op_type, sequence = said.op_type, said.number
    if said.scheme is Scheme.ACLNN or (said.scheme is Scheme.STATISTICS and op_type is not None):
        op_type, sequence = _without_number(said)
    group = name if sequence is None else f"{sequence}"
    return Origin(
        rank,
        said.device,
        said.model if said.model is not None or said.model_id is None else str(said.model_id),
        _bounded(step if said.iteration is None else said.iteration),
        op_type,
        said.op_name,
        "" if said.context is None else f"{said.context}.{said.thread}",
        group,
        _started(name),
        _bounded(sequence),
        _bounded(said.timestamp),
        _bounded(said.task),
    )


def origin_of_npy(name: str, rank: int | None = None) -> TensorOrigin:
    """Return the origin of the NPY file *name*, a path, by any of the ways in which such files are named.

    A name of no known way is that of an operator whose first output the file holds.
    """
    directory, _, last = name.removesuffix(".npy").rpartition("/")
    parents = directory.split("/")
    call = _CALL.fullmatch(last)
    if call is not None:
        place = call["place"] or "0"
        way, number = call["way"] or call["other_way"], call["number"] or call["other_number"]
        origin = Origin(op_name=f"{call['name']}.{way}", group=number, sequence=int(number))
        if not place.isdecimal():
            origin = origin._replace(part=place)
        first = place.partition(".")[0]
        return TensorOrigin(
            _placed(origin, parents, rank), call["io"], int(first) if first.isdecimal() else 0
        )
    tensor = _TENSOR.fullmatch(last)
    if tensor is not None:
        origin = origin_of_dump(f"{directory}/{tensor['base']}", rank)
        if origin.op_name is None:
            origin = origin._replace(op_name=tensor["base"], group=tensor["base"])
        return TensorOrigin(_placed(origin, parents, rank), tensor["io"], int(tensor["index"]))
    golden = _GOLDEN.fullmatch(last)
    if golden is not None:
        origin = Origin(op_name=golden["name"], time=_bounded(int(golden["time"])))
        return TensorOrigin(_placed(origin, parents, rank), IO.OUTPUT.value, int(golden["index"]))
    return TensorOrigin(_placed(Origin(op_name=last), parents, rank), IO.OUTPUT.value, 0)


def _placed(origin: Origin, parents: list[str], rank: int | None) -> Origin:
    """Return *origin* with the rank and the step that directories name, if nothing else does."""
    if origin.rank is None:
        origin = origin._replace(rank=rank if rank is not None else _number_in(parents, _RANK))
    return origin if origin.step is not None else origin._replace(step=_number_in(parents, _STEP))


def _number_in(parents: list[str], pattern: re.Pattern[str]) -> int | None:
    found = (match for match in map(pattern.fullmatch, reversed(parents)) if match is not None)
    match = next(found, None)
    return None if match is None else int(match[1])


def _without_number(said: OpName) -> tuple[str | None, int | None]:
    match = _SEQUENCE.fullmatch(said.op_type or "")
    if match is None:
        return said.op_type, said.number
    return f"{match['call']}_{match['level']}", int(match["number"])


def _started(name: str) -> int:
    match = _STARTED.search(name)
    return 0 if match is None else int(match[1])


def _bounded(number: int | None) -> int | None:
    """Return *number*, or None if it is forged: no counter gets so far."""
    return number if number is None or number <= _LARGEST else None
