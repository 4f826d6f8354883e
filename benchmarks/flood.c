/* A process that is captured, and hands over as many small chunks as it can
 * until it is told to end.
 *
 * flood KIND COUNT [PAUSE_US]
 *
 *   tiny   files of one byte, each with a name of its own
 *   same   files of one byte, all with the same name
 *   gaps   one byte at every second offset of the same file
 *   text   short statistics text, each with a name of its own
 *   rows   statistics text of many rows, all with the same name
 *
 * Waits after each chunk if it is given a pause, which makes it an honest
 * process. Prints a line when it has handed over COUNT chunks (0: it never
 * has), and then waits for the end of its input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dumpstream/acl_abi.h"

enum { PAYLOAD_BYTES = 4096, NOT_CAPTURED = 3, FAILED = 4 };

acldumpCallback bench_registered(void);

static union {
    acldumpChunk chunk;
    uint8_t space[sizeof(acldumpChunk) + PAYLOAD_BYTES];
} message;

static void set_text(const char *text) {
    message.chunk.bufLen = (uint32_t)strlen(text);
    memcpy(message.chunk.dataBuf, text, message.chunk.bufLen);
}

static int prepare(const char *kind) {
    acldumpChunk *chunk = &message.chunk;
    chunk->bufLen = 1;
    chunk->isLastChunk = strcmp(kind, "gaps") != 0;
    chunk->offset = -1;
    if (strcmp(kind, "text") == 0) {
        set_text("Input/Output,Index,Data Size\nInput,0,4096\n");
    } else if (strcmp(kind, "rows") == 0) {
        char rows[PAYLOAD_BYTES] = "Input/Output,Index,Data Size\n";
        while (strlen(rows) + 16 < sizeof rows)
            strcat(rows, "Input,0,4096\n");
        set_text(rows);
    } else if (strcmp(kind, "tiny") != 0 && strcmp(kind, "same") != 0 && strcmp(kind, "gaps") != 0) {
        return FAILED;
    }
    return 0;
}

static void number(const char *kind, uint64_t file) {
    acldumpChunk *chunk = &message.chunk;
    const char *format = "/dump/flood/file";
    if (strcmp(kind, "tiny") == 0)
        format = "/dump/flood/file.%llu";
    else if (strcmp(kind, "text") == 0)
        format = "/dump/flood/file.%llu.csv";
    else if (strcmp(kind, "rows") == 0)
        format = "/dump/flood/file.csv";
    else if (strcmp(kind, "gaps") == 0)
        chunk->offset = (int64_t)(2 * file + 1);
    snprintf(chunk->fileName, sizeof chunk->fileName, format, (unsigned long long)file);
}

int main(int argc, char **argv) {
    char byte;
    if (argc < 3 || argc > 4 || prepare(argv[1]) != 0 || aclInit(NULL) != 0)
        return FAILED;
    acldumpCallback callback = bench_registered();
    if (callback == NULL)
        return NOT_CAPTURED;
    const char *kind = argv[1];
    uint64_t count = strtoull(argv[2], NULL, 10);
    useconds_t pause_us = argc == 4 ? (useconds_t)strtoul(argv[3], NULL, 10) : 0;
    int32_t length = (int32_t)(offsetof(acldumpChunk, dataBuf) + message.chunk.bufLen);
    for (uint64_t file = 0; count == 0 || file < count; file++) {
        number(kind, file);
        if (callback(&message.chunk, length) != 0)
            break; /* the collector takes nothing more */
        if (pause_us)
            usleep(pause_us);
    }
    puts("done");
    fflush(stdout);
    return read(STDIN_FILENO, &byte, 1) < 0 || aclFinalize() != 0 ? FAILED : 0;
}
