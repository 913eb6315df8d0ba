/* What this process has, by the handle that frees it. Locks are held for lookups only, never while the driver is called. */
#include <pthread.h>
#include <stdlib.h>

#include "library.h"

enum { BUCKETS = 4096 };

struct block {
    int device, references;
    uint64_t bytes;
    handle context;
    _Atomic uint64_t *sum;
};
struct entry {
    enum kind kind;
    uint64_t key, length;
    struct block *block;
    struct entry *next;
};
static struct entry *buckets[BUCKETS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct entry **bucket_of(enum kind kind, uint64_t key)
{
    uint64_t mixed = (key ^ (uint64_t)kind << 56) * 0x9e3779b97f4a7c15;
    return &buckets[mixed >> 52];
}

struct block *block_of(int device, uint64_t bytes, handle context, _Atomic uint64_t *sum)
{
    struct block *block = malloc(sizeof *block);
    if (block) *block = (struct block){device, 1, bytes, context, sum};
    if (block && sum) *sum += bytes;
    return block; /* NULL: out of the host's memory; the amount stays counted until the process ends */
}

static int is_last_reference(struct block *block)
{
    pthread_mutex_lock(&mutex);
    int is_last = --block->references == 0;
    pthread_mutex_unlock(&mutex);
    return is_last;
}

void block_drop(struct block *block)
{
    if (!block || !is_last_reference(block)) return;
    usage_release(block->device, block->bytes);
    if (block->sum) *block->sum -= block->bytes;
    free(block);
}

void ledger_put(enum kind kind, uint64_t key, uint64_t length, struct block *block)
{
    struct entry *entry = block ? malloc(sizeof *entry) : NULL;
    if (!entry) return;
    pthread_mutex_lock(&mutex);
    struct entry **bucket = bucket_of(kind, key);
    *entry = (struct entry){kind, key, length, block, *bucket};
    *bucket = entry;
    pthread_mutex_unlock(&mutex);
}

static struct block *take_out(struct entry **place)
{
    struct entry *entry = *place;
    struct block *block = entry->block;
    *place = entry->next;
    free(entry);
    return block;
}

static struct entry **place_of(enum kind kind, uint64_t key)
{
    struct entry **place = bucket_of(kind, key);
    while (*place && ((*place)->kind != kind || (*place)->key != key)) place = &(*place)->next;
    return place;
}

struct block *ledger_take(enum kind kind, uint64_t key, uint64_t *length)
{
    pthread_mutex_lock(&mutex);
    struct entry **place = place_of(kind, key);
    if (*place && length) *length = (*place)->length;
    struct block *block = *place ? take_out(place) : NULL;
    pthread_mutex_unlock(&mutex);
    return block;
}

struct block *ledger_share(enum kind kind, uint64_t key)
{
    pthread_mutex_lock(&mutex);
    struct entry *entry = *place_of(kind, key);
    struct block *block = entry ? entry->block : NULL;
    if (block) block->references++;
    pthread_mutex_unlock(&mutex);
    return block;
}

void ledger_share_all(enum kind from, uint64_t key, enum kind to, uint64_t other_key)
{
    pthread_mutex_lock(&mutex);
    for (struct entry *entry = *bucket_of(from, key); entry; entry = entry->next) {
        if (entry->kind != from || entry->key != key) continue;
        struct entry *shared = malloc(sizeof *shared);
        if (!shared) break;
        struct entry **bucket = bucket_of(to, other_key);
        entry->block->references++;
        *shared = (struct entry){to, other_key, entry->length, entry->block, *bucket};
        *bucket = shared;
    }
    pthread_mutex_unlock(&mutex);
}

struct block *ledger_share_covering(enum kind kind, uint64_t key)
{
    struct block *block = NULL;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < BUCKETS && !block; i++)
        for (struct entry *entry = buckets[i]; entry && !block; entry = entry->next)
            if (entry->kind == kind && entry->key <= key && key - entry->key < entry->length) block = entry->block;
    if (block) block->references++;
    pthread_mutex_unlock(&mutex);
    return block;
}

/* Take out one entry that the condition chooses; the caller drops its block without the lock, as that counts. */
static struct block *take_one(int (*is_chosen)(const struct entry *, uint64_t, uint64_t), uint64_t one, uint64_t other,
                              int *bucket)
{
    struct block *block = NULL;
    pthread_mutex_lock(&mutex);
    for (; *bucket < BUCKETS && !block; *bucket += !block) {
        struct entry **place = &buckets[*bucket];
        while (*place && !is_chosen(*place, one, other)) place = &(*place)->next;
        if (*place) block = take_out(place);
    }
    pthread_mutex_unlock(&mutex);
    return block;
}

static int is_mapped_within(const struct entry *entry, uint64_t start, uint64_t length)
{
    return entry->kind == MAPPING && entry->key >= start && entry->key - start < length;
}

static int is_of_context(const struct entry *entry, uint64_t context, uint64_t unused)
{
    (void)unused;
    return entry->block->context && entry->block->context == (handle)(uintptr_t)context;
}

void ledger_drop_range(enum kind kind, uint64_t start, uint64_t length)
{
    uint64_t mapped = 0;
    struct block *first = ledger_take(kind, start, &mapped);
    int bucket = 0;
    block_drop(first);
    if (first && mapped >= length) return; /* as nearly always: what was mapped at once is unmapped at once */
    for (struct block *block; (block = take_one(is_mapped_within, start, length, &bucket));) block_drop(block);
}

void ledger_drop_context(handle context)
{
    int bucket = 0;
    for (struct block *block; (block = take_one(is_of_context, (uint64_t)(uintptr_t)context, 0, &bucket));)
        block_drop(block);
}

void ledger_before_fork(void) { pthread_mutex_lock(&mutex); }

void ledger_after_fork(int is_child)
{
    for (int i = 0; is_child && i < BUCKETS; i++)
        while (buckets[i]) {
            struct block *block = take_out(&buckets[i]);
            if (--block->references == 0) free(block); /* the parent has it; nothing is counted for the child */
        }
    pthread_mutex_unlock(&mutex);
}
