"""Runs on any mesh agree with the run that they are parts of."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dumpstream import Agreement, compare

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GROUPS = ("tp", "dp", "ep")
_FILE = "op.0.1700000000000000.npy"


def _parts(whole: NDArray[Any], sizes: dict[str, int], rule: dict[str, Any]) -> dict[int, NDArray[Any]]:
    """Return what each rank of a mesh holds of *whole*, the first group being the fastest to change."""
    found = {}
    for rank, places in enumerate(product(*(range(size) for size in reversed(sizes.values())))):
        part = whole
        # The last group cuts first: the first one joins again first.
        for (name, size), place in zip(reversed(sizes.items()), places, strict=True):
            if name in rule.get("split", {}):
                part = np.array_split(part, size, rule["split"][name])[place]
            elif name in rule.get("sum", []):
                part = part if place == 0 else np.zeros_like(part)
        found[rank] = part
    return found


@settings(max_examples=25)
@given(data=st.data())
def test_tensors_that_were_split_over_a_random_mesh_are_whole_again(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(_GROUPS), min_size=1, max_size=3, unique=True))
    sizes = {name: data.draw(st.integers(1, 3), label=name) for name in names}
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    kinds = {name: data.draw(st.sampled_from(["split", "sum", "replicated"])) for name in names}
    axes = {name: data.draw(st.integers(-len(shape), len(shape) - 1)) for name in names}
    rule = {
        "split": {name: axes[name] for name in names if kinds[name] == "split"},
        "sum": [name for name in names if kinds[name] == "sum"],
    }
    whole = np.random.default_rng(1).standard_normal(shape).astype(np.float32)

    with TemporaryDirectory() as directory:
        root = Path(directory)
        for rank, part in _parts(whole, sizes, rule).items():
            (root / f"mine/rank{rank}").mkdir(parents=True)
            np.save(root / f"mine/rank{rank}/{_FILE}", part)
        (root / "golden").mkdir()
        np.save(root / "golden" / _FILE, whole)
        (root / "shards.json").write_text(json.dumps([rule]))
        mesh = ",".join(f"{name}={size}" for name, size in sizes.items())
        with compare(root / "mine", root / "golden", mesh=mesh, shards=root / "shards.json") as comparison:
            (row,) = comparison

    assert (row.verdict, row.shape, row.rank) == (Agreement.IDENTICAL, shape, None)
