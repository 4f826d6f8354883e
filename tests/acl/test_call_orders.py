"""Any order of calls: the runtime accepts what the lifecycle allows, and refuses only what it refused."""

from __future__ import annotations

import os
import shutil
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dumpstream import ConfigError, Lifecycle, OrderError, Owner, load_acl
from dumpstream.simulation import Workload, dump_config, simulated_library
from dumpstream.simulation.library import load_library
from dumpstream.simulation.workload import opened

if TYPE_CHECKING:
    from collections.abc import Callable

_REPEAT_INITIALIZE: Final = 100002


class File(StrEnum):
    """Configurations; the members name files."""

    ONE = "one"
    OTHER = "other"
    OFF = "off"
    EMPTY = "empty"
    NO_JSON = "no_json"
    DEEP = "deep"
    BROKEN_RULE = "broken_rule"
    MISSING = "missing"

    @property
    def refused(self) -> bool:
        """Whether CANN refuses it."""
        return self in (File.NO_JSON, File.DEEP, File.BROKEN_RULE, File.MISSING)

    @property
    def dumps(self) -> bool:
        """Whether it switches operators on."""
        return self in (File.ONE, File.OTHER)


#: Those that are accepted lead further, so they come more often.
_FILES: Final = strategies.sampled_from([*(file for file in File if not file.refused), *File])


def write_files(directory: Path) -> None:
    for file in (File.ONE, File.OTHER):
        (directory / f"dump_{file}").mkdir()
        (directory / file).write_text(dump_config(directory / f"dump_{file}"))
    (directory / File.OFF).write_text("{}")
    (directory / File.EMPTY).write_bytes(b"")
    (directory / File.NO_JSON).write_text("{")
    (directory / File.DEEP).write_text("[" * 11 + "]" * 11)
    (directory / File.BROKEN_RULE).write_text('{"dump": {"dump_path": "/nowhere/at/all"}}')


