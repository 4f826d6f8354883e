#include "workload/workload.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME(constant, name) [constant] = name,
const char *const fault_names[FAULT_COUNT] = {FAULTS(NAME)};

enum { MAX_LINE = 1024 };

#define MAX_TENSOR_BYTES (UINT64_C(1) << 40)

struct number_key {
    const char *name;
    size_t place;
    uint64_t least;
    uint64_t most;
};

#define NUMBER(field, least, most) {#field, offsetof(struct dssim_workload, field), least, most}

static const struct number_key number_keys[] = {
    NUMBER(seed, 0, UINT64_MAX),
    NUMBER(models, 1, 100000),
    NUMBER(ops, 1, 1000000),
    NUMBER(inputs, 0, MAX_PART),
    NUMBER(outputs, 1, MAX_PART),
    NUMBER(single_ops, 0, 1000000),
    NUMBER(device_threads, 1, MAX_DEVICE_THREADS),
    NUMBER(device_id, 0, MAX_DEVICES - 1),
    NUMBER(rate, 0, UINT64_C(1) << 50),
    NUMBER(slice_bytes, 1, 1 << 30),
    NUMBER(queue_bytes, 0, UINT64_C(1) << 50),
};

static const size_t number_key_count = sizeof number_keys / sizeof number_keys[0];

static const char *const op_types[] = {
    "MatMulV2", "Relu", "LayerNorm", "Add", "SoftmaxV2", "GatherV2", "Mul", "Cast",
};

void workload_set_defaults(struct dssim_workload *workload) {
    *workload = (struct dssim_workload){
        .models = 2,
        .ops = 8,
        .inputs = 2,
        .outputs = 1,
        .device_threads = 2,
        .slice_bytes = 128 << 20,
        .least_tensor_bytes = 1 << 10,
        .most_tensor_bytes = 64 << 10,
        .dtypes = DTYPE_DRAWN,
        .op_types = sizeof op_types / sizeof op_types[0],
        .finalize_joins = true,
    };
    for (uint32_t i = 0; i < workload->op_types; i++)
        strcpy(workload->op_type[i], op_types[i]);
    for (uint32_t i = 0; i < DTYPE_DRAWN; i++)
        workload->dtype[i] = (enum dtype)i;
}

/* Reads digits up to `end`, which may be NUL, and moves past them. */
static bool take_number(const char **text, char end, uint64_t *value) {
    char *stop;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *value = strtoull(*text, &stop, 10);
    if (errno != 0 || *stop != end)
        return false;
    *text = end ? stop + 1 : stop;
    return true;
}

static bool read_range(const char *text, uint64_t *least, uint64_t *most) {
    const char *rest = text;
    if (take_number(&rest, '\0', least))
        *most = *least;
    else if (!take_number(&rest, '-', least) || !take_number(&rest, '\0', most))
        return false;
    return *least >= 1 && *least <= *most && *most <= MAX_TENSOR_BYTES;
}

static bool read_shape(const char *text, struct dssim_workload *workload) {
    uint64_t elements = 1;
    workload->dims = 0;
    while (*text) {
        char end = strchr(text, 'x') ? 'x' : '\0';
        uint64_t dim;
        if (workload->dims == MAX_SHAPE || !take_number(&text, end, &dim))
            return false;
        if (dim < 1 || dim > MAX_TENSOR_BYTES / elements || (end && !*text))
            return false;
        elements *= dim;
        workload->dim[workload->dims++] = dim;
    }
    return true;
}

static bool read_dtypes(const char *text, struct dssim_workload *workload) {
    workload->dtypes = 0;
    for (;;) {
        size_t length = strcspn(text, "+");
        uint32_t i = 0;
        while (i < DTYPE_DRAWN &&
               (strlen(dtype_facts[i].name) != length || strncmp(dtype_facts[i].name, text, length) != 0))
            i++;
        if (i == DTYPE_DRAWN || workload->dtypes == MAX_DTYPES)
            return false;
        workload->dtype[workload->dtypes++] = (enum dtype)i;
        if (!text[length])
            return true;
        text += length + 1;
    }
}

static bool read_op_types(const char *text, struct dssim_workload *workload) {
    workload->op_types = 0;
    for (;;) {
        size_t length = strcspn(text, "+");
        char *type = workload->op_type[workload->op_types];
        if (workload->op_types++ == MAX_OP_TYPES || length == 0 || length >= MAX_OP_TYPE)
            return false;
        memcpy(type, text, length);
        type[length] = '\0';
        for (; *type; type++)
            if (!isalnum((unsigned char)*type) && *type != '_')
                return false;
        if (!text[length])
            return true;
        text += length + 1;
    }
}

/* Reads one of two words. */
static bool read_either(const char *text, const char *no, const char *yes, bool *value) {
    *value = strcmp(text, yes) == 0;
    return *value || strcmp(text, no) == 0;
}

static bool read_selector(const char *text, struct selector *selector) {
    const char *rest = text;
    char *end;
    *selector = (struct selector){.kind = SELECT_NONE};
    if (!*text)
        return true;
    if (strchr(text, '.')) {
        selector->kind = SELECT_SHARE;
        selector->share = strtod(text, &end);
        return end != text && !*end && selector->share >= 0 && selector->share <= 1;
    }
    selector->kind = SELECT_OP;
    if (take_number(&rest, '\0', &selector->op))
        return true;
    selector->kind = SELECT_OP_AND_STEP;
    return take_number(&rest, '@', &selector->op) && take_number(&rest, '\0', &selector->step);
}

