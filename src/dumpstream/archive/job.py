"""Jobs: several hosts capture into one place, each below its own name, and a small file marks the place."""

import json
import os
import re
import socket
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from dumpstream._errors import NotACaptureError
from dumpstream.archive.rows import timestamp
from dumpstream.system.location import Prefix
from dumpstream.system.nofollow import open_regular

#: The file that marks a job; it is written before everything else, and never again.
JOB = "job.json"
#: A longer file of that name is not ours.
LONGEST_JOB = 4096
#: The host name that stands for the one that the environment gives.
AUTO = "auto"
#: Variables by which launchers number the hosts of a job, in the order in which they are asked.
VARIABLES = ("SLURM_NODEID", "PET_NODE_RANK", "NODE_RANK", "JOB_COMPLETION_INDEX")

# Why a place cannot take a capture.
IS_CAPTURE = "is itself a capture, to which no host can be added; choose another --out"
NOT_A_JOB = "is not empty, and is not a job; choose an empty or new --out"
NEEDS_HOST = "is a job of several hosts; name this one with --host (host=), such as --host auto"

_FORMAT = 1
_LONGEST_NAME = 200
_UNSAFE = re.compile(rb"^\.|[^A-Za-z0-9._-]")
#: How the names of the files of a job end, which a host must not take.
_RESERVED = (".json", ".jsonl")


def choose_host(given: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the name of this host in a job: *given*, or if that is `AUTO`, what the launcher calls it.

    Raises:
        ValueError: it cannot be a name; the message says why.
    """
    if given != AUTO:
        return safe_host(given)
    environment = os.environ if environment is None else environment
    numbered = next((environment[name] for name in VARIABLES if environment.get(name)), None)
    return safe_host(socket.gethostname() if numbered is None else numbered)


def safe_host(name: str) -> str:
    """Return *name* as one component of a path; two different names never become the same.

    Raises:
        ValueError: it is empty, consists of dots, is too long, or is a name that a job needs itself.
    """
    if not name.strip(". \t\n") or name == AUTO:
        raise ValueError(f"{name!r} cannot be the name of a host; write --host NAME or --host {AUTO}")
    if name.lower().endswith(_RESERVED):
        raise ValueError(f"{name!r} cannot be the name of a host: the files of a job end so; write another")
    data = name.encode("utf-8", "surrogateescape")
    safe = _UNSAFE.sub(lambda match: b"=%02X" % match[0][0], data).decode("ascii")
    if len(safe) > _LONGEST_NAME:
        raise ValueError(f"the name of a host has at most {_LONGEST_NAME} characters; write a shorter --host")
    return safe


def job_text() -> bytes:
    """Return what marks a job."""
    fields = {"job": _FORMAT, "dumpstream": version("dumpstream"), "created": timestamp()}
    return json.dumps(fields, indent=2).encode("ascii") + b"\n"


def marks_job(location: Path | Prefix, data: bytes) -> bool:
    """Whether *data*, the content of `JOB` at *location*, marks a job; another program may have written it.

    Raises:
        NotACaptureError: a newer version has written it.
    """
    try:
        content = json.loads(data) if len(data) <= LONGEST_JOB else {}
        number, by = int(content["job"]), str(content["dumpstream"])
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
        return False
    if number > _FORMAT:
        problem = f"has job format {number} (dumpstream {by}), and this version reads up to format {_FORMAT}"
        raise NotACaptureError(location, f"{problem}; upgrade dumpstream")
    return True


def is_job(path: Path) -> bool:
    """Whether the directory *path* is marked as a job; raises as `marks_job`."""
    try:
        with os.fdopen(open_regular(path / JOB, os.O_RDONLY), "rb") as file:
            data = file.read(LONGEST_JOB + 1)
    except OSError:
        return False
    return marks_job(path, data)
