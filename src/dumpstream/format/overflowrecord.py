"""Overflow records and exception dumps: what the device writes when an operator goes wrong. Does no I/O.

An overflow record is the only tensor of an ``Opdebug.Node_OpDebug`` file. It has one of two layouts; the
newer begins with a magic number. Addresses become text, because JSON readers round numbers above 2**53.
"""

import struct
from typing import Any

from typing_extensions import Buffer

from dumpstream._errors import DumpFormatError

_MAGIC = 0x5A5A5A5A
_U32, _U64 = "I", "Q"

_ADDRESSES = {"pc_start", "para_base", "src_addr", "dst_addr", "kernel_code"}

_TASK = ("model_id", "stream_id", "task_id", "task_type")
_INFO = (*_TASK, "pc_start", "para_base")

#: The units of the older layout: where the task and where the status of each begins, and the latter's fields.
_UNITS = {
    "dha_atomic_add": (0, 512, ("status",)),
    "l2_atomic_add": (128, 768, ("status",)),
    "ai_core": (256, 1024, ("kernel_code", "block_idx", "status")),
}

_HEAD = ("magic", "version")
_ENTRY = ("valid", "acc_type", "reserved", "data_len")
_CORE = (*_TASK, "context_id", "thread_id", "pc_start", "para_base", "core_id", "block_id", "status")

#: The accelerators of the newer layout, by number, each with the fields of its entry.
_ACCELERATORS = {
    0: ("AIC", _CORE),
    1: ("AIV", _CORE),
    2: ("AICPU", (*_TASK, "context_id", "cpu_id", "thread_id", "status")),
    3: ("SDMA", (*_TASK, "context_id", "thread_id", "src_addr", "dst_addr", "channel_id", "status")),
}

#: The kinds of tensors in an exception dump, by `Tensor.input_type`.
_KINDS = {
    0: "invalid",
    1: "general",
    2: "input",
    3: "output",
    4: "workspace",
    5: "ascendc_log",
    6: "mc2_ctx",
    7: "tiling_data",
    8: "l1",
    9: "l2",
    10: "overflow_address",
    11: "ffts_address",
    12: "shape_tensor",
    101: "args",
    102: "stack",
    103: "device_kernel_object",
    104: "simt_stack",
}


def kind_of(input_type: int) -> str:
    """Return the kind of a tensor in an exception dump; an unknown one is named by its number."""
    return _KINDS.get(input_type, f"unknown_{input_type}")


def decode_overflow(record: Buffer) -> dict[str, Any]:
    """Return the contents of an overflow record as JSON can hold them.

    The older layout has an object for each unit: ``dha_atomic_add``, ``l2_atomic_add``, ``ai_core``. The
    newer has ``magic``, ``version`` and ``entry``: whether it is ``valid``, the accelerator and its fields,
    or ``words`` if the accelerator is unknown. An entry that is not valid may be empty.

    Raises:
        DumpFormatError: the record ends before its last field; the position counts from its start.
    """
    view = memoryview(record).cast("B")
    if view[:4] == _MAGIC.to_bytes(4, "little"):
        return _newer(view)
    return {
        unit: _fields(view, info_at, _INFO, _U64) | _fields(view, status_at, status, _U64)
        for unit, (info_at, status_at, status) in _UNITS.items()
    }


def _newer(view: memoryview) -> dict[str, Any]:
    head = _fields(view, 0, _HEAD, _U32)
    at = len(_HEAD) * 4
    entry = _fields(view, at, _ENTRY, _U32)
    at += len(_ENTRY) * 4
    size = entry.pop("data_len")
    if size > len(view) - at:
        raise DumpFormatError(f"ends inside its overflow entry of {size} bytes; dump it again", len(view))
    number = entry.pop("acc_type")
    name, fields = _ACCELERATORS.get(number, (f"unknown_{number}", None))
    said = {"valid": bool(entry["valid"]), "accelerator": name, "reserved": entry["reserved"]}
    if fields is None:
        said["words"] = _words(view[at : at + size])
    elif size or said["valid"]:
        said |= _fields(view[: at + size], at, fields, _U64)
    return {"magic": f"{head['magic']:#x}", "version": head["version"], "entry": said}


def _fields(view: memoryview, at: int, names: tuple[str, ...], kind: str) -> dict[str, Any]:
    layout = struct.Struct(f"<{len(names)}{kind}")
    if len(view) < at + layout.size:
        problem = f"has an overflow record that ends before its {names[-1]}; dump it again"
        raise DumpFormatError(problem, len(view))
    values = layout.unpack_from(view, at)
    return {
        name: f"{value:#x}" if name in _ADDRESSES else value
        for name, value in zip(names, values, strict=True)
    }


def _words(body: memoryview) -> list[str]:
    return [f"{word:#x}" for (word,) in struct.iter_unpack("<Q", body[: len(body) // 8 * 8])]
