/* Starts one program of the sysroot under emulation.
 *
 * A program of another machine cannot be started by the kernel unless binfmt_misc is set up. This one stands
 * in its place: it is a program of this machine, so scripts, launchers and emulated programs can start it.
 * It is linked statically, and hands LD_PRELOAD to the emulated program only: the loader of this machine
 * would complain about a library of the other. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *preload = getenv("LD_PRELOAD");
    char **command = calloc((size_t)argc + 8, sizeof *command), *setting;
    size_t count = 0;
    if (!command)
        return 126;
    command[count++] = "qemu-aarch64";
    command[count++] = "-L";
    command[count++] = SYSROOT;
    command[count++] = "-0";
    command[count++] = argv[0]; /* a virtual environment is found by it */
    if (preload && asprintf(&setting, "LD_PRELOAD=%s", preload) > 0) {
        command[count++] = "-E";
        command[count++] = setting;
        unsetenv("LD_PRELOAD");
    }
    command[count++] = PROGRAM;
    for (int i = 1; i < argc; i++)
        command[count++] = argv[i];
    execvp(command[0], command);
    perror("qemu-aarch64");
    return 127;
}
