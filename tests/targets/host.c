/* A program that opens an extension, which its first argument names, with RTLD_LOCAL. The
 * extension links the runtime. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *extension = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*extension_main)(int, char **) = extension ? dlsym(extension, "extension_main") : NULL;
    if (!extension_main) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    return extension_main(argc - 1, argv + 1);
}
