"""Workloads that have names."""

from collections.abc import Mapping

#: Workloads by the names that `Workload.parse` accepts.
PRESETS: Mapping[str, Mapping[str, int | str]] = {
    "small": {},  # the defaults: 16 files, about 1.5 MB
    "demo": {  # 240 files, about 100 MB, and all arrive whole; NaNs spread from one operator of each model
        "flow": "on",
        "ops": 24,
        "steps": 5,
        "tensor_bytes": "327680-393216",
        "nan": "5@3",
        "stats_text": "7",
    },
    # what a rank of a job trains: 300 files, about 3 MB; the ranks exchange what they computed
    "job": {
        "flow": "on",
        "models": 1,
        "ops": 12,
        "steps": 20,
        "op_types": "MatMulV2+Relu+LayerNorm+HcomAllReduce",
        "dtypes": "float32",
        "tensor_bytes": "2048-8192",
    },
    "large": {  # 8 files, about 3 GB, in slices
        "models": 1,
        "ops": 4,
        "steps": 2,
        "tensor_bytes": f"{64 << 20}-{192 << 20}",
        "queue_bytes": 512 << 20,
    },
    # 20,000 files of less than 1.5 KB
    "tiny-files": {"models": 4, "ops": 500, "steps": 10, "inputs": 1, "tensor_bytes": "64-512"},
    "faults": {  # one operator with each fault
        "ops": 12,
        "slice_bytes": 16384,
        "nan": "1",
        "missing_last": "2",
        "truncated": "3",
        "resend_slice": "4",
        "header_only": "5",
        "null_address": "6",
        "stats_text": "7",
        "offsets": "8",
        "shuffle": "9",
    },
    # an operator of each model overflows, then those that read its result, and only they are dumped
    "overflow": {"mode": "overflow", "flow": "on", "ops": 12, "steps": 4, "overflow": "8@1"},
    # two operators are watched, and one of them is overwritten in one step
    "watch": {"mode": "watch", "ops": 12, "steps": 3, "overwrite": "7:2@1"},
    # an operator fails, and its dump goes to disk
    "exception": {"mode": "exception", "ops": 12, "steps": 2, "fails": "5@1"},
}
