from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from importlib.metadata import entry_points
from types import ModuleType

import dumpstream
from dumpstream import _errors
from dumpstream.capture import open_capture
from dumpstream.pipeline import PipelineOptions
from dumpstream.reassemble import ReassemblyOptions
from dumpstream.sinks import SinkSettings
from dumpstream.source import RingOptions
from dumpstream.stages.options import CaptureOptions


def errors() -> dict[str, type[dumpstream.DumpstreamError]]:
    return {
        name: value
        for name, value in vars(_errors).items()
        if isinstance(value, type) and issubclass(value, dumpstream.DumpstreamError)
    }


def test_all_is_what_there_is() -> None:
    reachable = {name: getattr(dumpstream, name) for name in dumpstream.__all__}
    present = {
        name
        for name, value in vars(dumpstream).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("dumpstream")
    }

    assert dumpstream.__all__ == sorted(set(dumpstream.__all__))
    assert present <= reachable.keys()
    assert not [name for name, value in reachable.items() if isinstance(value, ModuleType)]


def test_type_checkers_see_the_names_that_there_are() -> None:
    tree = ast.parse(inspect.getsource(dumpstream))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]

    seen = {alias.asname: node.module for node in imports for alias in node.names}

    assert len(imports) == len(block.body)
    assert seen == dumpstream._MODULES


def test_everything_public_is_documented() -> None:
    assert not [name for name in dumpstream.__all__ if not inspect.getdoc(getattr(dumpstream, name))]


def test_every_error_can_be_caught_by_its_public_name() -> None:
    assert errors().keys() <= set(dumpstream.__all__)


def test_the_errors_derive_from_one_another_as_their_module_says() -> None:
    said = {}
    above: list[str] = []
    for indent, name in re.findall(r"^( *)(\w+Error)$", inspect.getdoc(_errors) or "", re.MULTILINE):
        above[len(indent) // 2 :] = [name]
        said[name] = above[-2] if len(above) > 1 else "Exception"

    assert said == {name: error.__base__.__name__ for name, error in errors().items() if error.__base__}


def test_the_options_of_a_capture_are_those_of_its_stages() -> None:
    stages = (RingOptions, ReassemblyOptions, PipelineOptions, SinkSettings)
    own = {
        "directory",
        "in_store",
        "threads",
        "room",
        "outbox",
        "locks",
        "patience",
        "among",
    }  # set by the capture
    names = [field.name for stage in stages for field in fields(stage) if field.name not in own]

    assert list(CaptureOptions.__annotations__) == names


def test_the_own_arguments_of_open_capture_are_not_options() -> None:
    assert CaptureOptions.__annotations__.keys().isdisjoint(inspect.signature(open_capture).parameters)


def test_the_built_in_sinks_load_through_entry_points() -> None:
    points = {point.name: point for point in entry_points(group="dumpstream.sinks")}
    ours = {name: point for name, point in points.items() if point.value.startswith("dumpstream.")}

    assert {"memory", "null", "zstd"} <= ours.keys()
    assert all(callable(point.load()) for point in ours.values())


def test_importing_needs_neither_numpy_nor_a_simulation() -> None:
    code = "import sys, dumpstream; print({'numpy', 'dumpstream.simulation'} & sys.modules.keys())"

    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert output == "set()\n"
