/* What all processes of a container have, in a file that they share.
 *
 * Every process has a slot, and in it what it has of every device. As long as it lives it holds a lock on the byte of its
 * slot; the kernel takes the lock away when the process ends, however it ends, so a slot without a lock is a dead
 * process's and counts no more. That needs no process ids: they mean nothing in another PID namespace, and come again.
 * An amount is one word, written at once, and a total is a sum: there is no moment at which a kill leaves a wrong one.
 *
 * The locks belong to the open file, not to the process (F_OFD_SETLK), and the memory that is mapped keeps that open: they
 * do not go when somebody else's code opens and closes the same file, or closes every descriptor that it does not know. A
 * child inherits them, so it lets go of the mapping. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "library.h"

#define FILE_NAME "/usage.1" /* the number of this layout */

enum { MUTEX_BYTE = 0, FIRST_SLOT_BYTE = 1, NO_SLOT = -1, HIGH_DESCRIPTOR = 600, LIVING = 1, UNUSED = 0 };

struct slot {
    _Atomic int64_t pid; /* in the container's PID namespace, for those who list processes */
    _Atomic uint64_t bytes[MOST_DEVICES];
};
struct region {
    _Atomic uint64_t device_count, slot_count;
    unsigned char devices[MOST_DEVICES][UUID_BYTES];
    struct slot slots[MOST_PROCESSES];
};

static struct {
    pthread_mutex_t mutex;
    int file, slot, is_broken, has_memory;
    dev_t file_device;
    ino_t file_inode;
    struct region *region;
    uint64_t own_bytes[MOST_DEVICES];
} usage = {.mutex = PTHREAD_MUTEX_INITIALIZER, .file = -1, .slot = NO_SLOT};

static int lock_byte(int operation, short type, off_t byte, short *holder)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    int outcome;
    do outcome = fcntl(usage.file, operation, &lock);
    while (outcome < 0 && errno == EINTR);
    if (holder) *holder = lock.l_type;
    return outcome == 0;
}

static int status_of(int file, struct stat *status)
{
    return syscall(SYS_fstat, file, status) == 0; /* fstat would need the C library of the machine that built this */
}

static int still_has_file(void)
{
    struct stat status;
    return usage.file >= 0 && status_of(usage.file, &status) && status.st_dev == usage.file_device &&
           status.st_ino == usage.file_inode;
}

static int open_file(void)
{
    char path[4096];
    const char *directory = state_directory();
    size_t length = directory ? strlen(directory) : sizeof path;
    if (length + sizeof FILE_NAME > sizeof path) return -1;
    memcpy(path, directory, length);
    memcpy(path + length, FILE_NAME, sizeof FILE_NAME);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) return -1;
    int is_own = fchmod(file, 0666); /* processes of several users share it; only its owner may say so */
    (void)is_own;
    int high = fcntl(file, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR); /* out of the way of programs that count descriptors */
    if (high >= 0) close(file);
    return high >= 0 ? high : file;
}

/* Let go of the file, and with it of all locks. */
static void detach(void)
{
    if (usage.region) munmap(usage.region, sizeof(struct region));
    if (still_has_file()) close(usage.file);
    usage.region = NULL;
    usage.file = -1;
    usage.slot = NO_SLOT;
}

static int map_file(void)
{
    if (!lock_byte(F_OFD_SETLKW, F_WRLCK, MUTEX_BYTE, NULL)) return 0;
    int has_room = posix_fallocate(usage.file, 0, sizeof(struct region)) == 0; /* else a full disk is a SIGBUS later */
    lock_byte(F_OFD_SETLK, F_UNLCK, MUTEX_BYTE, NULL);
    if (!has_room) return 0;
    void *memory = mmap(NULL, sizeof(struct region), PROT_READ | PROT_WRITE, MAP_SHARED, usage.file, 0);
    if (memory == MAP_FAILED) return 0;
    usage.region = memory;
    return 1;
}

/* Open the shared file, if it is not open; the process's mutex is held. */
static int attach(void)
{
    struct stat status;
    if (usage.is_broken) return 0;
    if (still_has_file()) return 1;
    usage.file = open_file();
    if (usage.file >= 0 && status_of(usage.file, &status)) {
        int is_same = usage.region && status.st_dev == usage.file_device && status.st_ino == usage.file_inode;
        if (usage.region && !is_same) munmap(usage.region, sizeof(struct region));
        if (!is_same) usage.slot = NO_SLOT, usage.region = NULL;
        usage.file_device = status.st_dev;
        usage.file_inode = status.st_ino;
        if (is_same || map_file()) return 1; /* the same: only the descriptor was lost, not the locks */
    }
    detach();
    usage.is_broken = 1;
    complain("nothing can be allocated: processes cannot be counted in ", state_directory() ? state_directory() : "?");
    return 0;
}

static void finish(void)
{
    lock_byte(F_OFD_SETLK, F_UNLCK, MUTEX_BYTE, NULL);
    if (!still_has_file()) detach(); /* closed by another thread just now: then the lock is still there */
    pthread_mutex_unlock(&usage.mutex);
}

