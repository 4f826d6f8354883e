from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dumpstream import _native
from dumpstream._errors import AclError, LibraryNotFoundError
from dumpstream.acl.library import Acl, load_acl

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Fake


def load_in_process(script: str, **environment: str) -> list[str]:
    """Run *script*, which makes `acl`, in a process of its own; return the paths in use or the error."""
    program = f"""
import ctypes, os
from dumpstream._errors import LibraryNotFoundError
from dumpstream.acl.library import load_acl
try:
    {script}
    acl.register()
    print(*acl.paths, sep="\\n")
except LibraryNotFoundError as error:
    print(error)
"""
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in {"DUMPSTREAM_ACL_LIBRARY", "ASCEND_HOME_PATH", "LD_LIBRARY_PATH"}
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean | environment, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


class TestLoading:
    def test_named_library_comes_before_the_environment_s(self, libraries: Path) -> None:
        named = libraries / "everything.so"

        paths = load_in_process(f"acl = load_acl({str(named)!r})", DUMPSTREAM_ACL_LIBRARY="/missing.so")

        assert paths[0] == str(named)

    def test_environment_comes_before_what_is_loaded(self, libraries: Path) -> None:
        loaded, named = libraries / "libascend_dump.so", libraries / "everything.so"

        paths = load_in_process(
            f"ctypes.CDLL({str(loaded)!r}, ctypes.RTLD_GLOBAL); acl = load_acl()",
            DUMPSTREAM_ACL_LIBRARY=str(named),
        )

        assert paths[0] == str(named)

    def test_globally_loaded_library_comes_before_an_installed_one(self, libraries: Path) -> None:
        loaded = libraries / "everything.so"

        paths = load_in_process(
            f"ctypes.CDLL({str(loaded)!r}, ctypes.RTLD_GLOBAL); acl = load_acl()",
            LD_LIBRARY_PATH=str(libraries),
        )

        assert paths == ["this process"]

    def test_privately_loaded_library_comes_before_an_installed_one(
        self, build: Callable[..., Path], libraries: Path, tmp_path: Path
    ) -> None:
        build(tmp_path / "lib64" / "libascend_dump.so", "DUMP")
        loaded = [libraries / "libascend_dump.so", libraries / "libacl_rt.so"]

        paths = load_in_process(
            f"kept = [ctypes.CDLL(path) for path in {[str(path) for path in loaded]}]; acl = load_acl()",
            ASCEND_HOME_PATH=str(tmp_path),
        )

        assert paths[0] == "this process"
        assert sorted(paths[1:]) == sorted(str(path) for path in loaded)

    def test_installed_libraries_are_found_on_the_loader_s_path(self, libraries: Path) -> None:
        paths = load_in_process("acl = load_acl()", LD_LIBRARY_PATH=str(libraries))

        assert paths == ["libascend_dump.so", "libacl_rt.so"]

    @pytest.mark.parametrize("folder", ["lib64", "runtime/lib64"])
    def test_installed_libraries_are_found_under_the_home(
        self, tmp_path: Path, libraries: Path, folder: str
    ) -> None:
        shutil.copytree(libraries, tmp_path / folder)

        paths = load_in_process("acl = load_acl()", ASCEND_HOME_PATH=str(tmp_path))

        assert paths == [f"{tmp_path}/{folder}/libascend_dump.so", f"{tmp_path}/{folder}/libacl_rt.so"]

    def test_old_single_library_is_enough(self, build: Callable[..., Path], tmp_path: Path) -> None:
        build(tmp_path / "libascendcl.so", "DUMP", "ACL")

        paths = load_in_process("acl = load_acl()", LD_LIBRARY_PATH=str(tmp_path))

        assert paths == ["libascendcl.so"]

    def test_error_lists_what_was_tried_and_what_to_do(self, tmp_path: Path) -> None:
        (message,) = load_in_process("acl = load_acl()", ASCEND_HOME_PATH=str(tmp_path))

        for tried in (
            "the libraries loaded in this process",
            "libascend_dump.so",
            "libacl_rt.so",
            "libascendcl.so",
            f"{tmp_path}/lib64/libascend_dump.so",
            f"{tmp_path}/runtime/lib64/libascendcl.so",
        ):
            assert tried in message
        assert "Source CANN's set_env.sh" in message
        assert "--acl-lib, acl_library= or DUMPSTREAM_ACL_LIBRARY" in message

    def test_named_library_that_is_missing_is_not_replaced(self, tmp_path: Path) -> None:
        with pytest.raises(LibraryNotFoundError, match=r"tried .*missing\.so: cannot open") as info:
            load_acl(tmp_path / "missing.so")

        assert len(info.value.tried) == 1

    def test_named_library_without_the_callback_says_so(
        self, build: Callable[..., Path], tmp_path: Path
    ) -> None:
        library = build(tmp_path / "acl_only.so", "ACL")

        with pytest.raises(LibraryNotFoundError, match=r"acl_only\.so \(has no acldumpRegCallback\)"):
            load_acl(library)


class TestErrors:
    def test_error_names_function_and_code(self, fake: Fake) -> None:
        fake["aclmdlSetDump"] = 100003

        with pytest.raises(AclError) as info:
            fake.acl.set_dump(Path("acl.json"))

        assert (info.value.function, info.value.code) == ("aclmdlSetDump", 100003)

    def test_missing_function_names_the_libraries(self, only_dump: Fake) -> None:
        with pytest.raises(LibraryNotFoundError, match=r"dump_only\.so \(has no aclmdlInitDump\)"):
            only_dump.acl.init_dump()


class TestCalls:
    def test_callback_of_the_ring_is_registered(self, fake: Fake) -> None:
        fake.acl.register()

        assert fake.registered == _native.callback_address()

    def test_configuration_is_passed_as_its_bytes(self, fake: Fake) -> None:
        fake.acl.set_dump(Path("/dir/\udcff.json"))

        assert fake.config == b"/dir/\xff.json"

    def test_context_is_the_thread_s_or_none(self, fake: Fake, only_dump: Fake) -> None:
        with_context = fake.acl.current_context()
        fake["aclrtGetCurrentContext"] = 107002

        assert with_context == 0x7700
        assert fake.acl.current_context() is None
        assert only_dump.acl.current_context() is None

    def test_paths_tell_where_functions_come_from(self, libraries: Path) -> None:
        path = str(libraries / "everything.so")

        assert Acl([ctypes.CDLL(None), ctypes.CDLL(path)]).paths == ("this process", path)
