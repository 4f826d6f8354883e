from __future__ import annotations

import re
from dataclasses import fields
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import zstandard

from dumpstream._errors import SinkError
from dumpstream.reassemble import ReassemblyOptions
from dumpstream.sinks import SinkSettings, find_factory, load_sink
from dumpstream.sinks.resources import Resources
from dumpstream.stages.options import StageOptions
from dumpstream.system.durable import Fsync

if TYPE_CHECKING:
    from dumpstream.stages.options import CaptureOptions

HERE = Path()


def divide(options: dict[str, Any], *, with_ring: bool = True) -> StageOptions:
    return StageOptions.divide(cast("CaptureOptions", options), directory=HERE, with_ring=with_ring)


def test_every_option_reaches_its_stage() -> None:
    stages = divide({"buffer_bytes": 1 << 20, "idle_timeout": 3, "held_bytes": 4, "level": 5})

    assert stages.ring is not None
    assert (stages.ring.buffer_bytes, stages.reassembly.idle_timeout) == (1 << 20, 3)
    assert (stages.pipeline.held_bytes, stages.sinks.level, stages.sinks.directory) == (4, 5, HERE)


@pytest.mark.parametrize(
    ("name", "similar"), [("on_ful", "on_full"), ("buffer_size", "buffer_file or buffer_bytes")]
)
def test_unknown_option_is_refused_with_those_most_like_it(name: str, similar: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"no option '{name}'; did you mean {similar}?")):
        divide({name: 1})


def test_option_like_none_is_refused_with_all_there_are() -> None:
    with pytest.raises(TypeError, match=r"did you mean buffer_bytes or .* or spill_bytes\?"):
        divide({"zzz": 1})


def test_ring_options_need_the_captures_own_ring() -> None:
    with pytest.raises(ValueError, match="buffer_bytes, on_full: with source= the ring is not the capture's"):
        divide({"level": 1, "on_full": "drop", "buffer_bytes": 1 << 20}, with_ring=False)


def test_without_a_ring_its_defaults_are_not_checked() -> None:
    assert divide({}, with_ring=False).ring is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"level": 23}, "level must be from -131072 to 22, not 23"),
        ({"level": -131073}, "level must be from"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"max_descriptors": 3}, "max_descriptors must be at least 4, not 3"),
        ({"fsync": "always"}, "'always' is not a valid Fsync"),
        ({"idle_timeout": nan}, "idle_timeout must be at least 0 seconds, or None for no limit, not nan"),
        ({"text_idle_timeout": -1}, "text_idle_timeout must be at least 0 seconds"),
        ({"drain_timeout": nan}, "drain_timeout must be at least 0 seconds, or None for no limit, not nan"),
        ({"max_digests": -1}, "max_digests must be at least 0, not -1"),
        ({"max_header_bytes": -1}, "max_header_bytes must be at least 0, not -1"),
        ({"max_pieces": 0}, "max_pieces must be at least 1, not 0"),
        ({"max_open_files": 0}, "max_open_files must be at least 1, not 0"),
        ({"max_open_bytes": 0}, "max_open_bytes must be at least 1, not 0"),
    ],
)
def test_value_out_of_range_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        divide(options)


def test_values_at_the_ends_of_their_ranges_are_taken() -> None:
    for level in (-131072, zstandard.MAX_COMPRESSION_LEVEL):
        zstandard.ZstdCompressor(level=level).compress(b"data")
        SinkSettings(directory=HERE, level=level, workers=1, max_descriptors=4)
    ReassemblyOptions(idle_timeout=0, text_idle_timeout=inf, max_digests=0, max_header_bytes=0)


def test_fsync_may_be_given_by_its_name() -> None:
    assert divide({"fsync": "file"}).sinks.fsync is Fsync.FILE


def install_sink(directory: Path, name: str, code: str) -> None:
    """Make a package in *directory* that declares the function ``make`` in *code* as the sink *name*."""
    (directory / f"{name}.py").write_text(code)
    (directory / f"{name}-1.dist-info").mkdir()
    (directory / f"{name}-1.dist-info/METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n"
    )
    points = f"[dumpstream.sinks]\n{name} = {name}:make\n"
    (directory / f"{name}-1.dist-info/entry_points.txt").write_text(points)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import nothing_like_this", "ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("def make(location, settings): raise KeyError(location)", "KeyError: 'where'"),
    ],
)
def test_sink_that_cannot_be_made_is_an_error_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    name = f"boom{len(code)}"
    install_sink(tmp_path, name, code)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(SinkError, match=re.escape(f"the {name} sink cannot be made: {problem}")) as caught:
        load_sink(f"{name}:where", SinkSettings(directory=tmp_path))

    assert caught.value.__cause__ is not None


def test_sinks_of_others_get_what_is_for_all_sinks_and_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_sink(tmp_path, "others", "def make(*arguments, **more): return arguments, more")
    monkeypatch.syspath_prepend(tmp_path)
    settings = SinkSettings(directory=tmp_path)

    sink: object = find_factory("others", Resources())("where", settings)

    assert sink == (("where", settings), {})
    assert [field.name for field in fields(SinkSettings)] == [
        "directory",
        "codec",
        "level",
        "workers",
        "fsync",
        "max_descriptors",
        "pack",
        "spill",
        "spill_bytes",
        "in_store",
    ]