/* With both locks: the process's slot, taken where it has none. */
static struct slot *own_slot(void)
{
    for (int i = 0; usage.slot == NO_SLOT && i < MOST_PROCESSES; i++) {
        if (!lock_byte(F_OFD_SETLK, F_WRLCK, FIRST_SLOT_BYTE + i, NULL)) continue;
        struct slot *slot = &usage.region->slots[i];
        if (usage.region->slot_count < (uint64_t)i + 1) usage.region->slot_count = (uint64_t)i + 1;
        for (int device = 0; device < MOST_DEVICES; device++) slot->bytes[device] = usage.own_bytes[device];
        slot->pid = getpid();
        usage.slot = i;
    }
    return usage.slot == NO_SLOT ? NULL : &usage.region->slots[usage.slot];
}

static int begin(void)
{
    pthread_mutex_lock(&usage.mutex);
    if (attach() && lock_byte(F_OFD_SETLKW, F_WRLCK, MUTEX_BYTE, NULL)) {
        if (usage.slot == NO_SLOT && usage.has_memory) own_slot(); /* the file was let go of */
        return 1;
    }
    pthread_mutex_unlock(&usage.mutex);
    return 0;
}

static int is_living(int index)
{
    short holder = F_WRLCK;
    if (index == usage.slot) return LIVING; /* the kernel does not show us our own locks */
    if (usage.region->slots[index].pid == UNUSED) return 0;
    return !lock_byte(F_OFD_GETLK, F_WRLCK, FIRST_SLOT_BYTE + index, &holder) || holder != F_UNLCK;
}

static uint64_t add(uint64_t one, uint64_t other) { return one > UINT64_MAX - other ? UINT64_MAX : one + other; }

static int slot_count(void)
{
    uint64_t count = usage.region->slot_count;
    return count < MOST_PROCESSES ? (int)count : MOST_PROCESSES;
}

static uint64_t total_with_the_dead(int device)
{
    uint64_t total = 0;
    for (int i = 0; i < slot_count(); i++) total = add(total, usage.region->slots[i].bytes[device]);
    return total;
}

static uint64_t total_of(int device)
{
    uint64_t total = 0;
    for (int i = 0; i < slot_count(); i++) {
        struct slot *slot = &usage.region->slots[i];
        if (slot->pid == UNUSED || is_living(i)) {
            total = slot->pid == UNUSED ? total : add(total, slot->bytes[device]);
            continue;
        }
        for (int of_the_dead = 0; of_the_dead < MOST_DEVICES; of_the_dead++) slot->bytes[of_the_dead] = 0;
        slot->pid = UNUSED;
    }
    return total;
}

int usage_device(const unsigned char uuid[UUID_BYTES])
{
    int device = 0;
    if (!begin()) return NO_DEVICE;
    struct region *region = usage.region;
    int count = region->device_count < MOST_DEVICES ? (int)region->device_count : MOST_DEVICES;
    while (device < count && memcmp(region->devices[device], uuid, UUID_BYTES)) device++;
    if (device == count && count < MOST_DEVICES) {
        memcpy(region->devices[count], uuid, UUID_BYTES);
        region->device_count = (uint64_t)count + 1; /* last: a kill before it leaves the place free */
    }
    finish();
    return device < MOST_DEVICES ? device : NO_DEVICE;
}

static int count_in(int device, uint64_t bytes, int whatever_the_limit)
{
    if (device == NO_DEVICE || !begin()) return 0;
    struct slot *slot = own_slot();
    uint64_t limit = limit_of(usage.region->devices[device]);
    int fits = slot && bytes <= limit &&
               (total_with_the_dead(device) <= limit - bytes || total_of(device) <= limit - bytes);
    if (slot && (fits || whatever_the_limit)) {
        usage.own_bytes[device] = add(usage.own_bytes[device], bytes);
        slot->bytes[device] = usage.own_bytes[device];
        usage.has_memory = 1;
    }
    finish();
    return fits;
}

int usage_reserve(int device, uint64_t bytes) { return count_in(device, bytes, 0); }
int usage_add(int device, uint64_t bytes) { return count_in(device, bytes, 1); }

void usage_release(int device, uint64_t bytes)
{
    if (device == NO_DEVICE || !begin()) return;
    usage.own_bytes[device] -= bytes < usage.own_bytes[device] ? bytes : usage.own_bytes[device];
    if (usage.slot != NO_SLOT) usage.region->slots[usage.slot].bytes[device] = usage.own_bytes[device];
    finish();
}

uint64_t usage_total(int device)
{
    if (device == NO_DEVICE || !begin()) return 0;
    uint64_t total = total_of(device);
    finish();
    return total;
}

unsigned usage_processes(int device, pid_t *pids, uint64_t *bytes, unsigned room)
{
    unsigned count = 0;
    if (device == NO_DEVICE || !begin()) return 0;
    total_of(device);
    for (int i = 0; i < slot_count(); i++) {
        struct slot *slot = &usage.region->slots[i];
        if (slot->pid == UNUSED || !slot->bytes[device]) continue;
        if (count < room) {
            pids[count] = (pid_t)slot->pid;
            bytes[count] = slot->bytes[device];
        }
        count++;
    }
    finish();
    return count;
}

void usage_before_fork(void) { pthread_mutex_lock(&usage.mutex); }

void usage_after_fork(int is_child)
{
    if (is_child) { /* the child has no memory of the device, and must not hold the parent's lock */
        detach();
        usage.has_memory = 0;
        memset(usage.own_bytes, 0, sizeof usage.own_bytes);
    }
    pthread_mutex_unlock(&usage.mutex);
}
