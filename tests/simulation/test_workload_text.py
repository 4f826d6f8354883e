"""Workloads as text: presets, key=value pairs, JSON files, and what the library understands."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dumpstream.simulation import PRESETS, Workload, dump_config
from dumpstream.simulation.library import FileForecast

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name: str) -> None:
    assert Workload.parse(name) == Workload(**PRESETS[name])  # type: ignore[arg-type]


def test_faults_preset_has_every_fault_once_per_model() -> None:
    faults = sorted(filter(None, (file.fault for file in Workload.parse("faults").expected_files("/dump"))))

    assert faults[::2] == faults[1::2] == sorted(set(PRESETS["faults"]) - {"ops", "slice_bytes"})


def test_parse_reads_pairs_over_the_default_or_a_preset() -> None:
    assert Workload.parse("ops=3, seed=4") == Workload(ops=3, seed=4)
    assert Workload.parse("demo,steps=1") == replace(Workload.parse("demo"), steps=1)


def test_parse_reads_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    path.write_text(json.dumps({"ops": 3, "tensor_bytes": 64, "nan": "0.5"}))

    assert Workload.parse(str(path)) == Workload(ops=3, tensor_bytes="64", nan="0.5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("smal", "no workload 'smal'; give a preset .small, demo"),
        ("x" * 5000, "no workload"),
        ("ops=3,demo", "no workload 'demo'"),
        ("opps=3", "unknown workload key 'opps'; known keys: seed, rank, ranks, skew, models"),
        ("ops=three", "ops=three: must be a whole number"),
        ("ops=0", "ops=0: must be a whole number from 1 to"),
        ("seed=-1", "seed=-1: must be a whole number from 0"),
        ("skew=1000000001", "skew=1000000001: must be microseconds from"),
        ("rank=1024", "rank=1024: must be a whole number from 0 to 1023"),
        ("tensor_bytes=0", "tensor_bytes=0: must be N or LOW-HIGH"),
        ("tensor_bytes=9-8", "tensor_bytes=9-8: must be"),
        ("tensor_bytes=9-", "tensor_bytes=9-: must be"),
        ("shape=8x", "shape=8x: must be up to 8 dimensions"),
        ("shape=0", "shape=0: must be"),
        ("shape=1x1x1x1x1x1x1x1x1", "must be up to 8"),
        ("dtypes=float8", "dtypes=float8: must be float32"),
        ("dtypes=", "dtypes=: must be float32"),
        ("cann=7", "cann=7: must be 8.5, 9.1 or master"),
        ("nan=1.5", "nan=1.5: must be a share"),
        ("nan=3@", "nan=3@: must be a share"),
        ("null_address=1,inputs=0,outputs=1", "null_address needs a second tensor"),
    ],
)
def test_parse_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Workload.parse(text)


@pytest.mark.parametrize("content", ["{", "[]", '{"ops": true}', '{"ops": [1]}', '{"x": 1}'])
def test_parse_refuses_a_bad_json_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "workload.json"
    path.write_text(content)

    with pytest.raises(ValueError, match=r"JSON|must be|unknown"):
        Workload.parse(str(path))


def test_library_has_the_same_defaults(library: ctypes.CDLL) -> None:
    error, file = ctypes.create_string_buffer(64), FileForecast()
    handle = library.dssim_workload_open(b"", error, len(error))
    config = library.dssim_config_open(dump_config("/dump").encode())

    described = []
    for number in range(library.dssim_ops_per_step(handle)):
        library.dssim_file_describe(handle, config, 0, number, 0, ctypes.byref(file), None)
        described.append((file.name.decode(), file.bytes, file.chunks))
    library.dssim_config_close(config)
    library.dssim_workload_close(handle)

    assert described == [(file.name, len(file.data), 1) for file in Workload().expected_files("/dump")]


def test_library_names_the_known_keys(library: ctypes.CDLL) -> None:
    error = ctypes.create_string_buffer(1024)

    handle = library.dssim_workload_open(b"seed=1\nsteps=2\n", error, len(error))

    assert handle is None
    assert error.value.startswith(b"unknown key 'steps'; known keys: tensor_bytes, shape, ")
    assert error.value.endswith(b", offsets, shuffle")


def test_too_long_a_dump_path_is_an_error() -> None:
    with pytest.raises(ValueError, match="configuration is refused"):
        list(Workload().expected_files("/" + "x" * 4090))
