"""Description: all that can be said of a dump file, as JSON can hold it."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

from numpy.typing import NDArray

from dumpstream._errors import DumpFormatError, DumpstreamError, PartError
from dumpstream.analysis.preview import count_bins, pick_values
from dumpstream.format.dtypes import decode
from dumpstream.format.header import IO, Tensor
from dumpstream.format.opname import OVERFLOW_OPERATOR, OpName, Scheme, parse_name
from dumpstream.format.overflowrecord import decode_overflow, kind_of
from dumpstream.format.text import TEXT_SUFFIX
from dumpstream.reading.dumpfile import DumpFile
from dumpstream.reading.inputs import Input
from dumpstream.statistics.running import RunningStatistics
from dumpstream.statistics.table import TensorStatistics, json_value

_CORE_SUFFIX = ".core"
_DEBUGGER = "load it into CANN's debugger, msdebug"
_KINDS = {IO.SPACE: "workspace"}
_USER_TAG = "user_tag"
_BINS = 48  #: of a histogram
_FIRST_VALUES, _LAST_VALUES = 8, 4
_HELD_BYTES = 64 << 20  #: of a compressed tensor, in memory


def describe(item: Input) -> dict[str, Any]:
    """Return what the file and its name say, and of each tensor statistics, a histogram and some values.

    What is wrong with the file, or with a tensor, is its ``problem``. ``overflow`` is there if the file is an
    overflow record, and ``exception`` if it was written as an operator failed.

    Raises:
        DumpstreamError: it is not a dump file, or cannot be read.
    """
    try:
        dump = item.open()
    except DumpFormatError as exc:
        if item.name.endswith(TEXT_SUFFIX):
            raise DumpstreamError(
                f"{item.label} is statistics text; read it with `dumpstream stats`"
            ) from exc
        if item.name.endswith(_CORE_SUFFIX):
            raise DumpstreamError(f"{item.label} is the core file of a detail dump; {_DEBUGGER}") from exc
        if not item.whole:
            raise DumpstreamError(f"{item.label} is not whole ({item.verdict}); {exc.detail}") from exc
        raise
    except OSError as exc:
        raise DumpstreamError(f"{item.label} cannot be read: {exc.strerror}") from exc
    with dump:
        parsed = parse_name(item.full_name)
        described = _describe_file(item, dump, parsed)
        failed = parsed.scheme is Scheme.EXCEPTION or any(it.input_type for it in dump.tensors)
        tensors = [_describe_tensor(dump, tensor, failed=failed) for tensor in dump.tensors]
        if failed:
            described["exception"] = _describe_exception(item, dump, parsed, tensors)
        if parsed.scheme is Scheme.OVERFLOW or dump.op_name == OVERFLOW_OPERATOR[1]:
            described["overflow"] = _describe_overflow(dump, tensors)
        described["problem"] = _find_problem(item, dump)
    return described | {"tensors": tensors}


def _describe_file(item: Input, dump: DumpFile, parsed: OpName) -> dict[str, Any]:
    return {
        "file": item.label,
        "verdict": item.verdict,
        "scheme": parsed.scheme,
        "op_type": parsed.op_type,
        "op_name": parsed.op_name or dump.op_name or None,
        "model": parsed.model,
        "model_id": parsed.model_id,
        "iteration": parsed.iteration,
        "device": parsed.device,
        "task": parsed.task,
        "stream": parsed.stream,
        "timestamp": parsed.timestamp,
        "version": dump.version,
        "time": dump.time,
        "bytes": dump.header.length,
        "attributes": [{"name": name, "value": value} for name, value in dump.attributes],
        "dfx_message": dump.dfx_message,
    }


def _describe_tensor(dump: DumpFile, tensor: Tensor, *, failed: bool) -> dict[str, Any]:
    return {
        "io": tensor.io,
        "index": tensor.index,
        "dtype": tensor.dtype.short,
        "format": tensor.format.name,
        "shape": tensor.shape,
        "original_shape": tensor.original_shape,
        "sub_format": tensor.sub_format,
        "size": tensor.size,
        "address": f"{tensor.address:#x}",
        "offset": tensor.offset,
        "arg_index": tensor.arg_index,
        "kind": _kind(tensor) if failed else None,
        "type": tensor.type,
        "dim_range": tensor.dim_range,
        "original_op": None if tensor.original_op is None else tensor.original_op._asdict(),
        "start": tensor.start,
        "stop": tensor.stop,
        **_describe_elements(dump, tensor),
    }


def _kind(tensor: Tensor) -> str:
    """Return what a segment of an exception dump is; only inputs say more than their `io`."""
    return kind_of(tensor.input_type) if tensor.input_type else _KINDS.get(tensor.io, str(tensor.io))


def _describe_exception(
    item: Input, dump: DumpFile, parsed: OpName, tensors: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "scene": _scene(item.name.rpartition("/")[2], parsed),
        "core_type": parsed.core_type,
        "core_id": parsed.core_id,
        "user_tag": dict(dump.attributes).get(_USER_TAG),
        "segments": Counter(tensor["kind"] for tensor in tensors),
    }


def _scene(base: str, parsed: OpName) -> str | None:
    """Return which of CANN's ways to write an exception dump the name of the file is of."""
    if parsed.scheme is not Scheme.EXCEPTION:
        return None
    if ".custom." in base:
        return "custom"
    if parsed.core_type is not None:
        return "core"
    return "brief" if parsed.op_type is None else "norm"


