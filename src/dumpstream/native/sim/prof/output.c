#include "prof/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "workload/random.h"

enum { SAMPLE_BYTES = 32768, TRACK_RECORDS = 64 };

void prof_output_name(uint64_t number, char name[MAX_PROF_NAME]) {
    struct timespec now;
    struct tm local;
    char day[16];
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    strftime(day, sizeof day, "%Y%m%d%H%M%S", &local);
    uint64_t random = mix((uint64_t)now.tv_nsec + (uint64_t)now.tv_sec, (uint64_t)getpid() + number);
    int used = snprintf(name, MAX_PROF_NAME - 8, "PROF_%06" PRIu64 "_%s%03ld_", number % 1000000, day,
                        now.tv_nsec / 1000000);
    for (int i = 0; i < 8; i++, random /= 18)
        name[used++] = (char)('A' + random % 18);
    name[used] = '\0';
}

/* Opens the PROF_... directory, and makes it if it is missing. Returns the descriptor or -1. */
static int open_top(const char *path, const struct prof_output *output) {
    char top[MAX_PROF_PATH + MAX_PROF_NAME];
    snprintf(top, sizeof top, "%s/%s", path, output->name);
    if (mkdir(top, 0750) != 0 && errno != EEXIST)
        return -1;
    return open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Makes a directory below `top`. The number of the device stands for "%u" in its name, as in those below. */
static bool make_directory(int top, const char *format, uint32_t device) {
    char name[MAX_PROF_NAME];
    snprintf(name, sizeof name, format, device);
    return mkdirat(top, name, 0750) == 0 || errno == EEXIST;
}

static bool write_file(int top, const char *format, uint32_t device, const void *data, size_t bytes) {
    char name[MAX_PROF_NAME];
    snprintf(name, sizeof name, format, device, device);
    int descriptor = openat(top, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (descriptor < 0)
        return false;
    bool written = write(descriptor, data, bytes) == (ssize_t)bytes;
    return close(descriptor) == 0 && written;
}

static bool write_time(int top, const char *format, uint32_t device) {
    char text[96];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "{\"collectionTime\": \"%lld.%09ld\"}\n", (long long)now.tv_sec, now.tv_nsec);
    return write_file(top, format, device, text, strlen(text));
}

bool prof_output_begin(const char *path, const struct prof_output *output) {
    uint32_t device = output->device;
    int top = open_top(path, output);
    if (top < 0)
        return false;
    bool made = make_directory(top, "host", device) && make_directory(top, "host/data", device) &&
                make_directory(top, "device_%u", device) && make_directory(top, "device_%u/data", device) &&
                write_time(top, "device_%u/start_info.%u", device);
    close(top);
    return made;
}

/* Counters that grow, as those of a task track do. */
static bool write_track(int top, uint32_t device) {
    uint64_t track[TRACK_RECORDS][2];
    for (uint64_t i = 0; i < TRACK_RECORDS; i++) {
        track[i][0] = i;
        track[i][1] = i * 1000 + mix(device, i) % 1000;
    }
    return write_file(top, "device_%u/data/ts_track.data.%u.slice_0", device, track, sizeof track);
}

static bool write_sample(int top, const struct prof_output *output, const struct prof_settings *settings) {
    char text[SAMPLE_BYTES];
    size_t used =
        (size_t)sprintf(text, "{\"device\": %" PRIu32 ", \"data_types\": %" PRIu64 ", \"aicore_metrics\": %d",
                        output->device, output->data_types, (int)output->metrics);
    used += prof_settings_render(settings, text + used, sizeof text - used - sizeof "}\n");
    strcpy(text + used, "}\n");
    return write_file(top, "device_%u/sample.json", output->device, text, strlen(text));
}

bool prof_output_end(const char *path, const struct prof_output *output,
                     const struct prof_settings *settings) {
    uint32_t device = output->device;
    int top = open_top(path, output);
    if (top < 0)
        return false;
    bool written = write_sample(top, output, settings) && write_track(top, device) &&
                   write_time(top, "host/end_info", device) &&
                   write_time(top, "device_%u/end_info.%u", device);
    close(top);
    return written;
}
