"""Random workloads of which files are missing, cut off or mixed up, and whose clock may not be trusted."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.diagnosis.workloads import KINDS, draw_workload, is_culprit

from dumpstream.config.model import AclConfig
from dumpstream.diagnosis.blame import Blame
from dumpstream.diagnosis.dataflow.trace import trace_of
from dumpstream.diagnosis.evidence import gather
from dumpstream.diagnosis.origins import find_origins
from dumpstream.diagnosis.subject import hidden_by
from dumpstream.simulation.truth import Execution
from dumpstream.simulation.truth import executions as truth_of
from dumpstream.statistics.files import origin_of, whole_file
from dumpstream.statistics.tensors import TensorRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dumpstream.simulation import Workload
    from dumpstream.statistics.table import TensorRow


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What happens to the files of a run."""

    lost: float = 0.0  #: share of the files that never came
    cut_off: float = 0.0  #: share of those that end anywhere
    clock: str = ""  #: ``back``: it was set back once; ``coarse``; ``jitter``
    steps: bool = True  #: whether names have the step
    mixed: bool = False  #: whether all ranks wrote into one directory, as one device


def draw_torn(seed: int) -> tuple[Workload, str, Damage]:
    """Return a workload, the configuration that it is dumped by, and what happens to its files."""
    drawn = random.Random(seed)
    workload = draw_workload(seed)

    def some() -> str:
        return "+".join(map(str, drawn.sample(range(workload.ops), drawn.randint(0, 3))))

    workload = replace(
        workload,
        io_files=drawn.choice(["joint", "separate"]),
        single_ops=drawn.choice([0, 0, 1, 5]),
        tensor_bytes=drawn.choice(["64", "64-128", "64-1024"]),
        truncated=some() if drawn.random() < 0.3 else "",
        null_address=some() if drawn.random() < 0.3 else "",
        header_only=some() if drawn.random() < 0.1 else "",
    )
    settings = json.loads(workload.config("/x"))["dump"] | _draw_settings(drawn, workload)
    damage = Damage(
        lost=drawn.choice([0, 0, 0.03, 0.15, 0.4]),
        cut_off=drawn.choice([0, 0, 0, 0.05, 0.2]),
        clock=drawn.choice(["", "", "back", "coarse", "jitter"]),
        steps=drawn.random() < 0.9,
        mixed=drawn.random() < 0.15,
    )
    return workload, json.dumps({"dump": settings}), damage


def _draw_settings(drawn: random.Random, workload: Workload) -> dict[str, Any]:
    settings: dict[str, Any] = {"dump_mode": drawn.choice([*("all",) * 8, "output", "input"])}
    if drawn.random() < 0.2:
        graph = json.loads(workload.graph())
        by, what = drawn.choice([("opname_blacklist", "name"), ("optype_blacklist", "type")])
        names = {it[what] for it in drawn.sample(graph, drawn.randint(1, 3))}
        positions = drawn.sample(["input0", "input1", "output0", "output1"], 2)
        settings["dump_list"] = [{by: [{"name": name, "pos": positions} for name in sorted(names)]}]
    if drawn.random() < 0.2:
        first = drawn.randrange(workload.steps)
        settings["dump_step"] = f"{first}-{drawn.randrange(first, workload.steps)}"
    return settings


def wrongly_blamed(seed: int) -> tuple[list[str], int]:
    """Return the files of operators that are blamed and did nothing wrong, and how many are blamed at all."""
    workload, config, damage = draw_torn(seed)
    drawn = random.Random(-seed)
    truth: dict[str, Execution | None] = {}
    rows: dict[str, list[TensorRow]] = {}
    for name, file_rows, execution in _files(workload, config, damage, drawn):
        truth[name], rows[name] = execution, file_rows  # of two with one name, one is left
    changed = TensorRows(_changed([row for of_file in rows.values() for row in of_file], damage, drawn))
    trace = trace_of([changed])
    hidden = frozenset(hidden_by(AclConfig.model_validate(json.loads(config)).dump))
    evidence = gather(trace, KINDS, hidden=hidden)
    found = find_origins(evidence)
    outputs = evidence.executions.outputs
    blamed = {it.row for it in found.found if it.blame is Blame.MADE}
    blamed |= {outputs.of(it)[0] for it, judged in found.judgements.items() if judged.blame is Blame.MADE}
    files = {trace.text("file", row) or "" for row in blamed}
    guilty = {name for name in files if (it := truth[name]) is not None and is_culprit(it)}
    return sorted(files - guilty), len(files)


def _files(
    workload: Workload, config: str, damage: Damage, drawn: random.Random
) -> Iterator[tuple[str, list[TensorRow], Execution | None]]:
    for rank in range(workload.ranks):
        ran = workload.of_rank(rank)
        if damage.mixed:
            ran = replace(ran, device_id=0)
        for step in range(workload.steps):
            models, calls = _executions(ran, step)
            for file in ran.expected_files("/dump" if damage.mixed else f"/dump{rank}", step, config=config):
                if drawn.random() < damage.lost:
                    continue
                kept = drawn.randrange(len(file.data) + 1) if drawn.random() < damage.cut_off else None
                rows = whole_file(
                    replace(origin_of(file.name), rank=None if damage.mixed else rank), file.data[:kept]
                )
                tensors = [row for row in rows if row.io is not None]
                if tensors and tensors[0].model is None:
                    number = int((tensors[0].op_type or "").split("_")[-2])
                    yield tensors[0].file, tensors, calls[number - step * workload.single_ops]
                elif tensors:
                    yield tensors[0].file, tensors, models.get((tensors[0].model, tensors[0].op_name))


def _executions(
    workload: Workload, step: int
) -> tuple[dict[tuple[str | None, str | None], Execution], list[Execution]]:
    """Return the operators of models by the names that files have, and the calls."""
    ran = [*truth_of(workload, step)]
    models: dict[tuple[str | None, str | None], Execution] = {
        (f"transformer_{it.model}", it.name): it for it in ran if it.model < workload.models
    }
    return models, [it for it in ran if it.model == workload.models]


def _changed(rows: list[TensorRow], damage: Damage, drawn: random.Random) -> Iterator[TensorRow]:
    """Yield *rows* with the clock and the steps that they have."""
    times = {row.file: row.timestamp or 0 for row in rows}
    if damage.clock == "back" and times:
        since, by = drawn.choice([*times.values()]), drawn.choice([100, 10**4, 10**6, 3 * 10**6])
        times = {file: time - by if time >= since else time for file, time in times.items()}
    elif damage.clock == "coarse":
        times = {file: time - time % 1000 for file, time in times.items()}
    elif damage.clock == "jitter":
        times = {file: time + drawn.randint(-30, 30) for file, time in times.items()}
    for row in rows:
        step = row.iteration if damage.steps else None
        yield replace(row, timestamp=times[row.file], iteration=step)
