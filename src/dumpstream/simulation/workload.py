"""Workload: what the simulated models run, and a forecast of the files that a configuration dumps."""

import ctypes
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

from dumpstream.simulation.library import FileForecast, check_errno, load_library
from dumpstream.simulation.presets import PRESETS

#: What a workload can show.
MODES = ("model", "overflow", "watch", "exception")

_DATA, _COLLECTIVE = "Data", "Hcom"


class ExpectedFile(NamedTuple):
    """A file as a capture must store it."""

    name: str
    #: The payloads in the order of delivery, or by their offsets if they have any. Statistics text has one
    #: header row and all rows, without the NULs.
    data: bytes
    fault: str | None  #: the names of its faults, joined by ``+``, without `perturb`
    chunks: int  #: how many callbacks bring it


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """What the simulated models run; the same seed gives the same bytes.

    Each fault has selectors, joined by ``+``: a share of the files with a decimal point (``"0.25"``), an
    operator of every model (``"3"``), or an operator in one step (``"3@1"``), each of all ranks or of one
    (``"rank2:3@1"``). A rank that is named has only the faults that name it. A file may have `offsets` or
    `shuffle` beside one other fault except `stats_text`: the first here that selects the file.
    """

    seed: int = 0
    rank: int = 0  #: of several processes with this seed: they share a clock, and have other bytes
    ranks: int = 1  #: processes that exchange data, if there is a data flow
    skew: int = 0  #: microseconds by which the clock of each rank is ahead of that of the one before
    models: int = 2
    ops: int = 8  #: operators of each model
    steps: int = 1  #: that `SimulatedRuntime.run` runs by default
    mode: str = "model"  #: what `config` asks for, one of `MODES`; ``model`` dumps everything
    single_ops: int = 0  #: calls of single operators in each step
    #: For the operators of a model in turn. ``Data`` feeds the next operator, ``Hcom...`` is a collective.
    op_types: str = "MatMulV2+Relu+LayerNorm+Add+SoftmaxV2+GatherV2+Mul+Cast"
    #: ``on``: operators read what earlier ones wrote, at real addresses; their types decide what they
    #: compute, and how many tensors they have.
    flow: str = "off"
    inputs: int = 2  #: tensors of each operator
    outputs: int = 1
    tensor_bytes: str = "1024-65536"  #: ``N``, or ``LOW-HIGH`` for a random size of each tensor
    shape: str = ""  #: such as ``8x128``, for all tensors, instead of `tensor_bytes`
    #: A type that is named twice comes twice as often.
    dtypes: str = "float32+float16+bfloat16+int32+int64+int8"
    device_threads: int = 2
    device_id: int = 0  #: as it appears in file names
    rate: int = 0  #: bytes per second of all device threads together; 0 for as fast as possible
    slice_bytes: int = 128 << 20  #: longest payload of a chunk
    queue_bytes: int = 0  #: device threads wait while more is queued; 0 for no bound, as in CANN
    #: ``separate`` gives inputs and outputs files of their own, as single operators and collectives have.
    io_files: str = "joint"
    #: ``A:C`` or ``A:C@STEP``: operator A of every model overwrites the first output of the earlier operator
    #: C, and later dumps of C show it.
    overwrite: str = ""
    undumped: str = ""  #: such as ``3+7``: operators of every model that run and are never dumped
    opdebug: str = "older"  #: layout of overflow records: ``newer`` begins with a magic number
    stats_by: str = "kernel"  #: what makes statistics: ``aicpu`` sends them as one message without NUL
    after_detail: str = "continue"  #: ``die`` ends the process after a detailed exception dump, as CANN does
    #: ``8.5`` finalises without waiting for the last callback; ``master`` starts profiling without
    #: aclprofInit, and lets it end before it began.
    cann: str = "9.1"
    stats_text: str = ""  #: statistics text in several messages, each marked last and ending in NUL
    header_only: str = ""  #: the header promises tensors, but none of their bytes comes
    null_address: str = ""  #: the first tensor has no address: its bytes are promised and left out
    truncated: str = ""  #: the final slice, or half of a single one, never comes, nor a chunk marked last
    missing_last: str = ""  #: all bytes come, but no chunk is marked last
    resend_slice: str = ""  #: one slice comes twice; the final one only if it is the only one
    nan: str = ""  #: NaN in the first output, which becomes float32 if its type has no NaN
    overflow: str = ""  #: the operator overflows: infinity in the first output, likewise
    #: With a data flow: the first output is at the largest values of its type, and the operator overflows.
    saturate: str = ""
    #: With a data flow: ``3:0.01`` or ``3@STEP:0.01`` makes the first output larger by this share of itself.
    perturb: str = ""
    fails: str = ""  #: the operator fails, which an exception dump shows
    offsets: str = ""  #: chunks carry real offsets
    shuffle: str = ""  #: chunks carry real offsets and come in shuffled order

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the workload that *text* names.

        *text* is the name of a preset (`PRESETS`), the path of a JSON file with an object of the fields, or
        ``key=value`` pairs separated by commas. A preset may stand in place of the first pair.

        Raises:
            ValueError: *text* is something else, or a value is out of range.
        """
        # Not Path.is_file, which raises for a text that is too long to be a path.
        is_file = text not in PRESETS and os.path.isfile(text)  # noqa: PTH113
        values = _read_json(Path(text)) if is_file else _read_pairs(text)
        workload = cls(**{key: _convert(key, value) for key, value in values.items()})  # type: ignore[arg-type]
        with opened(workload):
            return workload

    def of_rank(self, rank: int) -> Self:
        """Return what *rank* of several runs: the same on a device of its own, with other bytes."""
        return replace(self, rank=rank, device_id=rank)

    def config(self, dump_path: str | os.PathLike[str] | None) -> str:
        """Return the text of an acl.json for the `mode` of this workload.

        Only exception dumps can do without a *dump_path*: without it they go to the current directory.
        """
        path = {} if dump_path is None else {"dump_path": os.fspath(dump_path)}
        return json.dumps({"dump": {**path, **self._settings()}})

    def _settings(self) -> Mapping[str, object]:
        if self.mode == "overflow":
            return {"dump_debug": "on"}
        if self.mode == "exception":
            return {"dump_scene": "aic_err_norm_dump"}
        if self.mode == "watch":
            return {"dump_scene": "watcher", "dump_mode": "output", "dump_list": [self._watch()]}
        return {"dump_mode": "all", "dump_level": "op", "dump_list": [{}], "dump_op_switch": "on"}

    def _watch(self) -> Mapping[str, object]:
        """Watch the overwritten operator and the next one, after the overwriting one and the next one."""
        writer, _, victim = self.overwrite.partition("@")[0].partition(":")
        places = [int(writer or self.ops - 1), int(victim or 0)]
        layer, watched = ([self._name_of(place) for place in (first, first + 1)] for first in places)
        return {"layer": layer, "watcher_nodes": watched}

    def graph(self) -> str:
        """Return the operators of the models in order, as `dumpstream.config.read_operators` reads them."""
        operators: list[dict[str, object]] = []
        for model in range(self.models):
            for place in range(self.ops):
                kind = self._type_of(place)
                operators.append(
                    {"name": self._name_of(place), "type": kind, "model": f"transformer_{model}"}
                )
                if kind == _DATA:
                    operators[-1]["feeds"] = [self._name_of(place + 1)] if place + 1 < self.ops else []
                if kind == _DATA or kind.startswith(_COLLECTIVE):
                    operators[-1]["ai_core"] = False
        return json.dumps(operators, indent=1)

    def _type_of(self, place: int) -> str:
        types = self.op_types.split("+")
        return types[place % len(types)]

    def _name_of(self, place: int) -> str:
        return f"layer_{place}_{self._type_of(place)}"

    def expected_files(
        self, dump_path: str | os.PathLike[str], step: int | None = None, *, config: str | None = None
    ) -> Iterator[ExpectedFile]:
        """Yield the files of *step*, or of all steps, in order of step and operator; no exception dumps.

        Needs no runtime. *config* is the text of the configuration that the run will have, with a *dump_path*
        of its own; by default it is that of `config`.

        Raises:
            ValueError: a field is out of range, or the configuration is refused.
        """
        library = load_library()
        text = os.fsencode(self.config(dump_path) if config is None else config)
        refusal = "the configuration is refused; `dumpstream config check` says why"
        with (
            opened(self) as handle,
            _closing(library.dssim_config_open(text), library.dssim_config_close, refusal) as order,
        ):
            for current in range(self.steps) if step is None else (step,):
                for number in range(library.dssim_ops_per_step(handle)):
                    yield from _files_after(handle, order, current, number)


def opened(workload: Workload) -> AbstractContextManager[int]:
    """Give the library's handle for *workload*; a ValueError says what is wrong with it."""
    library, error = load_library(), ctypes.create_string_buffer(1024)
    values = asdict(workload)
    del values["steps"]  # every run gives them to the library
    if values.pop("mode") not in MODES:
        raise ValueError(f"mode={workload.mode}: must be {' or '.join(MODES)}")
    text = "".join(f"{key}={value}\n" for key, value in values.items())
    handle = library.dssim_workload_open(os.fsencode(text), error, len(error))
    return _closing(handle, library.dssim_workload_close, os.fsdecode(error.value))


