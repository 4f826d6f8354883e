"""Tensor names: what the files of tensors are called, by dumpstream or by CANN's own tool (msaccucmp)."""

import re
import uuid
from enum import StrEnum

from dumpstream.analysis.tensorfiles import FileFormat, plain_dtype
from dumpstream.format.header import IO, Tensor
from dumpstream.names import MAPPING, MAX_COMPONENT_BYTES, clean_name
from dumpstream.reading.outputs import output_name

_LONGEST_NAME = 254  #: of CANN's tool, which gives a longer one a hash
_L1 = 0

_EXTENSIONS = "|".join(FileFormat)


class Naming(StrEnum):
    """Whose names the files have."""

    DUMPSTREAM = "dumpstream"
    CANN = "cann"


#: What no directory is called, because the file of a tensor may be.
RESERVED = {
    Naming.DUMPSTREAM: re.compile(
        rf"{re.escape(MAPPING)}|.*\.(?:{'|'.join(IO)})\.\d+\.(?:{_EXTENSIONS})", re.DOTALL | re.ASCII
    ),
    Naming.CANN: re.compile(rf"{re.escape(MAPPING)}|.*\.(?:{_EXTENSIONS})", re.DOTALL),
}


def suffix_of(
    naming: Naming,
    tensor: Tensor,
    file_format: FileFormat,
    shape: tuple[int, ...],
    *,
    arranged: bool,
) -> str:
    """Return what follows the name of the dump file in that of the file of *tensor*.

    *shape* is that of the array in the file, and *arranged* is whether a layout was asked for.
    """
    own = f".{tensor.io}.{tensor.index}"
    if naming is Naming.DUMPSTREAM or (file_format is FileFormat.CSV and not is_raw(naming, tensor)):
        return f"{own}.{file_format}"
    if tensor.io is IO.SPACE:
        return f"{own}.bin"
    if tensor.io is IO.BUFFER:
        return f".{'l1' if tensor.type == _L1 else tensor.type}buffer.{tensor.index}.bin"
    if file_format is FileFormat.BIN:
        dims, dtype = "_".join(map(str, shape)), plain_dtype(tensor.dtype.numpy).name
        return f"{own}.{dims}.{dtype}.{tensor.format.name}.bin"
    return f"{own}.{'x'.join(map(str, shape))}.npy" if arranged else f"{own}.npy"


def is_raw(naming: Naming, tensor: Tensor) -> bool:
    """Whether the file of *tensor* has its bytes as they are, in any format: CANN's tool has no other way."""
    return naming is Naming.CANN and tensor.io in (IO.BUFFER, IO.SPACE)


def _cann_name(stem: str, base: str, suffix: str) -> str:
    """Return the name that CANN's tool gives to the file, unless *base* is hostile or not the only one."""
    only_long = base.isprintable() and len(base.encode()) > MAX_COMPONENT_BYTES
    if stem != base and not (only_long and clean_name(base) == (stem,)):
        return output_name(stem, base, suffix)
    original = f"{base}{suffix}"
    if len(original.encode()) <= _LONGEST_NAME:
        return original
    return f"{uuid.uuid3(uuid.NAMESPACE_DNS, original).hex}.{suffix.rpartition('.')[2]}"


#: How the name of a file is made of its stem, its base and its suffix.
NAMES = {Naming.DUMPSTREAM: output_name, Naming.CANN: _cann_name}
