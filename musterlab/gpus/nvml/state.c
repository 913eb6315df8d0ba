/* Reads the file that says what the GPUs are: see state.h. */
#include "state.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char VARIABLE[] = "MUSTER_NVML_STATE";
static const char OF_CONTAINERS[] = "/config/nvml";

static const struct {
    const char *key;
    size_t offset;
} NUMBERS[] = {
#define NUMBER(field) {#field, offsetof(struct gpu, field)}
    NUMBER(minor), NUMBER(numa), NUMBER(pci_device), NUMBER(pci_subsystem), NUMBER(memory_total),
    NUMBER(memory_reserved), NUMBER(memory_used), NUMBER(bar1_total), NUMBER(architecture), NUMBER(brand),
    NUMBER(compute_major), NUMBER(compute_minor), NUMBER(utilization), NUMBER(memory_utilization), NUMBER(temperature),
    NUMBER(power), NUMBER(sm_clock), NUMBER(memory_clock), NUMBER(ecc_corrected), NUMBER(ecc_uncorrected), NUMBER(lost),
    NUMBER(xid), NUMBER(xid_number),
};

static const struct {
    const char *key;
    size_t offset, size;
} TEXTS[] = {
#define TEXT(field) {#field, offsetof(struct gpu, field), sizeof((struct gpu *)0)->field}
    TEXT(uuid), TEXT(name), TEXT(bus_id), TEXT(root), TEXT(serial),
};

int state_is_of_the_node(void) { return getenv(VARIABLE) != NULL; }

static int read_number(const char *text, number *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end;
}

static int read_link(struct gpu *gpu, const char *text)
{
    number index = 0;
    int is_switch = !strcmp(text, "switch");
    if (gpu->link_count == MOST_LINKS || (!is_switch && (!read_number(text, &index) || index >= MOST_GPUS))) return 0;
    gpu->links[gpu->link_count++] = is_switch ? TO_SWITCH : (int)index;
    return 1;
}

static int read_process(struct gpu *gpu, const char *text)
{
    unsigned long long mebibytes;
    int name = 0;
    if (gpu->process_count == MOST_PROCESSES) return 0;
    struct process *process = &gpu->processes[gpu->process_count];
    if (sscanf(text, "%u %llu %n", &process->pid, &mebibytes, &name) != 2 || !name || !text[name]) return 0;
    process->memory = mebibytes << 20;
    snprintf(process->name, sizeof process->name, "%s", text + name);
    gpu->process_count++;
    return 1;
}

static int read_field(struct gpu *gpu, const char *key, const char *text)
{
    if (!strcmp(key, "link")) return read_link(gpu, text);
    if (!strcmp(key, "process")) return read_process(gpu, text);
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++)
        if (!strcmp(key, NUMBERS[i].key)) return read_number(text, (number *)((char *)gpu + NUMBERS[i].offset));
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        if (!strcmp(key, TEXTS[i].key))
            return (size_t)snprintf((char *)gpu + TEXTS[i].offset, TEXTS[i].size, "%s", text) < TEXTS[i].size;
    return 0;
}

static int read_line(struct node *node, char *line)
{
    number value = 0;
    line[strcspn(line, "\n")] = 0;
    char *text = strchr(line, ' ');
    if (!text) return 0;
    *text++ = 0;
    if (!strcmp(line, "gpu"))
        return read_number(text, &value) && value == node->count && node->count < MOST_GPUS && ++node->count;
    if (node->count) return read_field(&node->gpus[node->count - 1], line, text);
    if (!strcmp(line, "driver")) return (size_t)snprintf(node->driver, TEXT_BYTES, "%s", text) < TEXT_BYTES;
    if (strcmp(line, "cuda") || !read_number(text, &value)) return 0;
    node->cuda = (int)value;
    return 1;
}

static int read_file(FILE *file, struct node *node)
{
    char line[512];
    memset(node, 0, sizeof *node);
    while (fgets(line, sizeof line, file))
        if (!read_line(node, line)) {
            fprintf(stderr, "NVML double: a line of the state is not understood: %s\n", line);
            return 0;
        }
    return node->count > 0;
}

int read_state(struct node *node)
{
    static struct stat last;
    static int is_good;
    struct stat now;
    const char *path = getenv(VARIABLE);
    if (!path) path = OF_CONTAINERS;
    if (stat(path, &now)) return 0;
    if (is_good && now.st_ino == last.st_ino && now.st_dev == last.st_dev && now.st_size == last.st_size &&
        now.st_mtim.tv_sec == last.st_mtim.tv_sec && now.st_mtim.tv_nsec == last.st_mtim.tv_nsec)
        return 1;
    static struct node next;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    is_good = read_file(file, &next);
    fclose(file);
    if (is_good) *node = next;
    last = now;
    return is_good;
}