@contextmanager
def _closing(handle: int | None, close: Callable[[int], object], refusal: str) -> Iterator[int]:
    """Yield *handle* and close it; without one, raise the *refusal*."""
    if not handle:
        raise ValueError(refusal)
    try:
        yield handle
    finally:
        close(handle)


def _files_after(workload: int, config: int, step: int, number: int) -> Iterator[ExpectedFile]:
    """Yield the files that come after the operator with this *number* in *step*."""
    library, file = load_library(), FileForecast()
    for place in count():
        where = (workload, config, step, number, place, ctypes.byref(file))
        found = library.dssim_file_describe(*where, None)
        if found == -errno.ENOENT:
            return
        check_errno(found)
        data = ctypes.create_string_buffer(file.bytes)
        check_errno(library.dssim_file_describe(*where, data))
        yield ExpectedFile(os.fsdecode(file.name), data.raw, file.fault.decode() or None, file.chunks)


def _convert(key: str, value: object) -> int | str:
    """Return *value* as the type of the field *key*."""
    defaults = {field.name: field.default for field in fields(Workload)}
    if key not in defaults:
        raise ValueError(f"unknown workload key {key!r}; known keys: {', '.join(defaults)}")
    kind = type(defaults[key])
    if isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return str(value) if kind is str else int(value)
        except ValueError:
            pass
    raise ValueError(f"{key}={value}: must be {'text' if kind is str else 'a whole number'}")


def _read_json(path: Path) -> Mapping[str, object]:
    try:
        values = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object of workload keys")  # noqa: TRY004 - bad content
    return values


def _read_pairs(text: str) -> Mapping[str, object]:
    values: dict[str, object] = {}
    for position, item in enumerate(text.split(",")):
        key, equals, value = item.partition("=")
        if equals:
            values[key.strip()] = value.strip()
        elif position == 0 and item in PRESETS:
            values.update(PRESETS[item])
        else:
            raise ValueError(
                f"no workload {item!r}; give a preset ({', '.join(PRESETS)}), a JSON file, or key=value "
                f"pairs of {', '.join(field.name for field in fields(Workload))}"
            )
    return values
