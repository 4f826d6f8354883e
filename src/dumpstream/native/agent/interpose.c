/* The ACL functions that the agent wraps, and dlsym, through which programs that do
 * not link ACL get these functions.
 *
 * A wrapper finds the function that the program would have called without the agent:
 * in the global scope after the agent, else in the scope of the caller's own library,
 * which may have been opened with RTLD_LOCAL, else where dlsym last found it, else in
 * any loaded library. CANN has front libraries that forward a function to another
 * library under the same name. Such a call arrives here again, and is only passed on
 * to the next definition. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "dump.h"
#include "dumpstream/agent.h"
#include "libraries.h"
#include "session.h"

#define MAX_FRONTS 4

DS_AGENT_API void *dlsym(void *handle, const char *name);

#define FUNCTIONS(X)                                                                                         \
    X(INIT, aclInit)                                                                                         \
    X(FINALIZE, aclFinalize)                                                                                 \
    X(FINALIZE_REFERENCE, aclFinalizeReference)                                                              \
    X(INIT_DUMP, aclmdlInitDump)                                                                             \
    X(SET_DUMP, aclmdlSetDump)                                                                               \
    X(FINALIZE_DUMP, aclmdlFinalizeDump)                                                                     \
    X(REGISTER, acldumpRegCallback)                                                                          \
    X(UNREGISTER, acldumpUnregCallback)

#define CONSTANT(constant, wrapper) constant,
#define ENTRY(constant, wrapper) [constant] = {#wrapper, (void *)wrapper},

enum function { FUNCTIONS(CONSTANT) FUNCTION_COUNT };

static const struct {
    const char *name;
    void *wrapper;
} functions[FUNCTION_COUNT] = {FUNCTIONS(ENTRY)};

/* Where dlsym last found each function. */
static _Atomic(void *) handed_out[FUNCTION_COUNT];

/* Successful aclInit calls that no aclFinalize has undone. */
static _Atomic uint64_t references;

/* The definitions that this thread is inside, outermost first. */
static _Thread_local struct {
    const void *address[MAX_FRONTS];
    unsigned count;
} entered;

static bool is_entered(const void *address) {
    for (unsigned i = 0; i < entered.count; i++) {
        if (entered.address[i] == address)
            return true;
    }
    return false;
}

static void *find_real(enum function function, const void *caller) {
    const char *name = functions[function].name;
    struct definitions loaded;
    void *candidates[] = {next_definition(name), definition_near(name, caller),
                          atomic_load(&handed_out[function])};
    for (unsigned i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        if (candidates[i] && !is_entered(candidates[i]))
            return candidates[i];
    }
    all_definitions(name, NULL, &loaded);
    for (unsigned i = 0; i < loaded.count; i++) {
        if (!is_entered(loaded.address[i]))
            return loaded.address[i];
    }
    return NULL;
}

/* Returns the function that a wrapper stands for, or NULL. The wrapper keeps it in an ENTERED variable. */
static void *enter(enum function function, const void *caller) {
    int saved = errno;
    void *real = entered.count < MAX_FRONTS ? find_real(function, caller) : NULL;
    if (real)
        entered.address[entered.count++] = real;
    dlerror();
    errno = saved;
    return real;
}

static void leave(void *real) {
    if (*(void **)real)
        entered.count--;
}

#define ENTERED __attribute__((cleanup(leave)))

/* Whether the program made the call, not a front library or the agent. */
static bool is_outermost(void) {
    return entered.count == 1 && !session_is_working();
}

aclError aclInit(const char *config_path) {
    ENTERED aclError (*real)(const char *) = enter(INIT, __builtin_return_address(0));
    if (!real)
        return ACL_FAILURE;
    aclError code = real(config_path);
    if (is_outermost() && (code == ACL_SUCCESS || code == ACL_REPEAT_INITIALIZE)) {
        atomic_fetch_add(&references, 1);
        session_acl_initialized((const void *)real, config_path, code == ACL_SUCCESS);
    }
    return code;
}

aclError aclFinalize(void) {
    ENTERED aclError (*real)(void) = enter(FINALIZE, __builtin_return_address(0));
    if (!real)
        return ACL_FAILURE;
    bool outermost = is_outermost();
    if (outermost) {
        atomic_store(&references, 0);
        session_acl_finalizing(true);
    }
    aclError code = real();
    if (outermost)
        session_acl_finalized(true);
    return code;
}

aclError aclFinalizeReference(uint64_t *count) {
    ENTERED aclError (*real)(uint64_t *) = enter(FINALIZE_REFERENCE, __builtin_return_address(0));
    if (!real)
        return ACL_FAILURE;
    bool outermost = is_outermost();
    uint64_t held = atomic_load(&references);
    if (outermost && held > 0)
        atomic_compare_exchange_strong(&references, &held, held - 1);
    if (outermost)
        session_acl_finalizing(held <= 1);
    aclError code = real(count);
    if (outermost)
        session_acl_finalized(held <= 1);
    return code;
}

static aclError call_driving(enum function function, const void *caller) {
    ENTERED aclError (*real)(void) = enter(function, caller);
    if (!real)
        return ACL_FAILURE;
    if (is_outermost())
        session_yield(functions[function].name);
    return real();
}

aclError aclmdlInitDump(void) {
    return call_driving(INIT_DUMP, __builtin_return_address(0));
}

aclError aclmdlFinalizeDump(void) {
    return call_driving(FINALIZE_DUMP, __builtin_return_address(0));
}

aclError aclmdlSetDump(const char *config_path) {
    ENTERED aclError (*real)(const char *) = enter(SET_DUMP, __builtin_return_address(0));
    if (!real)
        return ACL_FAILURE;
    if (is_outermost())
        session_yield(functions[SET_DUMP].name);
    aclError code = real(config_path);
    if (is_outermost() && code == ACL_SUCCESS)
        session_configured(functions[SET_DUMP].name, config_path);
    return code;
}

aclError acldumpRegCallback(acldumpCallback callback, int32_t flag) {
    ENTERED aclError (*real)(acldumpCallback, int32_t) = enter(REGISTER, __builtin_return_address(0));
    if (!real)
        return ACL_FAILURE;
    bool share = is_outermost() && callback && flag == 0 && session_possible();
    return real(share ? session_share(callback) : callback, flag);
}

void acldumpUnregCallback(void) {
    ENTERED void (*real)(void) = enter(UNREGISTER, __builtin_return_address(0));
    if (real && (!is_outermost() || session_unshare()))
        real();
}

/* What dlsym returns to a program that asks for the ACL function. */
static void *look_up(void *handle, enum function function, const void *caller) {
    const char *name = functions[function].name;
    void *found = real_dlsym()(handle, name);
    /* A scope that begins with the agent has the function only if a library after the agent
     * defines it. The default scope ends with the caller's own libraries. */
    if (found && is_own(found))
        found = next_definition(name);
    if (!found && handle == RTLD_DEFAULT)
        found = definition_near(name, caller);
    if (!found)
        return NULL;
    atomic_store(&handed_out[function], found);
    return functions[function].wrapper;
}

/* Must end in a jump: glibc finds the scope of RTLD_NEXT by the return address, which must
 * be the caller's. */
void *dlsym(void *handle, const char *name) {
    if (handle != RTLD_NEXT && strncmp(name, "acl", 3) == 0) {
        for (int function = 0; function < FUNCTION_COUNT; function++) {
            if (strcmp(name, functions[function].name) == 0)
                return look_up(handle, (enum function)function, __builtin_return_address(0));
        }
    }
    return real_dlsym()(handle, name);
}