static bool read_overwrite(const char *text, struct overwrite *overwrite) {
    *overwrite = (struct overwrite){.happens = *text};
    if (!*text)
        return true;
    overwrite->once = strchr(text, '@') != NULL;
    if (!take_number(&text, ':', &overwrite->by) ||
        !take_number(&text, overwrite->once ? '@' : '\0', &overwrite->victim) ||
        overwrite->victim >= overwrite->by)
        return false;
    return !overwrite->once || take_number(&text, '\0', &overwrite->step);
}

static bool explain(char *error, size_t error_bytes, const char *key, const char *value, const char *rule) {
    snprintf(error, error_bytes, "%s=%s: must be %s", key, value, rule);
    return false;
}

static bool apply_number(const struct number_key *key, const char *value, struct dssim_workload *workload,
                         char *error, size_t error_bytes) {
    const char *rest = value;
    char rule[96];
    uint64_t number;
    if (take_number(&rest, '\0', &number) && number >= key->least && number <= key->most) {
        memcpy((char *)workload + key->place, &number, sizeof number);
        return true;
    }
    snprintf(rule, sizeof rule, "a whole number from %llu to %llu", (unsigned long long)key->least,
             (unsigned long long)key->most);
    return explain(error, error_bytes, key->name, value, rule);
}

/* The keys that are neither numbers nor faults. */
static const struct word_key {
    const char *name;
    const char *rule;
} word_keys[] = {
    {"tensor_bytes", "N or LOW-HIGH, from 1 to 2^40"},
    {"shape", "up to 8 dimensions such as 8x128"},
    {"dtypes", "float32, float16, bfloat16, int32, int64 or int8, joined by +"},
    {"op_types", "up to 32 names of letters, digits and _, joined by +"},
    {"io_files", "joint or separate"},
    {"overwrite", "A:C or A:C@STEP, where operator C comes before A"},
    {"opdebug", "older or newer"},
    {"stats_by", "kernel or aicpu"},
    {"cann", "8.5, 9.1 or master"},
};

enum { WORD_KEYS = sizeof word_keys / sizeof word_keys[0] };

static bool read_cann(const char *value, struct dssim_workload *workload) {
    workload->lenient_profiling = strcmp(value, "master") == 0;
    workload->finalize_joins = strcmp(value, "8.5") != 0;
    return workload->lenient_profiling || !workload->finalize_joins || strcmp(value, "9.1") == 0;
}

static bool read_word(struct dssim_workload *workload, const char *key, const char *value) {
    if (strcmp(key, "tensor_bytes") == 0)
        return read_range(value, &workload->least_tensor_bytes, &workload->most_tensor_bytes);
    if (strcmp(key, "shape") == 0)
        return read_shape(value, workload);
    if (strcmp(key, "dtypes") == 0)
        return read_dtypes(value, workload);
    if (strcmp(key, "op_types") == 0)
        return read_op_types(value, workload);
    if (strcmp(key, "io_files") == 0)
        return read_either(value, "joint", "separate", &workload->separate_io);
    if (strcmp(key, "overwrite") == 0)
        return read_overwrite(value, &workload->overwrite);
    if (strcmp(key, "opdebug") == 0)
        return read_either(value, "older", "newer", &workload->newer_opdebug);
    if (strcmp(key, "stats_by") == 0)
        return read_either(value, "kernel", "aicpu", &workload->aicpu_stats);
    return read_cann(value, workload);
}

static bool explain_unknown(char *error, size_t error_bytes, const char *key) {
    char known[1024] = "";
    for (size_t i = 0; i < WORD_KEYS; i++)
        sprintf(known + strlen(known), "%s%s", i ? ", " : "", word_keys[i].name);
    for (size_t i = 0; i < number_key_count + FAULT_COUNT; i++)
        sprintf(known + strlen(known), ", %s",
                i < number_key_count ? number_keys[i].name : fault_names[i - number_key_count]);
    snprintf(error, error_bytes, "unknown key '%s'; known keys: %s", key, known);
    return false;
}

static bool apply(struct dssim_workload *workload, const char *key, const char *value, char *error,
                  size_t error_bytes) {
    for (size_t i = 0; i < number_key_count; i++)
        if (strcmp(key, number_keys[i].name) == 0)
            return apply_number(&number_keys[i], value, workload, error, error_bytes);
    for (size_t i = 0; i < FAULT_COUNT; i++)
        if (strcmp(key, fault_names[i]) == 0)
            return read_selector(value, &workload->faults[i]) ||
                   explain(error, error_bytes, key, value, "a share such as 0.25, an operator 3, or 3@STEP");
    for (size_t i = 0; i < WORD_KEYS; i++)
        if (strcmp(key, word_keys[i].name) == 0)
            return read_word(workload, key, value) ||
                   explain(error, error_bytes, key, value, word_keys[i].rule);
    return explain_unknown(error, error_bytes, key);
}

bool workload_apply(struct dssim_workload *workload, const char *text, char *error, size_t error_bytes) {
    while (*text) {
        size_t length = strcspn(text, "\n");
        char line[MAX_LINE];
        if (length >= sizeof line) {
            snprintf(error, error_bytes, "a line is longer than %d characters", MAX_LINE - 1);
            return false;
        }
        memcpy(line, text, length);
        line[length] = '\0';
        text += length + (text[length] == '\n');
        if (length == 0)
            continue;
        char *value = strchr(line, '=');
        if (value == NULL) {
            snprintf(error, error_bytes, "'%s' is not key=value", line);
            return false;
        }
        *value++ = '\0';
        if (!apply(workload, line, value, error, error_bytes))
            return false;
    }
    if (workload->faults[FAULT_NULL_ADDRESS].kind != SELECT_NONE &&
        workload->inputs + workload->outputs < 2) {
        snprintf(error, error_bytes, "null_address needs a second tensor: raise inputs or outputs");
        return false;
    }
    return true;
}
