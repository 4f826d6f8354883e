"""Model: ``acl.json`` as typed values, with CANN's defaults.

Here types and choices are checked; `dumpstream.config.rules` checks how settings fit together. Unknown keys
are kept.
"""

import json
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

MAX_PATH_BYTES: Final = 512
MAX_BLACKLIST: Final = 100
MAX_STEP_ITEMS: Final = 100

Scene = Literal["lite_exception", "aic_err_brief_dump", "aic_err_norm_dump", "aic_err_detail_dump", "watcher"]
Direction = Literal["input", "output", "all"]
Level = Literal["op", "kernel", "all"]
Switch = Literal["on", "off"]
Data = Literal["tensor", "stats"]
Statistic = Literal["Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm"]
KernelData = Literal["all", "printf", "tensor", "assert", "timestamp"]

WATCHER: Final = "watcher"
EXCEPTION_SCENES: Final = tuple(scene for scene in get_args(Scene) if scene != WATCHER)

#: Other keys that ``aclInit`` reads from the same file.
NEIGHBOURS: Final = frozenset(
    {
        "StackSize",
        "acl_graph",
        "defaultDevice",
        "err_msg_mode",
        "max_opqueue_num",
        "profiler",
        "simd_printf_fifo_size_per_core",
        "simt_printf_fifo_size",
    }
)


class Mode(StrEnum):
    """What a configuration is for."""

    MODEL = "model"
    OP = "op"
    EXCEPTION = "exception"
    OVERFLOW = "overflow"
    WATCH = "watch"


class _Part(BaseModel):
    # model_name is CANN's word; older versions of pydantic want model_ for themselves.
    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    def has(self, key: str) -> bool:
        """Whether the file has *key*."""
        return key in self.model_fields_set

    def unknown(self) -> tuple[str, ...]:
        """Return the unknown keys."""
        return tuple(self.model_extra or ())


class Blacklisted(_Part):
    """Inputs and outputs of an operator, or of a type of operators, that are not dumped."""

    name: str = Field(default="", description="Type or name of the operator after conversion.")
    pos: tuple[Annotated[str, Field(json_schema_extra={"pattern": "^(input|output)[0-9]+$"})], ...] = Field(
        default=(), description="Which of them: input0, output1, ..."
    )


_Blacklist = Annotated[tuple[Blacklisted, ...], Field(json_schema_extra={"maxItems": MAX_BLACKLIST})]


class NameRange(_Part):
    """The operators from one to another, both included, in the order of the graph."""

    begin: str = ""
    end: str = ""


class Selection(_Part):
    """An item of ``dump_list``: operators of one model, or of all."""

    model_name: str = Field(default="", description="Of this model; left out: of all models.")
    layer: tuple[str, ...] = Field(default=(), description="These operators; left out: all of them.")
    optype_blacklist: _Blacklist = ()
    opname_blacklist: _Blacklist = ()
    opname_range: tuple[NameRange, ...] = ()
    watcher_nodes: tuple[str, ...] = Field(default=(), description="Operators whose outputs are watched.")


def _drop_default(schema: dict[str, Any]) -> None:
    """Leave out a default that may not stand in a file."""
    del schema["default"]


class DumpSettings(_Part):
    """The ``dump`` object."""

    dump_path: str = Field(
        default="",
        description="An existing directory that can be read and written.",
        json_schema_extra={"minLength": 1, "maxLength": MAX_PATH_BYTES},
    )
    dump_list: tuple[Selection, ...] = Field(default=(), description="What of which model is dumped.")
    dump_mode: Direction = Field(default="output", description="Inputs, outputs, or both.")
    dump_level: Level = Field(default="all", description="Files of operators, of kernels, or both.")
    dump_op_switch: Switch = Field(default="off", description="Dump single-operator calls.")
    dump_step: str = Field(
        default="",
        description="Iterations, such as 0|3-5|10; left out: all.",
        json_schema_extra={"pattern": r"^([0-9]+(-[0-9]+)?(\|[0-9]+(-[0-9]+)?)*)?$"},
    )
    dump_data: Data = Field(default="tensor", description="Tensors, or statistics text about them.")
    dump_stats: tuple[Statistic, ...] = Field(
        default=(), description="Which statistics.", json_schema_extra={"minItems": 1}
    )
    dump_kernel_data: str = Field(
        default="all", description="What kernels print: all, printf, tensor, assert, timestamp."
    )
    dump_debug: Switch = Field(default="off", description="Dump operators that overflow.")
    dump_scene: Annotated[Scene | None, WithJsonSchema({"type": "string", "enum": list(get_args(Scene))})] = (
        Field(default=None, description="Exception dumps, or watch mode.", json_schema_extra=_drop_default)
    )

    @field_validator("dump_scene", mode="before")
    @classmethod
    def _null_is_no_scene(cls, value: object) -> object:
        if value is None:
            raise PydanticCustomError("string_type", "Input should be a valid string")
        return value

    @property
    def is_exception(self) -> bool:
        """Whether it asks for exception dumps."""
        return self.dump_scene in EXCEPTION_SCENES

    @property
    def is_watch(self) -> bool:
        """Whether it asks for watch mode."""
        return self.dump_scene == WATCHER

    @property
    def is_overflow(self) -> bool:
        """Whether it asks for overflow dumps, and no scene replaces them."""
        return self.dump_debug == "on" and self.dump_scene is None

    @property
    def selects(self) -> bool:
        """Whether CANN reads the selection: ``dump_list``, ``dump_step`` and ``dump_stats``."""
        return not self.is_exception and not self.is_overflow

    @property
    def is_data(self) -> bool:
        """Whether it dumps models or single-operator calls."""
        return Mode.MODEL in self.modes or Mode.OP in self.modes

    @property
    def modes(self) -> tuple[Mode, ...]:
        """What is switched on: nothing, one mode, or model and op together."""
        if self.is_exception:
            return (Mode.EXCEPTION,)
        if self.is_watch:
            return (Mode.WATCH,)
        if self.is_overflow:
            return (Mode.OVERFLOW,)
        listed = (Mode.MODEL,) if self.dump_list else ()
        return listed + ((Mode.OP,) if self.dump_op_switch == "on" else ())


#: A validation context in which `AclConfig` accepts what the rules forbid.
UNCHECKED: Final = {"unchecked": True}


class AclConfig(_Part):
    """A whole ``acl.json``.

    One that is built in Python obeys every rule that does not depend on the disk.

    Raises:
        ValueError: CANN would refuse it; the message has all reasons.
    """

    dump: DumpSettings = Field(default_factory=DumpSettings)

    @model_validator(mode="after")
    def _obeys_the_rules(self, info: ValidationInfo) -> Self:
        from dumpstream.config.check import check_config  # noqa: PLC0415 - which needs this module

        if info.context is UNCHECKED:
            return self
        if errors := [problem for problem in check_config(self, disk=False) if problem.is_error]:
            raise ValueError("; ".join(f"{problem.path}: {problem.text}" for problem in errors))
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return what the file has, unknown keys included, without defaults."""
        return self.model_dump(exclude_unset=True)

    def to_json(self) -> str:
        """Return the text of the file."""
        return json.dumps(self.as_dict(), indent=4, ensure_ascii=False) + "\n"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | AclConfig.model_json_schema()
