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
from dumpstream.acl import Acl, Dump, load_acl

if TYPE_CHECKING:
    from collections.abc import Callable

#: Functions that write down that they were called, and return what `code_<name>` says.
FAKE = r"""
#include <string.h>

char calls[1000], config[4096];
void *registered;

static int called(const char *name, int code) {
    strcat(strcat(calls, name), " ");
    return code;
}

#define FUNCTION(name) \
    int code_##name; \
    int name(void) { return called(#name, code_##name); }

#ifdef WITH_DUMP
int code_acldumpRegCallback;
int acldumpRegCallback(void *callback, int flag) {
    registered = flag == 0 ? callback : NULL;
    return called("acldumpRegCallback", code_acldumpRegCallback);
}
FUNCTION(acldumpUnregCallback)
#endif

#ifdef WITH_ACL
FUNCTION(aclmdlInitDump)
FUNCTION(aclmdlFinalizeDump)
FUNCTION(aclrtSynchronizeDevice)
FUNCTION(aclrtSetCurrentContext)
int code_aclmdlSetDump;
int aclmdlSetDump(const char *path) {
    strcpy(config, path);
    return called("aclmdlSetDump", code_aclmdlSetDump);
}
int code_aclrtGetCurrentContext;
int aclrtGetCurrentContext(void **context) {
    *context = (void *)0x7700;
    return code_aclrtGetCurrentContext;
}
#endif
"""


def build(path: Path, *parts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        str(path),
        *(f"-DWITH_{part}" for part in parts),
    ]
    subprocess.run(command, input=FAKE, text=True, check=True)
    return path


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a library that has everything, and CANN's two that share it out."""
    directory = tmp_path_factory.mktemp("with a space") / "lib"
    build(directory / "everything.so", "DUMP", "ACL")
    build(directory / "libascend_dump.so", "DUMP")
    build(directory / "libacl_rt.so", "ACL")
    return directory


class Fake:
    """A library of its own for each test, and what was done to it."""

    def __init__(self, path: Path) -> None:
        self.acl = load_acl(path)
        self._library = ctypes.CDLL(str(path))

    def __setitem__(self, function: str, code: int) -> None:
        ctypes.c_int.in_dll(self._library, f"code_{function}").value = code

    @property
    def calls(self) -> list[str]:
        return (ctypes.c_char * 1000).in_dll(self._library, "calls").value.decode().split()

    @property
    def config(self) -> bytes:
        return (ctypes.c_char * 4096).in_dll(self._library, "config").value

    @property
    def registered(self) -> int | None:
        return ctypes.c_void_p.in_dll(self._library, "registered").value


@pytest.fixture
def fake(libraries: Path, tmp_path: Path) -> Fake:
    return Fake(Path(shutil.copy(libraries / "everything.so", tmp_path / "fake.so")))


@pytest.fixture
def only_dump(libraries: Path, tmp_path: Path) -> Fake:
    return Fake(Path(shutil.copy(libraries / "libascend_dump.so", tmp_path / "dump_only.so")))


