/* The directories that profiling leaves: PROF_.../device_N and PROF_.../host. */
#pragma once

#include "prof/settings.h"

enum { MAX_PROF_PATH = 4096, MAX_PROF_NAME = 64 };

/* Chooses the name of the next PROF_... directory. */
void prof_output_name(uint64_t number, char name[MAX_PROF_NAME]);

/* One device of one PROF_... directory. */
struct prof_output {
    const char *path; /* given to aclprofInit */
    char name[MAX_PROF_NAME];
    uint32_t device;
    uint64_t data_types;
    aclprofAicoreMetrics metrics;
};

/* Make the directories and write when collecting began, and when it ended. Return whether all was written. */
bool prof_output_begin(const struct prof_output *output);
bool prof_output_end(const struct prof_output *output, const struct prof_settings *settings);
