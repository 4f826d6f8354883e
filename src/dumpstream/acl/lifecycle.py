"""Lifecycle: the ACL calls around dumping, each refused unless its turn has come."""

from __future__ import annotations

import hashlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from dumpstream._errors import AclError, DumpstreamError, OrderError
from dumpstream.acl.driver import Driver
from dumpstream.codes import AclCode

StrPath: TypeAlias = str | os.PathLike[str]

_DUMP_ORDER: Final = (
    "init, [register,] init_dump, set_dump, load and run models, finalize_dump, [unregister,] finalize"
)
_INIT_ORDER: Final = "init(acl.json), [register,] load and run models, finalize[, unregister]"
_DETAIL: Final = "aic_err_detail_dump"
_DETAIL_IS_LATE: Final = (
    f"{_DETAIL} must be set before aclrtSetDevice: of a device that this process has set already, the dump "
    "is a brief one; give the configuration to aclInit, or begin the dump before any device is set"
)


class DumpWarning(UserWarning):
    """The dump may not be the one that was asked for."""


class Owner(StrEnum):
    """Which component of this process started something, and has to end it."""

    NOBODY = "nobody"  #: it has not been started
    OURS = "ours"
    THEIRS = "theirs"  #: another component, such as a framework


class Lifecycle:
    """The state of dumping in this process, and the calls that change it.

    A call in the wrong order raises `OrderError`, and one with a configuration that CANN would refuse raises
    `ConfigError`, both before the runtime is called. If another component has made the call first, the
    runtime says so (100002): that is not an error, and that component ends what it began. A call that the
    runtime refuses changes nothing.

    Have one per process: it knows only its own calls. Calls wait for the device and the callback, so make
    them from a worker thread; calls of several threads follow one another.

    Args:
        driver: makes the calls.
        initialized: another component has called, and will finalise, ``aclInit``.
    """

    def __init__(self, driver: Driver, *, initialized: bool = False) -> None:
        self.driver = driver
        self.acl = Owner.THEIRS if initialized else Owner.NOBODY  #: who initialised ACL
        self.dump = Owner.NOBODY  #: who called `init_dump` first
        self.registered = False  #: whether our callback is registered; other callbacks cannot be seen
        self.config: Path | None = None  #: holds for models loaded now; None if ours switches nothing on
        self.init_profiles = False  #: whether `init` gave ``aclInit`` a configuration that profiles
        self.profiling = False  #: set by a `Profiler` between its `init` and `finalize`
        self._lock = threading.Lock()
        self._counted = False  # aclInit was called here, and not finalised
        self._init_digest: bytes | None = None  # of the first configuration that aclInit took
        self._init_dumps = False  # that configuration makes operators pass the callback
        self._detail = False  # set_dump switched detail mode on
        self._stuck = False  # the runtime failed in finalize_dump
        self._models: dict[str, Path | None] = {}

    @property
    def models(self) -> Mapping[str, Path | None]:
        """The models that `loaded` noted, each with the configuration by which it is dumped."""
        return MappingProxyType(self._models)

    @property
    def finalizable(self) -> bool:
        """Whether there is a dump for `finalize_dump` to end."""
        return self.dump is Owner.OURS and not self._detail

    def init(self, config: StrPath | None = None) -> bool:
        """Initialise ACL; return False if another component had.

        *config* is the process's for good: other content is refused, also after `finalize`.

        Raises:
            OrderError: also if another component had, so that the dump section of *config* is not in force.
        """
        with self._turn("init") as refused:
            if self.acl is not Owner.NOBODY:
                raise refused("ACL is initialised already, and once is enough for the process")
            path = None if config is None else Path(config)
            given = None if path is None else _read(path)
            if given and self._init_digest not in (None, given.digest):
                raise refused("aclInit takes one configuration per process, and had another")
            first = _is_first(lambda: self.driver.init(path))
            self.acl, self._counted = Owner.OURS if first else Owner.THEIRS, True
            if given and first:
                self._init_digest, self.config = given.digest, given.in_force
                self._init_dumps, self.init_profiles = given.delivers, given.profiles
            elif given and given.in_force:
                raise refused(
                    f"another component had called aclInit, so {path} is not in force: give it to set_dump"
                )
            return first

    def finalize(self) -> None:
        """Undo `init`: end ACL, unless another component still uses it."""
        with self._turn("finalize") as refused:
            if not self._counted:
                raise refused("aclInit was not called here, so finalising is not for us")
            if self.finalizable and not self._stuck:
                raise refused("the dump is not finalised")
            if self.profiling:
                raise refused("profiling is not finalised")
            if not self.driver.release() and self.acl is Owner.OURS:
                self.driver.finalize()
            self.acl, self._counted = Owner.NOBODY, False
            self._init_dumps = self.init_profiles = False
            if self.dump is not Owner.OURS:
                self._forget_dump()

    def register(self) -> None:
        """Register our callback; before that, the runtime writes chunks to its own disk."""
        with self._turn("register") as refused:
            if self.registered:
                raise refused("our callback is registered, and CANN ignores a second one")
            self.driver.register()
            self.registered = True

    def unregister(self) -> None:
        """Unregister our callback, after the dump: queued chunks would go to the runtime's disk."""
        with self._turn("unregister") as refused:
            if not self.registered:
                raise refused("our callback is not registered")
            if self.finalizable and not self._stuck:
                raise refused("the dump is not finalised")
            if self._init_dumps:
                raise refused("the dump that aclInit configured ends with finalize")
            self.driver.unregister()
            self.registered = False

    def init_dump(self) -> bool:
        """Start the dump server; return False if another component had, which then finalises it."""
        with self._turn("init_dump") as refused:
            if self.acl is Owner.NOBODY:
                raise refused("ACL is not initialised")
            if self.dump is not Owner.NOBODY:
                raise refused("the dump is initialised already")
            if self._init_dumps:
                raise refused("aclInit has configured the dump, and CANN answers 100044")
            first = _is_first(self.driver.init_dump)
            self.dump = Owner.OURS if first else Owner.THEIRS
            return first

    def set_dump(self, config: StrPath) -> tuple[str, ...]:
        """Dump the models that are loaded from now on by *config*, which replaces the one before.

        Returns the models that `loaded` noted: they are not affected until they are loaded again. Warns
        (`DumpWarning`) of a scene that comes too late for devices that are set already.
        """
        with self._dump_turn("set_dump"):
            path = Path(config)
            given = _read(path)
            if given and given.detail:
                warnings.warn(_DETAIL_IS_LATE, DumpWarning, stacklevel=2)
            self.driver.set_dump(path)
            if given:
                self.config = given.in_force
                self._detail = given.detail
            return tuple(self._models)

    def finalize_dump(self, context: int | None = None) -> None:
        """End the dump, after the device of *context* has done its work; queued chunks are delivered first.

        Without *context*, synchronise the devices before, or what they have not sent yet is lost. If the
        runtime fails here, the dump goes on: you may try again, and later calls are not refused any more.
        """
        with self._dump_turn("finalize_dump") as refused:
            if self.dump is Owner.THEIRS:
                raise refused("another component began the dump, and has to end it")
            if self._detail:
                raise refused(f"{_DETAIL} stays on until the process ends")
            try:
                if context is not None:
                    self.driver.synchronize(context)
            finally:
                self._finalize_dump()

    def loaded(self, model: str) -> Path | None:
        """Note that *model* was loaded; return the configuration by which it is dumped, if it is."""
        with self._lock:
            self._models[model] = self.config
            return self.config

    def unloaded(self, model: str) -> None:
        """Forget *model*."""
        with self._lock:
            self._models.pop(model, None)

    @contextmanager
    def _turn(self, call: str) -> Iterator[Callable[[str], OrderError]]:
        """Let one thread call at a time; yield what makes the error of a refusal.

        The thread inside the callback is refused, because it would wait for itself.
        """

        def refused(problem: str) -> OrderError:
            return OrderError(call, problem, _INIT_ORDER if self._init_dumps else _DUMP_ORDER)

        if self.driver.delivering:
            raise refused("no ACL call may be made inside the callback: it would never return")
        with self._lock:
            yield refused

    @contextmanager
    def _dump_turn(self, call: str) -> Iterator[Callable[[str], OrderError]]:
        with self._turn(call) as refused:
            if self.acl is Owner.NOBODY:
                raise refused("ACL is not initialised")
            if self.dump is Owner.NOBODY:
                raise refused("the dump is not initialised")
            yield refused

    def _finalize_dump(self) -> None:
        try:
            self.driver.finalize_dump()
        except DumpstreamError:
            self._stuck = True
            raise
        self._forget_dump()

    def _forget_dump(self) -> None:
        self.dump, self.config = Owner.NOBODY, None
        self._detail = self._stuck = False
        self._models = dict.fromkeys(self._models)


def _is_first(begin: Callable[[], None]) -> bool:
    """Begin something; return False if the runtime says that it was begun before."""
    try:
        begin()
    except AclError as exc:
        if exc.code != AclCode.REPEAT_INITIALIZE:
            raise
        return False
    return True


class _Given(NamedTuple):
    """What a configuration that CANN accepts says; an empty file, which CANN ignores, is not one."""

    digest: bytes  #: of its content
    in_force: Path | None  #: its path, if it switches anything on
    delivers: bool  #: whether its dumps come as chunks; exception dumps go to disk
    profiles: bool  #: whether ``aclInit`` begins profiling with it
    detail: bool  #: whether it switches detail mode on


def _read(path: Path) -> _Given | None:
    from dumpstream.config import load_config  # noqa: PLC0415 - pydantic takes long to load

    config, content = load_config(path)
    if not content:
        return None
    dump, profiler = config.dump, (config.model_extra or {}).get("profiler")
    return _Given(
        digest=hashlib.sha256(content).digest(),
        in_force=path if dump.modes else None,
        delivers=bool(dump.modes) and not dump.is_exception,
        profiles=isinstance(profiler, dict) and profiler.get("switch") == "on",
        detail=dump.dump_scene == _DETAIL,
    )