def load_in_process(script: str, **environment: str) -> list[str]:
    """Run *script*, which makes `acl`, in a process of its own; return the paths in use or the error."""
    program = f"""
import ctypes, os
from dumpstream._errors import LibraryNotFoundError
from dumpstream.acl import load_acl
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
        self, libraries: Path, tmp_path: Path
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

    def test_old_single_library_is_enough(self, tmp_path: Path) -> None:
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

    def test_named_library_without_the_callback_says_so(self, tmp_path: Path) -> None:
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


class TestDump:
    CONFIG = Path("acl.json")

    def test_without_configuration_only_the_callback_is_registered(self, fake: Fake) -> None:
        dump = Dump(fake.acl, None)

        dump.begin()

        assert not dump.finalize(None)
        assert fake.calls == ["acldumpRegCallback"]

    def test_with_configuration_it_starts_the_dump_and_stops_it_once(self, fake: Fake) -> None:
        dump = Dump(fake.acl, self.CONFIG)

        dump.begin()

        assert dump.finalize(None)
        assert not dump.finalize(None)
        assert fake.calls == ["acldumpRegCallback", "aclmdlInitDump", "aclmdlSetDump", "aclmdlFinalizeDump"]

    def test_dump_that_somebody_else_started_is_not_stopped(self, fake: Fake) -> None:
        fake["aclmdlInitDump"] = 100002
        dump = Dump(fake.acl, self.CONFIG)

        dump.begin()

        assert not dump.finalize(0x7700)
        assert fake.calls == ["acldumpRegCallback", "aclmdlInitDump", "aclmdlSetDump"]

    def test_device_is_synchronised_before_the_dump_is_stopped(self, fake: Fake) -> None:
        dump = Dump(fake.acl, self.CONFIG)
        dump.begin()

        dump.finalize(0x7700)

        assert fake.calls[3:] == ["aclrtSetCurrentContext", "aclrtSynchronizeDevice", "aclmdlFinalizeDump"]

    def test_device_that_fails_does_not_keep_the_dump_going(self, fake: Fake) -> None:
        fake["aclrtSynchronizeDevice"] = 507018
        dump = Dump(fake.acl, self.CONFIG)
        dump.begin()

        with pytest.raises(AclError, match="aclrtSynchronizeDevice returned 507018"):
            dump.finalize(0x7700)

        assert fake.calls[-1] == "aclmdlFinalizeDump"

    def test_dump_that_could_not_be_stopped_is_known_to_go_on(self, fake: Fake) -> None:
        fake["aclmdlFinalizeDump"] = 500000
        dump = Dump(fake.acl, self.CONFIG)
        dump.begin()

        with pytest.raises(AclError, match="aclmdlFinalizeDump returned 500000"):
            dump.finalize(None)

        assert dump.started

    @pytest.mark.parametrize("done", [Dump.undo, Dump.leave])
    def test_what_was_undone_or_left_is_not_undone_again(
        self, fake: Fake, done: Callable[[Dump], None]
    ) -> None:
        dump = Dump(fake.acl, self.CONFIG)
        dump.begin()
        done(dump)
        calls = list(fake.calls)

        dump.undo()

        assert fake.calls == calls

    def test_refused_registration_begins_nothing(self, fake: Fake) -> None:
        fake["acldumpRegCallback"] = 500000

        with pytest.raises(AclError, match="acldumpRegCallback returned 500000"):
            Dump(fake.acl, self.CONFIG).begin()

        assert fake.calls == ["acldumpRegCallback"]

    def test_dump_that_cannot_start_is_unregistered(self, fake: Fake) -> None:
        fake["aclmdlInitDump"] = 100001

        with pytest.raises(AclError, match="aclmdlInitDump returned 100001"):
            Dump(fake.acl, self.CONFIG).begin()

        assert fake.calls == ["acldumpRegCallback", "aclmdlInitDump", "acldumpUnregCallback"]

    @pytest.mark.parametrize("finalize_code", [0, 500000])
    def test_refused_configuration_undoes_everything(self, fake: Fake, finalize_code: int) -> None:
        fake["aclmdlSetDump"] = 100009
        fake["aclmdlFinalizeDump"] = finalize_code

        with pytest.raises(AclError, match="aclmdlSetDump returned 100009"):
            Dump(fake.acl, self.CONFIG).begin()

        assert fake.calls == [
            "acldumpRegCallback",
            "aclmdlInitDump",
            "aclmdlSetDump",
            "aclmdlFinalizeDump",
            "acldumpUnregCallback",
        ]

    def test_missing_function_undoes_the_registration(self, only_dump: Fake) -> None:
        with pytest.raises(LibraryNotFoundError, match="has no aclmdlInitDump"):
            Dump(only_dump.acl, self.CONFIG).begin()

        assert only_dump.calls == ["acldumpRegCallback", "acldumpUnregCallback"]
