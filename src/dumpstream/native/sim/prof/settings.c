#include "prof/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/codes.h"
#include "config/words.h"

/* A number from `least` to `most`, then `suffix`; any text if `most` is 0. */
struct rule {
    const char *name;
    unsigned long long least;
    unsigned long long most;
    const char *suffix;
};

static const struct rule rules[ACL_PROF_ARGS_MAX] = {
    [ACL_PROF_STORAGE_LIMIT] = {"storage_limit", 200, 4294967295, "MB"},
    [ACL_PROF_SYS_HARDWARE_MEM_FREQ] = {"sys_hardware_mem_freq", 1, 10000, ""},
    [ACL_PROF_LLC_MODE] = {.name = "llc_mode"},
    [ACL_PROF_SYS_IO_FREQ] = {"sys_io_freq", 1, 100, ""},
    [ACL_PROF_SYS_INTERCONNECTION_FREQ] = {"sys_interconnection_freq", 1, 50, ""},
    [ACL_PROF_DVPP_FREQ] = {"dvpp_freq", 1, 100, ""},
    [ACL_PROF_HOST_SYS] = {.name = "host_sys"},
    [ACL_PROF_HOST_SYS_USAGE] = {.name = "host_sys_usage"},
    [ACL_PROF_HOST_SYS_USAGE_FREQ] = {"host_sys_usage_freq", 1, 50, ""},
    [ACL_PROF_LOW_POWER_FREQ] = {"low_power_freq", 1, 100, ""},
    [ACL_PROF_SYS_MEM_SERVICEFLOW] = {.name = "sys_mem_serviceflow"},
    [ACL_PROF_SYS_CPU_FREQ] = {"sys_cpu_freq", 1, 50, ""},
    [ACL_PROF_OPTYPE] = {.name = "optype"},
    [ACL_PROF_NTS_METRICS] = {.name = "nts_metrics"},
    [ACL_PROF_PATH] = {.name = "path"},
};

static bool is_number(const struct rule *rule, const char *value) {
    size_t digits = strspn(value, "0123456789");
    unsigned long long number = strtoull(value, NULL, 10);
    return digits > 0 && strcmp(value + digits, rule->suffix) == 0 && number >= rule->least &&
           number <= rule->most;
}

bool prof_setting_is_valid(aclprofConfigType type, const char *value) {
    if (rules[type].name == NULL || *value == '\0')
        return false;
    if (rules[type].most != 0)
        return is_number(&rules[type], value);
    if (type == ACL_PROF_LLC_MODE)
        return word_place(value, "read,write,capacity,bandwidth") >= 0;
    if (type == ACL_PROF_HOST_SYS || type == ACL_PROF_HOST_SYS_USAGE)
        return are_words(value, "cpu,mem");
    return true;
}

static void escape(const char *text, char *out) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            out += sprintf(out, "\\%c", c);
        else if (c < ' ')
            out += sprintf(out, "\\u%04x", c);
        else
            *out++ = (char)c;
    }
    *out = '\0';
}

size_t prof_settings_render(const struct prof_settings *settings, char *out, size_t out_bytes) {
    char escaped[6 * MAX_SETTING + 1], member[sizeof escaped + 64];
    size_t used = 0;
    for (int type = 0; type < ACL_PROF_ARGS_MAX; type++) {
        if (!settings->value[type][0])
            continue;
        escape(settings->value[type], escaped);
        size_t length = (size_t)sprintf(member, ", \"%s\": \"%s\"", rules[type].name, escaped);
        if (used + length >= out_bytes)
            continue;
        memcpy(out + used, member, length);
        used += length;
    }
    out[used] = '\0';
    return used;
}

static bool are_valid(const uint32_t *devices, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (devices[i] >= MAX_PROF_DEVICES)
            return false;
        for (uint32_t j = 0; j < i; j++)
            if (devices[j] == devices[i])
                return false;
    }
    return true;
}

aclprofConfig *aclprofCreateConfig(uint32_t *devices, uint32_t device_count, aclprofAicoreMetrics metrics,
                                   const aclprofAicoreEvents *events, uint64_t data_types) {
    if (events != NULL || device_count > MAX_PROF_DEVICES || (devices == NULL && device_count > 0))
        return NULL;
    if ((device_count == 0 && !(data_types & ACL_PROF_MSPROFTX)) || !are_valid(devices, device_count))
        return NULL;
    aclprofConfig *config = malloc(sizeof *config);
    if (config == NULL)
        return NULL;
    *config = (aclprofConfig){.device_count = device_count, .metrics = metrics, .data_types = data_types};
    for (uint32_t i = 0; i < device_count; i++)
        config->devices[i] = devices[i];
    return config;
}

static aclError destroy(const void *config) {
    free((void *)config);
    return config != NULL ? ACL_SUCCESS : ACL_ERROR_INVALID_PARAM;
}

aclError aclprofDestroyConfig(const aclprofConfig *config) {
    return destroy(config);
}

aclprofSubscribeConfig *aclprofCreateSubscribeConfig(int8_t with_times, aclprofAicoreMetrics metrics,
                                                     void *descriptor) {
    aclprofSubscribeConfig *config = malloc(sizeof *config);
    if (config != NULL)
        *config = (aclprofSubscribeConfig){with_times != 0, metrics, descriptor};
    return config;
}

aclError aclprofDestroySubscribeConfig(const aclprofSubscribeConfig *config) {
    return destroy(config);
}
