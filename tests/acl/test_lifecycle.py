"""Each rule of the order of calls, allowed and refused; and the flows that CANN documents, end to end."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from dumpstream import (
    AclError,
    ConfigError,
    Lifecycle,
    OrderError,
    Owner,
    _native,
    load_acl,
)
from dumpstream.simulation import Workload, dump_config, simulated_library
from dumpstream.simulation.library import load_library
from dumpstream.simulation.workload import opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Fake

_SMALL = Workload(models=1, ops=3, tensor_bytes="64")
_DUMP_ORDER = (
    "init, [register,] init_dump, set_dump, load and run models, finalize_dump, [unregister,] finalize"
)
_INIT_ORDER = "init(acl.json), [register,] load and run models, finalize[, unregister]"


class Program:
    """A program on the simulated runtime, which loads models and runs them."""

    def __init__(self, directory: Path) -> None:
        self.library = load_library()
        self.lifecycle = Lifecycle(load_acl(simulated_library()))
        self._directory = directory

    def config(self, name: str, **changes: object) -> Path:
        """Write a configuration with a dump_path of its own."""
        dump_path = self._directory / name
        dump_path.mkdir()
        root = json.loads(dump_config(dump_path))
        root["dump"] |= changes
        path = self._directory / f"{name}.json"
        path.write_text(json.dumps(root))
        return path

    def load(self) -> None:
        """Load a model, instead of the one before."""
        with opened(_SMALL) as workload:
            self.library.dssim_load(workload)
        self.library.dssim_load_models()

    def run(self) -> int:
        """Run the model for one step; return how many files it dumped."""
        return int(self.library.dssim_run(1))

    def load_and_run(self) -> None:
        self.load()
        self.run()

    def dumped_to_disk(self, name: str) -> int:
        """Return the number of files below the dump_path of configuration *name*."""
        return sum(1 for path in (self._directory / name).rglob("*") if path.is_file())


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    library = load_library()
    library.dssim_reset()
    yield Program(tmp_path)
    library.dssim_reset()


@pytest.fixture
def life(program: Program) -> Lifecycle:
    return program.lifecycle


@contextmanager
def filled_ring() -> Iterator[_native.Ring]:
    """Let the callback fill a ring."""
    ring = _native.Ring(4 << 20)
    ring.attach(False, 0, 1 << 40)
    try:
        yield ring
    finally:
        ring.detach(10**10)
        ring.close()


def chunks_in(ring: _native.Ring) -> int:
    """Return the number of chunks in *ring*, and empty it."""
    count = 0
    while (leased := ring.lease(4096, 4 << 20)) is not None:
        chunks, losses, lease = leased
        assert not losses
        count += len(chunks)
        del chunks
        lease.release()
    return count


class TestFlows:
    def test_to_files_again_and_again_with_other_configurations(self, program: Program) -> None:
        life, first, second = program.lifecycle, program.config("first"), program.config("second")
        counts = []

        life.init()
        for config in (first, second):
            life.init_dump()
            life.set_dump(config)
            program.load_and_run()
            life.finalize_dump()
            counts.append((program.dumped_to_disk("first"), program.dumped_to_disk("second")))
        program.load_and_run()
        life.finalize()

        assert counts[0][0] > 0
        assert counts == [(counts[0][0], 0), (counts[0][0], counts[0][0])]
        assert (program.dumped_to_disk("first"), program.dumped_to_disk("second")) == counts[1]

    def test_by_callback_two_models_under_one_registration(self, program: Program) -> None:
        life, config = program.lifecycle, program.config("first")
        counts = []

        with filled_ring() as ring:
            life.init()
            life.register()
            for models in (1, 2):
                life.init_dump()
                life.set_dump(config)
                for _ in range(models):
                    program.load_and_run()
                life.finalize_dump()
                counts.append(chunks_in(ring))
            life.unregister()
            life.finalize()

        assert counts[0] > 0
        assert counts[1] == 2 * counts[0]
        assert program.dumped_to_disk("first") == 0

    def test_by_callback_without_set_dump_nothing_comes_and_nothing_is_refused(
        self, program: Program
    ) -> None:
        life = program.lifecycle

        with filled_ring() as ring:
            life.init()
            life.register()
            life.init_dump()
            program.load_and_run()
            life.finalize_dump()
            life.unregister()
            life.finalize()

            assert chunks_in(ring) == 0

    def test_configured_by_init_once_per_process(self, program: Program) -> None:
        life, config = program.lifecycle, program.config("first")

        with filled_ring() as ring:
            assert life.init(config)
            life.register()
            program.load_and_run()
            life.finalize()
            life.unregister()
            count = chunks_in(ring)

        assert count > 0
        assert program.dumped_to_disk("first") == 0


class TestInit:
    def test_twice_is_refused_and_once_again_after_finalize_is_not(self, life: Lifecycle) -> None:
        assert life.init()

        with pytest.raises(OrderError, match="init: ACL is initialised already"):
            life.init()

        life.finalize()
        assert life.init()

    def test_framework_that_did_it_first_keeps_it(self, program: Program) -> None:
        life, library = program.lifecycle, program.library
        assert library.aclInit(None) == 0

        first = life.init()
        owner = life.acl
        life.finalize()

        assert not first
        assert owner is Owner.THEIRS
        assert library.aclmdlInitDump() == 0  # still initialised

    def test_framework_that_gives_its_reference_back_ends_it(self, program: Program) -> None:
        life, library = program.lifecycle, program.library
        assert library.aclInit(None) == 0
        life.init()

        life.finalize()

        assert library.aclFinalizeReference(None) == 0
        assert library.aclmdlInitDump() == 100001

    def test_without_references_only_what_was_ours_is_finalised(self, fake: Fake) -> None:
        ours, theirs = Lifecycle(fake.acl), Lifecycle(fake.acl)

        ours.init()
        ours.finalize()
        fake["aclInit"] = 100002
        theirs.init()
        theirs.finalize()

        assert fake.calls == ["aclInit", "aclFinalize", "aclInit"]

    def test_configuration_that_a_framework_kept_from_being_in_force_is_an_error(
        self, program: Program
    ) -> None:
        life, config = program.lifecycle, program.config("first")
        program.library.aclInit(None)

        with pytest.raises(OrderError, match=r"first\.json is not in force: give it to set_dump"):
            life.init(config)

        assert life.acl is Owner.THEIRS
        life.init_dump()
        life.set_dump(config)

    def test_another_configuration_is_refused_also_after_finalize(self, program: Program) -> None:
        life, config, other = program.lifecycle, program.config("first"), program.config("other")
        life.init(config)
        life.finalize()

        with pytest.raises(OrderError, match="one configuration per process"):
            life.init(other)

        assert life.init(config)

    def test_empty_file_is_no_configuration(self, program: Program, tmp_path: Path) -> None:
        life, empty = program.lifecycle, tmp_path / "empty.json"
        empty.write_bytes(b"")
        life.init(empty)
        life.finalize()

        assert life.init(program.config("first"))

    def test_configuration_that_cann_refuses_is_not_passed_on(self, fake: Fake, config: Path) -> None:
        config.write_text('{"dump": {"dump_path": "/nowhere/at/all"}}')

        with pytest.raises(ConfigError, match="make a directory"):
            Lifecycle(fake.acl).init(config)

        assert fake.calls == []

    def test_error_of_the_runtime_leaves_it_uninitialised(self, fake: Fake) -> None:
        life = Lifecycle(fake.acl)
        fake["aclInit"] = 500000

        with pytest.raises(AclError, match="aclInit returned 500000"):
            life.init()

        assert life.acl is Owner.NOBODY


class TestFinalize:
    def test_without_init_is_refused(self, life: Lifecycle) -> None:
        with pytest.raises(OrderError, match="finalize: aclInit was not called here"):
            life.finalize()

    def test_what_somebody_else_initialises_is_not_finalised(self, fake: Fake) -> None:
        life = Lifecycle(fake.acl, initialized=True)

        with pytest.raises(OrderError, match="finalising is not for us"):
            life.finalize()

        assert fake.calls == []

    def test_while_dumping_is_refused(self, life: Lifecycle) -> None:
        life.init()
        life.init_dump()

        with pytest.raises(OrderError, match="finalize: the dump is not finalised"):
            life.finalize()

        life.finalize_dump()
        life.finalize()


class TestInitDump:
    def test_before_init_is_refused_with_the_right_order(self, life: Lifecycle) -> None:
        with pytest.raises(OrderError) as caught:
            life.init_dump()

        assert (caught.value.call, caught.value.problem) == ("init_dump", "ACL is not initialised")
        assert caught.value.order == _DUMP_ORDER
        assert str(caught.value) == f"init_dump: ACL is not initialised; the order is: {_DUMP_ORDER}"

    def test_twice_is_refused_and_once_again_after_finalize_dump_is_not(self, life: Lifecycle) -> None:
        life.init()
        assert life.init_dump()

        with pytest.raises(OrderError, match="init_dump: the dump is initialised already"):
            life.init_dump()

        life.finalize_dump()
        assert life.init_dump()

    def test_framework_that_did_it_first_has_to_end_it(self, program: Program) -> None:
        life, library = program.lifecycle, program.library
        life.init()
        assert library.aclmdlInitDump() == 0

        first = life.init_dump()
        life.set_dump(program.config("first"))
        with pytest.raises(OrderError, match="somebody else began the dump"):
            life.finalize_dump()

        assert not first
        assert life.dump is Owner.THEIRS
        assert library.aclmdlFinalizeDump() == 0

    def test_dump_that_init_configured_is_not_initialised_again(self, program: Program) -> None:
        program.lifecycle.init(program.config("first"))

        with pytest.raises(OrderError, match="100044") as caught:
            program.lifecycle.init_dump()

        assert caught.value.order == _INIT_ORDER

    @pytest.mark.parametrize("content", ["{}", '{"dump": {"dump_scene": "aic_err_norm_dump"}}'])
    def test_init_that_switched_no_operators_on_leaves_it_free(
        self, fake: Fake, config: Path, content: str
    ) -> None:
        config.write_text(content)
        life = Lifecycle(fake.acl)
        life.init(config)

        assert life.init_dump()


class TestSetDump:
    def test_before_init_dump_is_refused(self, program: Program) -> None:
        program.lifecycle.init()

        with pytest.raises(OrderError, match="set_dump: the dump is not initialised"):
            program.lifecycle.set_dump(program.config("first"))

    def test_before_init_is_refused(self, program: Program) -> None:
        with pytest.raises(OrderError, match="set_dump: ACL is not initialised"):
            program.lifecycle.set_dump(program.config("first"))

    def test_configuration_that_cann_refuses_is_not_passed_on(self, fake: Fake, config: Path) -> None:
        life = Lifecycle(fake.acl, initialized=True)
        life.init_dump()
        config.write_text('{"dump": {"dump_path": "/nowhere/at/all", "dump_mode": "some"}}')

        with pytest.raises(ConfigError) as caught:
            life.set_dump(config)

        assert len(caught.value.problems) == 2
        assert fake.calls == ["aclmdlInitDump"]

    def test_second_one_replaces_the_first(self, program: Program) -> None:
        life, first, second = program.lifecycle, program.config("first"), program.config("second")
        life.init()
        life.init_dump()

        life.set_dump(first)
        life.set_dump(second)
        in_force = life.config
        program.load_and_run()
        life.finalize_dump()

        assert in_force == second
        assert program.dumped_to_disk("first") == 0
        assert program.dumped_to_disk("second") > 0

    def test_empty_file_changes_nothing_and_an_empty_object_switches_off(
        self, fake: Fake, config: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.json"
        life = Lifecycle(fake.acl, initialized=True)
        life.init_dump()
        life.set_dump(config)
        other.write_bytes(b"")

        life.set_dump(other)
        after_empty = life.config
        other.write_bytes(b"{}")
        life.set_dump(other)

        assert after_empty == config
        assert life.config is None

    def test_model_loaded_before_it_is_not_dumped_until_it_is_loaded_again(self, program: Program) -> None:
        life, config = program.lifecycle, program.config("first")
        life.init()
        life.init_dump()

        program.load()
        life.set_dump(config)
        early = program.run()
        program.load()
        late = program.run()
        life.finalize_dump()

        assert early == 0
        assert late > 0

    def test_only_models_loaded_after_it_are_affected(self, fake: Fake, config: Path) -> None:
        life = Lifecycle(fake.acl, initialized=True)
        life.init_dump()
        life.loaded("early")

        unaffected = life.set_dump(config)

        assert unaffected == ("early",)
        assert life.loaded("late") == config
        assert life.models == {"early": None, "late": config}

    def test_model_is_not_dumped_by_a_later_dump_before_it_is_loaded_again(
        self, fake: Fake, config: Path
    ) -> None:
        life = Lifecycle(fake.acl, initialized=True)
        life.init_dump()
        life.set_dump(config)
        life.loaded("model")
        life.finalize_dump()
        ended = dict(life.models)

        life.init_dump()
        life.set_dump(config)
        still = dict(life.models)
        life.unloaded("model")
        life.loaded("model")

        assert ended == still == {"model": None}
        assert life.models == {"model": config}


class TestFinalizeDump:
    def test_before_init_dump_is_refused(self, life: Lifecycle) -> None:
        life.init()

        with pytest.raises(OrderError, match="finalize_dump: the dump is not initialised"):
            life.finalize_dump()

    def test_twice_is_refused(self, life: Lifecycle) -> None:
        life.init()
        life.init_dump()
        life.finalize_dump()

        with pytest.raises(OrderError, match="finalize_dump: the dump is not initialised"):
            life.finalize_dump()

    def test_detail_mode_cannot_be_finalised_and_a_replaced_one_can(
        self, fake: Fake, config: Path, tmp_path: Path
    ) -> None:
        detail = tmp_path / "detail.json"
        detail.write_text('{"dump": {"dump_scene": "aic_err_detail_dump"}}')
        life = Lifecycle(fake.acl, initialized=True)
        life.register()
        life.init_dump()

        life.set_dump(detail)
        with pytest.raises(OrderError, match="stays on until the process ends"):
            life.finalize_dump()
        finalizable = life.finalizable
        life.unregister()
        life.set_dump(config)
        life.finalize_dump()

        assert not finalizable
        assert fake.calls[-1] == "aclmdlFinalizeDump"

    def test_failure_leaves_the_dump_on_and_lets_go_of_the_callback(self, fake: Fake) -> None:
        fake["aclmdlFinalizeDump"] = 500000
        life = Lifecycle(fake.acl)
        life.init()
        life.register()
        life.init_dump()

        with pytest.raises(AclError, match="aclmdlFinalizeDump returned 500000"):
            life.finalize_dump()

        assert life.finalizable
        life.unregister()
        life.finalize()
        assert fake.calls[-2:] == ["acldumpUnregCallback", "aclFinalize"]


class TestRegister:
    def test_second_registration_of_ours_is_refused(self, life: Lifecycle) -> None:
        life.register()

        with pytest.raises(OrderError, match="CANN ignores a second one"):
            life.register()

        life.unregister()
        life.register()

    def test_may_come_before_everything_else(self, life: Lifecycle) -> None:
        life.register()

        assert life.registered

    def test_unregistering_what_is_not_registered_is_refused(self, life: Lifecycle) -> None:
        with pytest.raises(OrderError, match="unregister: our callback is not registered"):
            life.unregister()

    def test_unregistering_before_the_dump_is_finalised_is_refused(self, life: Lifecycle) -> None:
        life.init()
        life.register()
        life.init_dump()

        with pytest.raises(OrderError, match="unregister: the dump is not finalised"):
            life.unregister()

        life.finalize_dump()
        life.unregister()

    def test_unregistering_before_finalize_is_refused_if_init_configured_the_dump(
        self, program: Program
    ) -> None:
        life = program.lifecycle
        life.init(program.config("first"))
        life.register()

        with pytest.raises(OrderError, match="ends with finalize"):
            life.unregister()

        life.finalize()
        life.unregister()


class TestThreads:
    def test_calls_of_several_threads_follow_one_another(self, life: Lifecycle) -> None:
        life.init()
        results: list[object] = []
        begin = threading.Barrier(8)

        def call(function: Callable[[], object]) -> None:
            begin.wait()
            try:
                results.append(function())
            except OrderError:  # not the runtime's refusal
                results.append(OrderError)

        threads = [threading.Thread(target=call, args=(life.init_dump,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(results, key=str) == sorted([True, *[OrderError] * 7], key=str)


def test_path_may_be_any_path(program: Program) -> None:
    life, config = program.lifecycle, program.config("first")
    life.init(os.fspath(config))
    life.finalize()

    assert life.init(config)
