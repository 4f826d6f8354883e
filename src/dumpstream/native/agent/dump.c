#include "dump.h"

#include "libraries.h"
#include "report.h"

#define DUMP_LIBRARY "libascend_dump.so"

typedef aclError (*plain_call)(void);
typedef aclError (*path_call)(const char *path);
typedef aclError (*register_call)(acldumpCallback callback, int32_t flag);
typedef void (*unregister_call)(void);
typedef aclError (*context_call)(void **context);

static void *find(const char *name, const void *library) {
    struct definitions found;
    void *near = definition_near(name, library);
    if (near)
        return near;
    all_definitions(name, NULL, &found);
    return found.count ? found.address[0] : NULL;
}

bool dump_register(const void *library, acldumpCallback callback) {
    static const char name[] = "acldumpRegCallback";
    struct definitions found;
    bool registered = false;
    all_definitions(name, library, &found);
    if (!found.count && load_library(DUMP_LIBRARY, library))
        all_definitions(name, library, &found);
    if (!found.count)
        report_call(name, NULL, ACL_FAILURE);
    for (unsigned i = 0; i < found.count; i++) {
        aclError code = ((register_call)found.address[i])(callback, 0);
        report_call(name, found.address[i], code);
        registered = registered || code == ACL_SUCCESS;
    }
    return registered;
}

void dump_unregister(const void *library) {
    static const char name[] = "acldumpUnregCallback";
    struct definitions found;
    all_definitions(name, library, &found);
    for (unsigned i = 0; i < found.count; i++) {
        ((unregister_call)found.address[i])();
        report_call(name, found.address[i], ACL_SUCCESS);
    }
}

/* Calls a function that takes a path, or nothing if `path` is NULL. */
static aclError call(const char *name, const void *library, const char *path) {
    void *function = find(name, library);
    aclError code = ACL_FAILURE;
    if (function)
        code = path ? ((path_call)function)(path) : ((plain_call)function)();
    report_call(name, function, code);
    return code;
}

aclError dump_start(const void *library, const char *path) {
    aclError code = call("aclmdlInitDump", library, NULL);
    if (code != ACL_SUCCESS)
        return code;
    code = call("aclmdlSetDump", library, path);
    if (code != ACL_SUCCESS)
        dump_stop(library);
    return code;
}

void dump_stop(const void *library) {
    call("aclmdlFinalizeDump", library, NULL);
}

void dump_synchronize(const void *library) {
    void *context = NULL;
    context_call current = (context_call)find("aclrtGetCurrentContext", library);
    plain_call synchronize = (plain_call)find("aclrtSynchronizeDevice", library);
    if (current && synchronize && current(&context) == ACL_SUCCESS && context)
        synchronize();
}