def _describe_elements(dump: DumpFile, tensor: Tensor) -> dict[str, Any]:
    described: dict[str, Any] = dict.fromkeys(("statistics", "histogram", "first", "last", "problem"))
    if not tensor.stored:
        return described
    running = RunningStatistics(tensor)
    try:
        # A large one that is compressed is read several times, as it may not fit into memory.
        held = None if dump.copies and tensor.size > _HELD_BYTES else dump.bytes(tensor)
        for block in dump.blocks(tensor) if held is None else [held]:
            running.update(block)
    except (DumpFormatError, PartError) as exc:
        return described | {"problem": exc.detail}
    found = running.result()
    described["statistics"] = _json_statistics(found)
    if running.problem is not None:
        return described | {"problem": running.problem}
    elements = partial(dump.elements, tensor)
    if held is not None:
        try:
            array = decode(tensor.dtype, tensor.shape, tensor.size, held)
        except ValueError as exc:
            return described | {"problem": str(exc)}
        elements = partial(iter, [array])
    first, last = pick_values(elements(), _FIRST_VALUES, _LAST_VALUES)
    return described | {
        "histogram": _histogram(elements, tensor, found),
        "first": [json_value(value) for value in first],
        "last": [json_value(value) for value in last],
    }


def _json_statistics(found: TensorStatistics) -> dict[str, Any]:
    return {name: json_value(value) for name, value in asdict(found).items() if name != "histogram"}


def _histogram(
    elements: Callable[[], Iterable[NDArray[Any]]], tensor: Tensor, found: TensorStatistics
) -> dict[str, Any] | None:
    if tensor.dtype.numpy.kind == "c" or found.finite_min is None or found.finite_max is None:
        return None
    low, high = float(found.finite_min), float(found.finite_max)
    if not low <= high:
        return None
    return count_bins(elements(), low, high, _BINS)._asdict()


def _describe_overflow(dump: DumpFile, tensors: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return what the first tensor records; if it cannot be decoded, that is its problem."""
    if not tensors or tensors[0]["problem"] or not dump.tensors[0].stored:
        return None
    try:
        return decode_overflow(dump.bytes(dump.tensors[0]))
    except DumpFormatError as exc:
        tensors[0]["problem"] = exc.problem
        return None


def _find_problem(item: Input, dump: DumpFile) -> str | None:
    try:
        dump.read_to_end()
    except (DumpFormatError, PartError) as exc:
        return exc.detail
    return None if item.whole else f"is not whole ({item.verdict})"
