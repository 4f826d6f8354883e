"""Lifecycle: the ACL calls around dumping, each only when its turn has come."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from dumpstream._errors import AclError, DumpstreamError, OrderError
from dumpstream.codes import AclCode

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping

    from dumpstream.acl.driver import Driver
    from dumpstream.config import AclConfig, DumpSettings

    StrPath = str | os.PathLike[str]

_DUMP_ORDER: Final = (
    "init, [register,] init_dump, set_dump, load and run models, finalize_dump, [unregister,] finalize"
)
_INIT_ORDER: Final = "init(acl.json), [register,] load and run models, finalize[, unregister]"
_DETAIL: Final = "aic_err_detail_dump"


class Owner(StrEnum):
    """Who started something, and so has to end it."""

    NOBODY = "nobody"
    OURS = "ours"
    THEIRS = "theirs"  #: somebody else in this process, such as a framework


class Lifecycle:
    """The state of dumping in this process, and the calls that change it.

    A call that comes in the wrong order raises `OrderError`, and one with a configuration that CANN would
    refuse raises `ConfigError`, both before the runtime is called. What somebody else did first, the runtime
    tells (100002): that is no error, and theirs to end. A call that the runtime refuses changes nothing.

    Have one per process: it knows its own calls only. Calls block, on the device and the callback, so make
    them from a worker thread; those of several threads follow one another.

    Args:
        driver: makes the calls.
        initialized: somebody else has called, and will finalise, ``aclInit``.
    """

    def __init__(self, driver: Driver, *, initialized: bool = False) -> None:
        self.driver = driver
        self._lock = threading.Lock()
        self._acl = Owner.THEIRS if initialized else Owner.NOBODY
        self._counted = False  # aclInit was called here, and not finalised
        self._dump = Owner.NOBODY
        self._registered = False
        self._init_digest: bytes | None = None  # of the first configuration that aclInit took
        self._init_dumps = False  # that configuration makes operators pass the callback
        self._init_profiles = False  # it switches profiling on
        self.profiling = False  #: a `Profiler` is between its `init` and `finalize`, and says so here
        self._config: Path | None = None
        self._detail = False  # set_dump switched detail mode on
        self._stuck = False  # the runtime failed in finalize_dump
        self._models: dict[str, Path | None] = {}

    @property
    def acl(self) -> Owner:
        """Who initialised ACL."""
        return self._acl

    @property
    def init_profiles(self) -> bool:
        """Whether `init` gave ``aclInit`` a configuration that profiles; what others gave nobody can tell."""
        return self._init_profiles

    @property
    def dump(self) -> Owner:
        """Who called `init_dump` first."""
        return self._dump

    @property
    def registered(self) -> bool:
        """Whether our callback is registered; what others registered nobody can tell."""
        return self._registered

    @property
    def config(self) -> Path | None:
        """The configuration that holds for models loaded now; None if ours switches nothing on."""
        return self._config

    @property
    def models(self) -> Mapping[str, Path | None]:
        """The models that `loaded` was told of, each with the configuration by which it is dumped."""
        return MappingProxyType(self._models)

    @property
    def finalizable(self) -> bool:
        """Whether there is a dump for `finalize_dump` to end."""
        return self._dump is Owner.OURS and not self._detail

    def init(self, config: StrPath | None = None) -> bool:
        """Initialise ACL; False if somebody else had.

        With *config* this is the whole configuration of the process, once: other content is refused, also
        after `finalize`.

        Raises:
            OrderError: also if somebody else had, and so the dump section of *config* is not in force.
        """
        with self._turn("init"):
            if self._acl is not Owner.NOBODY:
                raise self._refused("init", "ACL is initialised already, and once is enough for the process")
            path = None if config is None else Path(config)
            given = None if path is None else _read(path)
            if given and self._init_digest not in (None, given.digest):
                raise self._refused("init", "aclInit takes one configuration per process, and had another")
            first = self._is_first(lambda: self.driver.init(path))
            self._acl, self._counted = Owner.OURS if first else Owner.THEIRS, True
            if given and first:
                self._init_digest, self._config = given.digest, given.in_force
                self._init_dumps, self._init_profiles = given.delivers, given.profiles
            elif given and given.in_force:
                raise self._refused(
                    "init",
                    f"somebody else had called aclInit, so {path} is not in force: give it to set_dump",
                )
            return first

    def finalize(self) -> None:
        """Undo `init`: end ACL, unless others still use it."""
        with self._turn("finalize"):
            if not self._counted:
                raise self._refused("finalize", "aclInit was not called here, so finalising is not for us")
            if self.finalizable and not self._stuck:
                raise self._refused("finalize", "the dump is not finalised")
            if self.profiling:
                raise self._refused("finalize", "profiling is not finalised")
            if not self.driver.release() and self._acl is Owner.OURS:
                self.driver.finalize()
            self._acl, self._counted = Owner.NOBODY, False
            self._init_dumps = self._init_profiles = False
            if self._dump is not Owner.OURS:
                self._forget_dump()

    def register(self) -> None:
        """Register our callback; chunks go to the runtime's own disk before that."""
        with self._turn("register"):
            if self._registered:
                raise self._refused("register", "our callback is registered, and CANN ignores a second one")
            self.driver.register()
            self._registered = True

    def unregister(self) -> None:
        """Unregister our callback, after the dump: what is queued would go to the runtime's disk."""
        with self._turn("unregister"):
            if not self._registered:
                raise self._refused("unregister", "our callback is not registered")
            if self.finalizable and not self._stuck:
                raise self._refused("unregister", "the dump is not finalised")
            if self._init_dumps:
                raise self._refused("unregister", "the dump that aclInit configured ends with finalize")
            self.driver.unregister()
            self._registered = False

    def init_dump(self) -> bool:
        """Start the dump server; False if somebody else had, who then finalises it."""
        with self._turn("init_dump"):
            self._need_acl("init_dump")
            if self._dump is not Owner.NOBODY:
                raise self._refused("init_dump", "the dump is initialised already")
            if self._init_dumps:
                raise self._refused("init_dump", "aclInit has configured the dump, and CANN answers 100044")
            first = self._is_first(self.driver.init_dump)
            self._dump = Owner.OURS if first else Owner.THEIRS
            return first

    def set_dump(self, config: StrPath) -> tuple[str, ...]:
        """Dump the models that are loaded from now on by *config*, which replaces the one before.

        Returns the models that `loaded` was told of: they are not affected until they are loaded again.
        """
        with self._turn("set_dump"):
            self._need_dump("set_dump")
            path = Path(config)
            given = _read(path)
            self.driver.set_dump(path)
            if given:
                self._config = given.in_force
                self._detail = given.settings.dump_scene == _DETAIL
            return tuple(self._models)

    def finalize_dump(self, context: int | None = None) -> None:
        """End the dump, after the device of *context* has done its work; what is queued is delivered first.

        Without *context*, synchronise the devices before, or what they have not sent yet is lost. If the
        runtime fails here, the dump goes on; this may be tried again, and nothing that comes after it is
        refused any more.
        """
        with self._turn("finalize_dump"):
            self._need_dump("finalize_dump")
            if self._dump is Owner.THEIRS:
                raise self._refused("finalize_dump", "somebody else began the dump, and has to end it")
            if self._detail:
                raise self._refused("finalize_dump", f"{_DETAIL} stays on until the process ends")
            try:
                if context is not None:
                    self.driver.synchronize(context)
            finally:
                self._finalize_dump()

    def loaded(self, model: str) -> Path | None:
        """Note that *model* was loaded; return the configuration by which it is dumped, if it is."""
        with self._lock:
            self._models[model] = self._config
            return self._config

    def unloaded(self, model: str) -> None:
        """Forget *model*."""
        with self._lock:
            self._models.pop(model, None)

    @contextmanager
    def _turn(self, call: str) -> Iterator[None]:
        """Hold up other threads; refuse the one that is inside the callback, which would wait for itself."""
        if self.driver.delivering:
            raise self._refused(call, "no ACL call may be made inside the callback: it would never return")
        with self._lock:
            yield

    def _need_acl(self, call: str) -> None:
        if self._acl is Owner.NOBODY:
            raise self._refused(call, "ACL is not initialised")

    def _need_dump(self, call: str) -> None:
        self._need_acl(call)
        if self._dump is Owner.NOBODY:
            raise self._refused(call, "the dump is not initialised")

    def _refused(self, call: str, problem: str) -> OrderError:
        return OrderError(call, problem, _INIT_ORDER if self._init_dumps else _DUMP_ORDER)

    def _is_first(self, begin: Callable[[], None]) -> bool:
        """Begin something; False if the runtime says that it was begun before."""
        try:
            begin()
        except AclError as exc:
            if exc.code != AclCode.REPEAT_INITIALIZE:
                raise
            return False
        return True

    def _finalize_dump(self) -> None:
        try:
            self.driver.finalize_dump()
        except DumpstreamError:
            self._stuck = True
            raise
        self._forget_dump()

    def _forget_dump(self) -> None:
        self._dump, self._config = Owner.NOBODY, None
        self._detail = self._stuck = False
        self._models = dict.fromkeys(self._models)


class _Given(NamedTuple):
    """A configuration that CANN accepts, and does not ignore for being an empty file."""

    path: Path
    config: AclConfig
    digest: bytes

    @property
    def settings(self) -> DumpSettings:
        """What it says about dumping."""
        return self.config.dump

    @property
    def in_force(self) -> Path | None:
        """Its path, if anything is switched on in it."""
        return self.path if self.settings.modes else None

    @property
    def delivers(self) -> bool:
        """Whether what it dumps comes as chunks; exception dumps go to disk."""
        return bool(self.settings.modes) and not self.settings.is_exception

    @property
    def profiles(self) -> bool:
        """Whether it has ``aclInit`` profile."""
        profiler = (self.config.model_extra or {}).get("profiler")
        return isinstance(profiler, dict) and profiler.get("switch") == "on"


def _read(path: Path) -> _Given | None:
    from dumpstream.config import load_config  # noqa: PLC0415 - pydantic takes long to load

    config, content = load_config(path)
    return _Given(path, config, hashlib.sha256(content).digest()) if content else None