class CallOrders(RuleBasedStateMachine):
    """The lifecycle, the simulated runtime, and the state that the runtime must have by now."""

    def __init__(self) -> None:
        super().__init__()
        self.library = load_library()
        self.library.dssim_reset()
        self.directory = Path(tempfile.mkdtemp(prefix="dumpstream-test-"))
        write_files(self.directory)
        self.life = Lifecycle(load_acl(simulated_library()))
        self.references = 0
        self.initialized = False  # by the lifecycle
        self.server = False  # aclmdlInitDump has been called, by us or by the program
        self.dump = Owner.NOBODY
        self.registered = False
        self.init_file: File | None = None  # the first that aclInit took
        self.init_dumps = False
        self.in_force: File | None = None
        self.predictable = False  # a model is loaded, and whether it is dumped can be known

    def teardown(self) -> None:
        self.library.dssim_reset()
        shutil.rmtree(self.directory)

    @rule(file=strategies.none() | _FILES)
    def init(self, file: File | None) -> None:
        foreign = self.references > 0
        refused = file is not None and file.refused
        other = file not in (None, File.EMPTY) and self.init_file not in (None, file)
        if foreign and not self.initialized and file is not None and file.dumps and not other:
            self.raises_order_error(lambda: self.life.init(self.path(file)))
            self.references += 1
            self.initialized = True
        elif self.attempt(
            lambda: self.life.init(None if file is None else self.path(file)),
            lambda: self.init_by_the_program(file),
            by_runtime=self.initialized or refused or other,
        ):
            self.references += 1
            self.initialized = True
            if not foreign and file not in (None, File.EMPTY):
                self.init_file = self.in_force = file
                self.init_dumps = file.dumps

    @rule()
    def finalize(self) -> None:
        if self.attempt(
            self.life.finalize,
            lambda: int(self.library.aclFinalizeReference(None)),
            by_runtime=self.references == 0,
            by_rule=not self.initialized or self.dump is Owner.OURS,
        ):
            self.references -= 1
            self.initialized = self.init_dumps = False
            self.predictable = self.predictable and not self.server
            self.dump, self.in_force = Owner.NOBODY, None

    @rule()
    def init_dump(self) -> None:
        if self.attempt(
            self.life.init_dump,
            lambda: int(self.library.aclmdlInitDump()),
            by_runtime=self.references == 0 or self.dump is not Owner.NOBODY,
            by_rule=not self.initialized or self.init_dumps,
        ):
            self.dump = Owner.THEIRS if self.server else Owner.OURS
            self.server = True

    @rule(file=_FILES)
    def set_dump(self, file: File) -> None:
        if self.attempt(
            lambda: self.life.set_dump(self.path(file)),
            lambda: int(self.library.aclmdlSetDump(os.fsencode(self.path(file)))),
            by_runtime=self.references == 0 or not self.server or file.refused,
            by_rule=not self.initialized or self.dump is Owner.NOBODY,
        ):
            self.in_force = self.in_force if file is File.EMPTY else file

    @rule()
    def finalize_dump(self) -> None:
        if self.attempt(
            self.life.finalize_dump,
            lambda: int(self.library.aclmdlFinalizeDump()),
            by_runtime=self.references == 0 or not self.server,
            by_rule=not self.initialized or self.dump is not Owner.OURS,
        ):
            self.dump, self.server, self.in_force = Owner.NOBODY, False, None

    @rule()
    def register(self) -> None:
        if self.attempt(self.life.register, by_rule=self.registered):
            self.registered = True

    @rule()
    def unregister(self) -> None:
        dumping = self.dump is Owner.OURS or self.init_dumps
        if self.attempt(self.life.unregister, by_rule=not self.registered or dumping):
            self.registered = False

    @precondition(lambda self: self.references == 0)
    @rule()
    def the_program_initialises(self) -> None:
        assert self.library.aclInit(None) == 0
        self.references = 1

    @precondition(lambda self: self.references > 0 and not self.server and self.dump is Owner.NOBODY)
    @rule()
    def the_program_begins_the_dump(self) -> None:
        assert self.library.aclmdlInitDump() == 0
        self.server = True

    @precondition(lambda self: self.initialized)
    @rule()
    def load_the_model(self) -> None:
        with opened(Workload(models=1, ops=2, tensor_bytes="16")) as workload:
            self.library.dssim_load(workload)
        self.library.dssim_load_models()
        self.life.loaded("model")
        # The program does not tell us how its dump is configured; it may be as we configured it long ago.
        theirs = self.server and self.dump is not Owner.OURS
        self.predictable = not theirs or self.life.config is not None

    @precondition(lambda self: self.predictable)
    @rule()
    def run_the_model(self) -> None:
        sent = self.library.dssim_run(1)

        assert (sent > 0) == (self.life.models["model"] is not None)

    @invariant()
    def the_lifecycle_knows_the_state(self) -> None:
        expected = None if self.in_force is None or not self.in_force.dumps else self.path(self.in_force)
        assert (self.life.acl is not Owner.NOBODY) == self.initialized
        assert (self.life.dump, self.life.registered) == (self.dump, self.registered)
        assert self.life.config == expected

    def attempt(
        self,
        call: Callable[[], object],
        raw: Callable[[], int] | None = None,
        *,
        by_runtime: bool = False,
        by_rule: bool = False,
    ) -> bool:
        """Make the *call*; True if it was allowed, as it must be unless runtime or a rule refuses it.

        A refusal of the runtime's that comes through is an error here: it should have been refused before.
        If the runtime refuses, so does *raw*, the same call without the lifecycle.
        """
        try:
            call()
        except (OrderError, ConfigError):
            assert by_runtime or by_rule
            assert raw is None or not by_runtime or raw() != 0
            return False
        assert not by_runtime
        assert not by_rule
        return True

    def raises_order_error(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OrderError:
            return
        raise AssertionError("allowed")

    def init_by_the_program(self, file: File | None) -> int:
        code = int(self.library.aclInit(None if file is None else os.fsencode(self.path(file))))
        if code == _REPEAT_INITIALIZE:
            assert self.library.aclFinalizeReference(None) == 0
        return code

    def path(self, file: File) -> Path:
        return self.directory / file


TestCallOrders: Any = CallOrders.TestCase
TestCallOrders.settings = settings(max_examples=50, stateful_step_count=60, deadline=None)
