#include "prof/output.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device/disk.h"
#include "workload/random.h"

enum { SAMPLE_BYTES = 32768, TRACK_RECORDS = 64, MAX_PATH = MAX_PROF_PATH + 2 * MAX_PROF_NAME };

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

/* Writes the path of something below the PROF_... directory. The number of the device stands for "%u". */
static void locate(const struct prof_output *output, const char *format, char path[MAX_PATH]) {
    int used = snprintf(path, MAX_PATH, "%s/%s/", output->path, output->name);
    snprintf(path + used, MAX_PATH - (size_t)used, format, output->device, output->device);
}

static bool make_directory(const struct prof_output *output, const char *format) {
    char path[MAX_PATH];
    locate(output, format, path);
    return disk_make_directory(path, 0750) == 0;
}

static bool write_file(const struct prof_output *output, const char *format, const void *data, size_t bytes) {
    char path[MAX_PATH];
    locate(output, format, path);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (descriptor < 0)
        return false;
    bool written = write(descriptor, data, bytes) == (ssize_t)bytes;
    return close(descriptor) == 0 && written;
}

static bool write_time(const struct prof_output *output, const char *format) {
    char text[96];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "{\"collectionTime\": \"%lld.%09ld\"}\n", (long long)now.tv_sec, now.tv_nsec);
    return write_file(output, format, text, strlen(text));
}

bool prof_output_begin(const struct prof_output *output) {
    return make_directory(output, "host/data") && make_directory(output, "device_%u/data") &&
           write_time(output, "device_%u/start_info.%u");
}

/* Counters that grow, as those of a task track do. */
static bool write_track(const struct prof_output *output) {
    uint64_t track[TRACK_RECORDS][2];
    for (uint64_t i = 0; i < TRACK_RECORDS; i++) {
        track[i][0] = i;
        track[i][1] = i * 1000 + mix(output->device, i) % 1000;
    }
    return write_file(output, "device_%u/data/ts_track.data.%u.slice_0", track, sizeof track);
}

static bool write_sample(const struct prof_output *output, const struct prof_settings *settings) {
    char text[SAMPLE_BYTES];
    size_t used =
        (size_t)sprintf(text, "{\"device\": %" PRIu32 ", \"data_types\": %" PRIu64 ", \"aicore_metrics\": %d",
                        output->device, output->data_types, (int)output->metrics);
    used += prof_settings_render(settings, text + used, sizeof text - used - sizeof "}\n");
    strcpy(text + used, "}\n");
    return write_file(output, "device_%u/sample.json", text, strlen(text));
}

bool prof_output_end(const struct prof_output *output, const struct prof_settings *settings) {
    return write_sample(output, settings) && write_track(output) && write_time(output, "host/end_info") &&
           write_time(output, "device_%u/end_info.%u");
}
