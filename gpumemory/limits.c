/* The file of limits: lines `GPU-<uuid> <bytes>`; `*` stands for every other device; `#` begins a comment.
 *
 * The file is read once, at the first question. Where it cannot be understood nothing is allowed: a limit that
 * disappears by a slip of the pen would not be one. The variables count only where the file of the container is not there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "library.h"

#define LIMITS_FILE "/etc/muster/gpu-memory/limits"
#define STATE_DIRECTORY "/run/muster/gpu-memory"
#define LIMITS_VARIABLE "MUSTER_GPU_MEMORY_LIMITS"
#define STATE_VARIABLE "MUSTER_GPU_MEMORY_STATE"

enum { MOST_FILE_BYTES = 65536 };

struct line {
    unsigned char uuid[UUID_BYTES];
    int is_any;
    uint64_t bytes;
};
static struct {
    _Atomic int is_read;
    int exist, line_count;
    struct line lines[MOST_DEVICES];
    const char *state;
} limits;
static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;

void complain(const char *problem, const char *about)
{
    static const char prefix[] = "muster: GPU memory: ";
    char line[512];
    size_t length = sizeof prefix - 1;
    memcpy(line, prefix, length);
    for (const char *part[] = {problem, about, "\n"}, **text = part; text < part + 3; text++) {
        size_t more = strnlen(*text, sizeof line - length);
        memcpy(line + length, *text, more);
        length += more;
    }
    ssize_t ignored = write(STDERR_FILENO, line, length);
    (void)ignored;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int read_uuid(const char *text, size_t length, unsigned char uuid[UUID_BYTES])
{
    size_t digits = 0;
    if (length < 4 || (memcmp(text, "GPU-", 4) && memcmp(text, "MIG-", 4))) return 0;
    memset(uuid, 0, UUID_BYTES);
    for (size_t i = 4; i < length; i++) {
        if (text[i] == '-') continue;
        int value = digit(text[i]);
        if (value < 0 || digits == 2 * UUID_BYTES) return 0;
        uuid[digits / 2] = (unsigned char)(uuid[digits / 2] << 4 | value);
        digits++;
    }
    return digits == 2 * UUID_BYTES;
}

static int read_bytes(const char *text, size_t length, uint64_t *bytes)
{
    *bytes = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        uint64_t more = (uint64_t)(text[i] - '0');
        if (*bytes > (UINT64_MAX - more) / 10) return 0;
        *bytes = *bytes * 10 + more;
    }
    return length > 0;
}

static const char *end_of_word(const char *text, const char *end)
{
    while (text < end && *text != ' ' && *text != '\t' && *text != '\r') text++;
    return text;
}

static const char *skip_blanks(const char *text, const char *end)
{
    while (text < end && (*text == ' ' || *text == '\t' || *text == '\r')) text++;
    return text;
}

static int read_line(const char *text, const char *end)
{
    struct line line = {.is_any = 0};
    const char *device = skip_blanks(text, end), *after_device = end_of_word(device, end);
    if (device == end || *device == '#') return 1;
    const char *bytes = skip_blanks(after_device, end), *after_bytes = end_of_word(bytes, end);
    line.is_any = after_device - device == 1 && *device == '*';
    if (limits.line_count == MOST_DEVICES || skip_blanks(after_bytes, end) != end) return 0;
    if (!line.is_any && !read_uuid(device, (size_t)(after_device - device), line.uuid)) return 0;
    if (!read_bytes(bytes, (size_t)(after_bytes - bytes), &line.bytes)) return 0;
    limits.lines[limits.line_count++] = line;
    return 1;
}

static int read_lines(const char *text, const char *end)
{
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        if (!read_line(text, newline ? newline : end)) return 0;
        text = newline ? newline + 1 : end;
    }
    return limits.line_count > 0;
}

static void read_limits(void)
{
    static char content[MOST_FILE_BYTES + 1];
    const char *path = LIMITS_FILE;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    limits.state = STATE_DIRECTORY;
    if (file < 0 && errno == ENOENT && getenv(LIMITS_VARIABLE)) {
        path = getenv(LIMITS_VARIABLE);
        if (getenv(STATE_VARIABLE)) limits.state = strdup(getenv(STATE_VARIABLE));
        file = open(path, O_RDONLY | O_CLOEXEC);
    } else if (file < 0 && errno == ENOENT) {
        return;
    }
    limits.exist = 1;
    size_t length = 0;
    while (file >= 0 && length < sizeof content) {
        ssize_t more = read(file, content + length, sizeof content - length);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) length = sizeof content;
        if (more <= 0) break;
        length += (size_t)more;
    }
    if (file >= 0) close(file);
    if (file < 0 || length > MOST_FILE_BYTES || !limits.state || !read_lines(content, content + length)) {
        limits.line_count = 0;
        complain("no device may be used: there is no line `GPU-<uuid> <bytes>`, or one is wrong, in ", path);
    }
}

int has_limits(void)
{
    if (!limits.is_read) {
        pthread_mutex_lock(&reading);
        if (!limits.is_read) {
            int error = errno;
            read_limits();
            errno = error;
            limits.is_read = 1;
        }
        pthread_mutex_unlock(&reading);
    }
    return limits.exist;
}

uint64_t limit_of(const unsigned char uuid[UUID_BYTES])
{
    uint64_t otherwise = 0;
    for (int i = 0; has_limits() && i < limits.line_count; i++) {
        if (limits.lines[i].is_any) otherwise = limits.lines[i].bytes;
        else if (!memcmp(limits.lines[i].uuid, uuid, UUID_BYTES)) return limits.lines[i].bytes;
    }
    return otherwise;
}

const char *state_directory(void)
{
    has_limits();
    return limits.state;
}
