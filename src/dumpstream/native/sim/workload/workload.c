#include "workload/workload.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/words.h"
#include "flow/flow.h"

#define NAME(constant, name) [constant] = name,
const char *const fault_names[FAULT_COUNT] = {FAULTS(NAME)};

enum { MAX_LINE = 1024, MAX_ITEM = 64 };

#define MAX_TENSOR_BYTES (UINT64_C(1) << 40)
#define MAX_SKEW_US UINT64_C(1000000000)

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

/* Copies the letters, digits and _ up to '+' or the end, and moves past them. */
static bool take_name(const char **text, char name[MAX_OP_TYPE]) {
    size_t length = strspn(*text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    if (length == 0 || length >= MAX_OP_TYPE || ((*text)[length] && (*text)[length] != '+'))
        return false;
    memcpy(name, *text, length);
    name[length] = '\0';
    *text += length;
    return true;
}

static bool read_range(const char *text, void *field) {
    struct byte_range *range = field;
    const char *rest = text;
    if (take_number(&rest, '\0', &range->least))
        range->most = range->least;
    else if (!take_number(&rest, '-', &range->least) || !take_number(&rest, '\0', &range->most))
        return false;
    return range->least >= 1 && range->least <= range->most && range->most <= MAX_TENSOR_BYTES;
}

static bool read_shape(const char *text, void *field) {
    struct shape *shape = field;
    uint64_t elements = 1;
    shape->dims = 0;
    while (*text) {
        char end = strchr(text, 'x') ? 'x' : '\0';
        uint64_t dim;
        if (shape->dims == MAX_SHAPE || !take_number(&text, end, &dim))
            return false;
        if (dim < 1 || dim > MAX_TENSOR_BYTES / elements || (end && !*text))
            return false;
        elements *= dim;
        shape->dim[shape->dims++] = dim;
    }
    return true;
}

static bool read_dtypes(const char *text, void *field) {
    struct dtypes *dtypes = field;
    char name[MAX_OP_TYPE];
    dtypes->count = 0;
    do {
        enum dtype found = 0;
        if (dtypes->count == MAX_DTYPES || !take_name(&text, name))
            return false;
        while (found < DTYPE_DRAWN && strcmp(dtype_facts[found].name, name) != 0)
            found++;
        if (found == DTYPE_DRAWN)
            return false;
        dtypes->dtype[dtypes->count++] = found;
    } while (*text++ == '+');
    return true;
}

static bool read_op_types(const char *text, void *field) {
    struct op_types *types = field;
    types->count = 0;
    do {
        if (types->count == MAX_OP_TYPES || !take_name(&text, types->type[types->count++]))
            return false;
    } while (*text++ == '+');
    return true;
}

/* Reads the share, the operator, or the name of what is not an operator, and the step. */
static bool take_selector(const char *text, struct selector *selector) {
    char *end;
    selector->step = EVERY_STEP;
    if (strchr(text, '.')) {
        selector->kind = SELECT_SHARE;
        selector->share = strtod(text, &end);
        return end != text && !*end && selector->share >= 0 && selector->share <= 1;
    }
    const char *rest = strchr(text, '@');
    size_t length = strcspn(text, "@");
    selector->kind = length == 6 && memcmp(text, "loader", 6) == 0 ? SELECT_LOADER : SELECT_OP;
    if (length == 7 && memcmp(text, "weights", 7) == 0)
        selector->kind = SELECT_WEIGHTS;
    if (selector->kind == SELECT_OP && !take_number(&text, rest ? '@' : '\0', &selector->op))
        return false;
    return rest == NULL || (rest++, take_number(&rest, '\0', &selector->step));
}

/* Calls `take` with each of the items that are joined by '+', without its rank. */
static bool take_selectors(const char *text, struct selectors *selectors,
                           bool (*take)(const char *text, struct selector *selector)) {
    static const char prefix[] = "rank";
    selectors->count = 0;
    while (*text) {
        struct selector *selector = &selectors->item[selectors->count];
        char item[MAX_ITEM];
        const char *rest = item;
        size_t length = strcspn(text, "+");
        if (selectors->count++ == MAX_SELECTORS || length >= sizeof item)
            return false;
        memcpy(item, text, length);
        item[length] = '\0';
        *selector = (struct selector){.rank = EVERY_RANK};
        if (strncmp(item, prefix, strlen(prefix)) == 0) {
            rest += strlen(prefix);
            if (!take_number(&rest, ':', &selector->rank))
                return false;
        }
        text += length;
        if (!take(rest, selector) || (*text == '+' && !*++text))
            return false;
    }
    return true;
}

static bool read_selectors(const char *text, void *field) {
    return take_selectors(text, field, take_selector);
}

/* An operator, and by how much its output is wrong. */
static bool take_perturbation(const char *text, struct selector *selector) {
    char which[MAX_ITEM], *end;
    const char *amount = strchr(text, ':');
    if (amount == NULL)
        return false;
    memcpy(which, text, (size_t)(amount - text));
    which[amount - text] = '\0';
    selector->relative = strtod(amount + 1, &end);
    return end != amount + 1 && !*end && isfinite(selector->relative) && take_selector(which, selector) &&
           selector->kind == SELECT_OP;
}

static bool read_perturb(const char *text, void *field) {
    return take_selectors(text, field, take_perturbation);
}

static bool read_undumped(const char *text, void *field) {
    struct undumped *undumped = field;
    undumped->count = 0;
    while (*text) {
        char end = strchr(text, '+') ? '+' : '\0';
        if (undumped->count == MAX_SELECTORS || !take_number(&text, end, &undumped->op[undumped->count++]) ||
            (end && !*text))
            return false;
    }
    return true;
}

static bool read_overwrite(const char *text, void *field) {
    struct overwrite *overwrite = field;
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

static bool read_skew(const char *text, void *field) {
    const bool behind = *text == '-';
    uint64_t skew;
    text += behind;
    if (!take_number(&text, '\0', &skew) || skew > MAX_SKEW_US)
        return false;
    *(int64_t *)field = behind ? -(int64_t)skew : (int64_t)skew;
    return true;
}

struct key {
    const char *name;
    size_t place;                                /* of its field in the workload */
    const char *standard;                        /* the value without the key */
    bool (*read)(const char *text, void *field); /* NULL: a number, or one of `words` */
    const char *words;
    const char *rule; /* says what a value must be; a number is from `least` to `most` */
    uint64_t least, most;
};

#define KEY(key, field, value) .name = key, .place = offsetof(struct dssim_workload, field), .standard = value
#define TEXT(field, value, reader, text) {KEY(#field, field, value), .read = reader, .rule = text}
#define CHOICE(field, value, list, text) {KEY(#field, field, value), .words = list, .rule = text}
#define NUMBER(field, value, low, high) {KEY(#field, field, value), .least = low, .most = high}
#define SELECTOR(constant, key)                                                                              \
    {KEY(key, faults[constant], ""), .read = read_selectors, .rule = SELECTOR_RULE},
#define SELECTOR_RULE "a share such as 0.25, an operator 3, or 3@STEP, each behind rankN: or not, joined by +"

static const struct key keys[] = {
    TEXT(tensor_bytes, "1024-65536", read_range, "N or LOW-HIGH, from 1 to 2^40"),
    TEXT(shape, "", read_shape, "up to 8 dimensions such as 8x128"),
    TEXT(dtypes, "float32+float16+bfloat16+int32+int64+int8", read_dtypes,
         "float32, float16, bfloat16, int32, int64, int8, float8_e4m3fn or float8_e5m2, joined by +"),
    TEXT(op_types, "MatMulV2+Relu+LayerNorm+Add+SoftmaxV2+GatherV2+Mul+Cast", read_op_types,
         "up to 32 names of letters, digits and _, joined by +"),
    CHOICE(io_files, "joint", "joint,separate", "joint or separate"),
    TEXT(overwrite, "", read_overwrite, "A:C or A:C@STEP, where operator C comes before A"),
    CHOICE(opdebug, "older", "older,newer", "older or newer"),
    CHOICE(stats_by, "kernel", "kernel,aicpu", "kernel or aicpu"),
    CHOICE(after_detail, "continue", "continue,die", "continue or die"),
    CHOICE(cann, "9.1", "8.5,9.1,master", "8.5, 9.1 or master"),
    TEXT(skew, "0", read_skew, "microseconds from -10^9 to 10^9"),
    NUMBER(seed, "0", 0, UINT64_MAX),
    CHOICE(flow, "off", "off,on", "off or on"),
    TEXT(perturb, "", read_perturb, "3:0.01 or 3@STEP:0.01, each behind rankN: or not, joined by +"),
    TEXT(undumped, "", read_undumped, "operators such as 3+7"),
    NUMBER(rank, "0", 0, MAX_DEVICES - 1),
    NUMBER(ranks, "1", 1, MAX_DEVICES),
    NUMBER(models, "2", 1, 100000),
    NUMBER(ops, "8", 1, 1000000),
    NUMBER(inputs, "2", 0, MAX_PART),
    NUMBER(outputs, "1", 1, MAX_PART),
    NUMBER(single_ops, "0", 0, 1000000),
    NUMBER(device_threads, "2", 1, MAX_DEVICE_THREADS),
    NUMBER(device_id, "0", 0, MAX_DEVICES - 1),
    NUMBER(rate, "0", 0, UINT64_C(1) << 50),
    NUMBER(slice_bytes, "134217728", 1, 1 << 30),
    NUMBER(queue_bytes, "0", 0, UINT64_C(1) << 50),
    FAULTS(SELECTOR)};

enum { KEYS = sizeof keys / sizeof keys[0] };

static bool read_value(const struct key *key, const char *text, struct dssim_workload *workload) {
    void *field = (char *)workload + key->place;
    uint64_t *number = field;
    if (key->read != NULL)
        return key->read(text, field);
    if (key->words == NULL)
        return take_number(&text, '\0', number) && *number >= key->least && *number <= key->most;
    int place = word_place(text, key->words);
    *number = (uint64_t)place;
    return place >= 0;
}

void workload_set_defaults(struct dssim_workload *workload) {
    for (size_t i = 0; i < KEYS; i++)
        read_value(&keys[i], keys[i].standard, workload);
    workload->values = NULL;
}

static bool apply(struct dssim_workload *workload, const char *name, const char *value, char *error,
                  size_t error_bytes) {
    char known[1024] = "";
    for (const struct key *key = keys; key < keys + KEYS; key++) {
        if (strcmp(name, key->name) != 0)
            continue;
        if (read_value(key, value, workload))
            return true;
        if (key->rule != NULL)
            snprintf(error, error_bytes, "%s=%s: must be %s", name, value, key->rule);
        else
            snprintf(error, error_bytes, "%s=%s: must be a whole number from %llu to %llu", name, value,
                     (unsigned long long)key->least, (unsigned long long)key->most);
        return false;
    }
    for (size_t i = 0; i < KEYS; i++)
        sprintf(known + strlen(known), "%s%s", i ? ", " : "", keys[i].name);
    snprintf(error, error_bytes, "unknown key '%s'; known keys: %s", name, known);
    return false;
}

/* Applies key=value lines. Returns false with one line in `error`. */
static bool apply_lines(struct dssim_workload *workload, const char *text, char *error, size_t error_bytes) {
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
    return true;
}

/* Whether a fault is one of what only a data flow has. */
static bool needs_flow(const struct dssim_workload *workload, enum fault fault) {
    const struct selectors *selectors = &workload->faults[fault];
    for (uint32_t i = 0; i < selectors->count; i++)
        if (selectors->item[i].kind >= SELECT_LOADER)
            return true;
    return false;
}

/* Returns what is wrong with the keys together, or NULL. */
static const char *find_contradiction(const struct dssim_workload *workload) {
    if (!workload->flow && workload->faults[FAULT_NULL_ADDRESS].count > 0 &&
        workload->inputs + workload->outputs < 2)
        return "null_address needs a second tensor: raise inputs or outputs";
    if (!workload->flow && workload->perturb.count > 0)
        return "perturb needs flow=on";
    if (!workload->flow && workload->faults[FAULT_SATURATE].count > 0)
        return "saturate needs flow=on";
    for (enum fault fault = 0; fault < FAULT_COUNT; fault++)
        if (needs_flow(workload, fault) &&
            (!workload->flow || (fault != FAULT_NAN && fault != FAULT_OVERFLOW)))
            return "loader and weights are for nan and overflow with flow=on";
    if (workload->flow && workload->rank >= workload->ranks)
        return "with flow=on, rank must be below ranks";
    return NULL;
}

struct dssim_workload *dssim_workload_open(const char *text, char *error, size_t error_bytes) {
    struct dssim_workload *workload = malloc(sizeof *workload);
    if (workload == NULL) {
        snprintf(error, error_bytes, "out of memory");
        return NULL;
    }
    workload_set_defaults(workload);
    if (apply_lines(workload, text, error, error_bytes)) {
        const char *wrong = find_contradiction(workload);
        if (wrong == NULL)
            wrong = flow_open(workload);
        if (wrong == NULL)
            return workload;
        snprintf(error, error_bytes, "%s", wrong);
    }
    free(workload);
    return NULL;
}

void dssim_workload_close(struct dssim_workload *workload) {
    flow_close(workload);
    free(workload);
}
