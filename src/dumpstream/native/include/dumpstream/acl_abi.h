/* The part of CANN's dump interface that dumpstream uses, with the layout of CANN's
 * own headers, which must not be changed here. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ACL_DUMP_MAX_FILE_PATH_LENGTH 4096

typedef int aclError;

/* The payload starts at offset 4116, four bytes before sizeof: never compute
 * its place from sizeof. It is aligned to four bytes only. */
typedef struct acldumpChunk {
    char fileName[ACL_DUMP_MAX_FILE_PATH_LENGTH];
    uint32_t bufLen;
    uint32_t isLastChunk;
    int64_t offset; /* -1 appends */
    int32_t flag;
    uint8_t dataBuf[0];
} acldumpChunk;

_Static_assert(offsetof(acldumpChunk, bufLen) == 4096, "bufLen");
_Static_assert(offsetof(acldumpChunk, isLastChunk) == 4100, "isLastChunk");
_Static_assert(offsetof(acldumpChunk, offset) == 4104, "offset");
_Static_assert(offsetof(acldumpChunk, flag) == 4112, "flag");
_Static_assert(offsetof(acldumpChunk, dataBuf) == 4116, "dataBuf");
_Static_assert(sizeof(acldumpChunk) == 4120, "sizeof");

typedef int32_t (*acldumpCallback)(const acldumpChunk *chunk, int32_t len);

/* The functions that a program calls to dump, which the agent wraps. */
#pragma GCC visibility push(default)
aclError aclInit(const char *config_path);
aclError aclFinalize(void);
aclError aclFinalizeReference(uint64_t *references);
aclError aclmdlInitDump(void);
aclError aclmdlSetDump(const char *config_path);
aclError aclmdlFinalizeDump(void);
aclError acldumpRegCallback(acldumpCallback callback, int32_t flag);
void acldumpUnregCallback(void);
#pragma GCC visibility pop
