#include "dumpstream/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "room.h"

/* What comes in front of a name in the text. */
enum { FILE_KIND = 'f', FOLDER_KIND = 'd' };

void ds_listing_free(struct ds_listing *listing) {
    free(listing->text);
    free(listing->start);
    free(listing->file);
    free(listing->folder);
    free(listing->said);
}

/* Returns the kind of an entry, or 0 if it is left out. */
static char kind_of(DIR *directory, const struct dirent *entry) {
    struct stat status;
    if (entry->d_name[0] == '.')
        return 0;
    if (entry->d_type == DT_REG)
        return FILE_KIND;
    if (entry->d_type == DT_DIR)
        return FOLDER_KIND;
    if (entry->d_type != DT_UNKNOWN ||
        fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return 0;
    return S_ISREG(status.st_mode) ? FILE_KIND : S_ISDIR(status.st_mode) ? FOLDER_KIND : 0;
}

static int append(struct ds_listing *listing, char kind, const char *name) {
    size_t size = strlen(name) + 1;
    if (ds_make_room((void **)&listing->text, &listing->room, listing->length + size + 1, 1) < 0 ||
        ds_make_room((void **)&listing->start, &listing->start_room, listing->count + 1,
                     sizeof *listing->start) < 0)
        return -ENOMEM;
    listing->text[listing->length] = kind;
    memcpy(listing->text + listing->length + 1, name, size);
    listing->start[listing->count++] = listing->length + 1;
    listing->length += size + 1;
    return 0;
}

static int read_entries(struct ds_listing *listing, DIR *directory) {
    const struct dirent *entry;
    int error = 0;
    while (!error && (errno = 0, entry = readdir(directory)) != NULL) {
        char kind = kind_of(directory, entry);
        if (kind)
            error = append(listing, kind, entry->d_name);
    }
    return error ? error : -errno;
}

static int compare_names(const void *name, const void *other) {
    return strcmp(*(const char *const *)name, *(const char *const *)other);
}

static int sort_names(struct ds_listing *listing) {
    listing->file = calloc(listing->count + 1, sizeof *listing->file);
    listing->folder = calloc(listing->count + 1, sizeof *listing->folder);
    if (!listing->file || !listing->folder)
        return -ENOMEM;
    for (size_t i = 0; i < listing->count; i++) {
        const char *name = listing->text + listing->start[i];
        if (name[-1] == FILE_KIND)
            listing->file[listing->files++] = name;
        else
            listing->folder[listing->folders++] = name;
    }
    qsort(listing->file, listing->files, sizeof *listing->file, compare_names);
    qsort(listing->folder, listing->folders, sizeof *listing->folder, compare_names);
    return 0;
}

static int read_names(struct ds_listing *listing, struct ds_journal_key key) {
    listing->said = calloc(listing->files + 1, sizeof *listing->said);
    if (!listing->said)
        return -ENOMEM;
    for (size_t i = 0; i < listing->files; i++) {
        if (!ds_operator_name_read(listing->file[i], strlen(listing->file[i]), key, &listing->said[i])) {
            free(listing->said);
            listing->said = NULL;
            return 0;
        }
    }
    return 0;
}

int ds_listing_read(struct ds_listing *listing, const char *path, struct ds_journal_key key) {
    memset(listing, 0, sizeof *listing);
    DIR *directory = opendir(path);
    if (!directory)
        return -errno;
    int error = read_entries(listing, directory);
    closedir(directory);
    if (!error)
        error = sort_names(listing);
    return error ? error : read_names(listing, key);
}
