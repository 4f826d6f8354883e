# Debian's cross compiler, with the headers and libraries of the sysroot that sysroot.sh makes.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
get_filename_component(CMAKE_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64/sysroot ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})

# The interpreter that builds the wheel runs here, so its own headers are of the wrong machine.
file(GLOB Python_INCLUDE_DIR ${CMAKE_SYSROOT}/usr/include/python3.*)
