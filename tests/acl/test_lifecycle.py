"""Each rule of the order of init, register and finalize, allowed and refused."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from dumpstream import AclError, ConfigError, Lifecycle, OrderError, Owner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Fake, Program


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

    def test_what_the_program_initialises_is_not_finalised(self, fake: Fake) -> None:
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
