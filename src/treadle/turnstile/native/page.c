/* Page files: creating one without a race, opening one with suspicion. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gate.h"

const struct knob_range gate_knobs[TREADLE_KNOB_COUNT] = {
#define K(name, least, most, usual) {least, most, usual},
    TREADLE_KNOBS(K)
#undef K
};

/* Say something on standard error, once per process for each number below 32. */
void gate_say_once(unsigned what, const char *format, ...)
{
    static _Atomic uint32_t said;
    uint32_t bit = 1u << (what & 31);
    if (atomic_fetch_or(&said, bit) & bit)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length > 0) {
        char line[560];
        int n = snprintf(line, sizeof line, "treadle: %s\n", text);
        ssize_t ignored = write(2, line, (size_t)(n < (int)sizeof line ? n : (int)sizeof line - 1));
        (void)ignored;
    }
}

bool page_name_ok(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > 63 || name[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_' || c == '.'))
            return false;
    }
    return true;
}

/* A descriptor out of the way of programs that count on low numbers. */
static int move_up(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 700);
    if (high < 0)
        high = fcntl(fd, F_DUPFD_CLOEXEC, 200);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static void make_folders(const char *path)
{
    char part[512];
    for (size_t i = 1; path[i] && i < sizeof part; i++) {
        if (path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        mkdir(part, 0700);
    }
}

/* Write a new page beside its place and link it there: nobody ever sees half a page. */
static int create(const char *path, const char *uuid)
{
    char folder[512], fresh[544];
    make_folders(path);
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!slash)
        return -EINVAL;
    *slash = 0;
    snprintf(fresh, sizeof fresh, "%s/.new-XXXXXX", folder);
    int fd = mkostemp(fresh, O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct treadle_page *page = calloc(1, sizeof *page);
    int error = page ? 0 : -ENOMEM;
    if (page) {
        page->magic = TREADLE_MAGIC;
        page->abi = TREADLE_ABI;
        page->size = TREADLE_PAGE_BYTES;
        page->generation = 1;
        page->records = TREADLE_RECORDS;
        page->record_bytes = sizeof(struct treadle_record);
        snprintf(page->uuid, sizeof page->uuid, "%s", uuid);
        for (unsigned i = 0; i < TREADLE_KNOB_COUNT; i++)
            page->knobs[i] = gate_knobs[i].usual;
        if (write(fd, page, sizeof *page) != (ssize_t)sizeof *page)
            error = -ENOSPC;
        free(page);
    }
    struct stat about;
    if (!error && stat(folder, &about) == 0 && (about.st_mode & 0020)) {
        /* A folder that a group may write makes pages for that group. */
        if (fchown(fd, (uid_t)-1, about.st_gid) == 0)
            fchmod(fd, 0660);
    }
    if (!error && link(fresh, path) < 0 && errno != EEXIST)
        error = -errno;
    unlink(fresh);
    close(fd);
    return error;
}

/* Is this still a page of ours? 0, or -EPROTO (not a page), -EPROTONOSUPPORT (other version). */
int page_check(const struct treadle_page *page)
{
    if (load(&page->magic) != TREADLE_MAGIC)
        return -EPROTO;
    if (load(&page->abi) != TREADLE_ABI)
        return -EPROTONOSUPPORT;
    if (load(&page->size) != TREADLE_PAGE_BYTES || load(&page->records) != TREADLE_RECORDS ||
        load(&page->record_bytes) != sizeof(struct treadle_record))
        return -EPROTO;
    return 0;
}

int page_open(const char *path, const char *uuid, bool may_create, int *out_fd,
              struct treadle_page **out_page)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT && may_create) {
        int error = create(path, uuid);
        if (error)
            return error;
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    }
    if (fd < 0)
        return -errno;
    struct stat about;
    int error = 0;
    if (fstat(fd, &about) < 0)
        error = -errno;
    else if (!S_ISREG(about.st_mode) || about.st_size < 32)
        error = -EPROTO;
    /* A page of another version may have another size: read its version before mapping it. */
    uint64_t head[4] = {0};
    if (!error && pread(fd, head, sizeof head, 0) != (ssize_t)sizeof head)
        error = -EPROTO;
    if (!error && head[0] != TREADLE_MAGIC)
        error = -EPROTO;
    if (!error && (uint32_t)head[1] != TREADLE_ABI)
        error = -EPROTONOSUPPORT;
    if (!error && about.st_size < (off_t)TREADLE_PAGE_BYTES)
        error = -EPROTO;
    void *map = MAP_FAILED;
    if (!error) {
        map = mmap(NULL, TREADLE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED)
            error = -errno;
    }
    if (!error)
        error = page_check(map);
    if (error) {
        if (map != MAP_FAILED)
            munmap(map, TREADLE_PAGE_BYTES);
        close(fd);
        return error;
    }
    /* Locks need a description of their own: a mapping, which a forked child inherits, keeps the
     * one that it was made through, and its locks, alive. */
    struct stat again;
    int own = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    close(fd);
    if (own < 0 || fstat(own, &again) < 0 || again.st_dev != about.st_dev ||
        again.st_ino != about.st_ino) {
        munmap(map, TREADLE_PAGE_BYTES);
        if (own >= 0)
            close(own);
        return -ESTALE; /* replaced in between */
    }
    *out_fd = move_up(own);
    *out_page = map;
    return 0;
}
