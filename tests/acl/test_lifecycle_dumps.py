"""Each rule of the order of calls around a dump, allowed and refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from dumpstream import AclError, ConfigError, DumpWarning, Lifecycle, OrderError, Owner

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Fake, Program

_DUMP_ORDER = (
    "init, [register,] init_dump, set_dump, load and run models, finalize_dump, [unregister,] finalize"
)
_INIT_ORDER = "init(acl.json), [register,] load and run models, finalize[, unregister]"


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
        with pytest.raises(OrderError, match="another component began the dump"):
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

        with pytest.warns(DumpWarning, match="before aclrtSetDevice"):
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
