"""A capture for the life of a FastAPI application.

FastAPI is not a dependency of dumpstream. To try it:

    pip install fastapi uvicorn
    cd examples && uvicorn fastapi_lifespan:app
    curl http://127.0.0.1:8000/train
    curl http://127.0.0.1:8000/progress

It trains on the simulated runtime, and captures into the directory that DUMPSTREAM_RUN names, or a temporary
one. With CANN, leave out the runtime and `acl_library`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from dumpstream import open_capture
from dumpstream.simulation import SimulatedRuntime, dump_config, simulated_library


def write_config(directory: str) -> Path:
    """Return an acl.json that dumps everything."""
    config = Path(directory, "acl.json")
    config.write_text(dump_config(directory))
    return config


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Capture as long as the application runs."""
    with tempfile.TemporaryDirectory() as scratch, SimulatedRuntime() as app.state.runtime:
        config = write_config(scratch)
        run = os.environ.get("DUMPSTREAM_RUN") or tempfile.mkdtemp(prefix="run-")
        async with open_capture(run, config=config, acl_library=simulated_library()) as app.state.capture:
            yield


app = FastAPI(lifespan=lifespan)


@app.get("/train")
async def train() -> dict[str, int]:
    """Train one step."""
    return {"files": await asyncio.to_thread(app.state.runtime.run, 1)}


@app.get("/progress")
async def progress() -> dict[str, Any]:
    """Return the figures of the capture."""
    report: dict[str, Any] = app.state.capture.report.as_dict()
    return report
