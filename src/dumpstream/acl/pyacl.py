"""pyACL, CANN's ``acl`` package: for programs that cannot use CANN's libraries."""

import threading
import time
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Self

import anyio
from anyio.to_thread import run_sync

from dumpstream import _native
from dumpstream._errors import AclError, DumpstreamError, LibraryNotFoundError
from dumpstream.source import RingOptions, RingSource

_NEEDED: Final = (
    "init",
    "mdl.init_dump",
    "mdl.set_dump",
    "mdl.finalize_dump",
    "mdl.dump_reg_callback",
    "mdl.dump_unreg_callback",
)
#: If no chunk comes for so long, no chunk is queued any more.
_QUIET_S: Final = 0.5
#: CANN itself gives up on a chunk after this.
_DRAIN_LIMIT_S: Final = 600.0
_UNSIGNED_APPEND: Final = 1 << 63


class PyAcl:
    """ACL through pyACL; a `Driver`, to be preferred only where `load_acl` finds nothing.

    pyACL takes the GIL for every chunk, and keeps it while ``acl.mdl.finalize_dump`` and ``acl.finalize``
    wait for the thread that delivers chunks: with chunks queued they would never return. So this driver waits
    before both, with the GIL free, until no chunk has come for a while. Synchronise the device before.

    Args:
        acl: the imported ``acl`` module.
        quiet_s: seconds without a chunk.
        drain_limit_s: seconds to wait for them.
    """

    def __init__(self, acl: Any, *, quiet_s: float = _QUIET_S, drain_limit_s: float = _DRAIN_LIMIT_S) -> None:
        self._acl = acl
        self._quiet_s = quiet_s
        self._drain_limit_s = drain_limit_s
        self._registered = False
        self._calls = 0
        self._thread: int | None = None  # the one inside the callback

    @property
    def paths(self) -> tuple[str, ...]:
        return (str(getattr(self._acl, "__file__", None) or "pyACL"),)

    @property
    def delivering(self) -> bool:
        return self._thread == threading.get_ident()

    def init(self, config: Path | None) -> None:
        self._call("init", *(() if config is None else (str(config),)))

    def release(self) -> bool:
        if not hasattr(self._acl, "finalize_reference"):
            return False
        self.drain()
        _, code = self._acl.finalize_reference()
        _check("finalize_reference", code)
        return True

    def finalize(self) -> None:
        self.drain()
        self._call("finalize")

    def register(self) -> None:
        self._call("mdl.dump_reg_callback", self.on_chunk, 0)
        self._registered = True

    def unregister(self) -> None:
        self._call("mdl.dump_unreg_callback")
        self._registered = False

    def init_dump(self) -> None:
        self._call("mdl.init_dump")

    def set_dump(self, config: Path) -> None:
        self._call("mdl.set_dump", str(config))

    def finalize_dump(self) -> None:
        self.drain()
        self._call("mdl.finalize_dump")

    def current_context(self) -> int | None:
        if not hasattr(self._acl, "rt"):
            return None
        context, code = self.function("rt.get_context")()
        return None if code else int(context)

    def synchronize(self, context: int) -> None:
        self._call("rt.set_context", context)
        self._call("rt.synchronize_device")

    def drain(self, quiet_s: float | None = None) -> None:
        """Wait, with the GIL free, until no chunk has come for *quiet_s*; not without a registered callback.

        Raises:
            DumpstreamError: chunks go on coming.
        """
        deadline = time.monotonic() + self._drain_limit_s
        seen = -1
        while self._registered and (seen != self._calls or self._thread is not None):
            if time.monotonic() > deadline:
                raise DumpstreamError(
                    f"chunks still come after {self._drain_limit_s:g} s, and until they stop pyACL cannot "
                    "finalise; stop the model and synchronise the device first"
                )
            seen = self._calls
            time.sleep(self._quiet_s if quiet_s is None else quiet_s)

    def on_chunk(self, chunk: dict[str, Any], _length: int = 0) -> int:
        """Copy one chunk into the ring; never raises, because pyACL leaves exceptions pending.

        pyACL gives it a dict, or a dict and a length as CANN's documents say. A chunk that cannot be read is
        counted as `bad_name`.
        """
        self._thread = threading.get_ident()
        try:
            return _push(chunk)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return _native.push(b"", 0, 0, False, -1, 0)
        finally:
            self._calls += 1
            self._thread = None

    def function(self, name: str) -> Callable[..., Any]:
        """Return the function *name*, such as ``mdl.init_dump``.

        Raises:
            LibraryNotFoundError: pyACL lacks it.
        """
        try:
            function: Callable[..., Any] = attrgetter(name)(self._acl)
        except AttributeError:
            raise LibraryNotFoundError([f"{self.paths[0]} (has no acl.{name})"]) from None
        return function

    def _call(self, name: str, *arguments: object) -> None:
        _check(name, self.function(name)(*arguments))


class PyAclSource(RingSource):
    """A `RingSource` that pyACL fills, for programs that cannot use CANN's libraries.

    Registers a callback with ``acl.mdl.dump_reg_callback``. pyACL calls it with the GIL held, so it costs
    microseconds instead of nanoseconds. Leaving unregisters it, unless the capture failed or was cancelled:
    then it stays and refuses the queued chunks, which would otherwise go to the runtime's own disk.

    With chunks queued, ``acl.mdl.finalize_dump`` never returns: it keeps the GIL while it waits for the
    runtime's thread, which waits for the GIL to deliver a chunk. Before finalising, synchronise the device
    and wait for `quiet`; or let `open_capture` drive the dump, with its own source and the driver of
    `load_pyacl`.

    Args:
        acl: the imported ``acl`` module.
        options: of the ring.
    """

    def __init__(self, acl: Any, options: RingOptions | None = None) -> None:
        super().__init__(options)
        self._driver = PyAcl(acl)
        self._discarding = False

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            self._driver.register()
        except BaseException:
            await super().__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.CancelScope(shield=True):
            try:
                if not self._discarding:
                    await run_sync(self._driver.unregister)
            finally:
                await super().__aexit__()

    def discard(self) -> None:
        """Refuse everything from now on, at once, and count it; the callback stays registered for that."""
        self._discarding = True
        super().discard()

    async def quiet(self, seconds: float = 0.5) -> None:
        """Wait, with the GIL free, until no chunk has come for *seconds*."""
        await run_sync(self._driver.drain, seconds, abandon_on_cancel=True)


def load_pyacl() -> PyAcl:
    """Import pyACL.

    Raises:
        LibraryNotFoundError: there is no ``acl`` package, or it lacks the functions of dumping.
    """
    try:
        acl = import_module("acl")
    except ImportError as exc:
        raise LibraryNotFoundError([f"the Python package acl ({exc})"]) from exc
    driver = PyAcl(acl)
    for name in _NEEDED:
        driver.function(name)
    return driver


def _push(chunk: dict[str, Any]) -> int:
    name, offset = chunk["file_name"], int(chunk["offset"])
    return _native.push(
        name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape"),
        int(chunk["data_buf"]),
        int(chunk["buf_len"]),
        bool(chunk["is_last_chunk"]),
        offset - (1 << 64) if offset >= _UNSIGNED_APPEND else offset,
        int(chunk["flag"]),
    )


def _check(name: str, code: int | None) -> None:
    if code:
        raise AclError(f"acl.{name}", code)
