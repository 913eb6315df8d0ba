/* Looks symbols up in the libraries that are loaded: ld.so's own tables, read by hand. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <string.h>

#include "library.h"

struct search {
    const char *library, *name;
    void *address;
};
struct tables {
    const Elf64_Sym *symbols;
    const char *strings, *soname;
    const uint32_t *gnu_hash, *hash;
};

static int begins_with(const char *text, const char *prefix) { return strncmp(text, prefix, strlen(prefix)) == 0; }

static struct tables tables_of(const struct dl_phdr_info *object)
{
    struct tables tables = {0};
    const Elf64_Dyn *entry = NULL;
    uint64_t soname = 0;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const Elf64_Dyn *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        /* ld.so puts the base address in; where the section is read-only it could not */
        uint64_t value = entry->d_un.d_ptr;
        const void *pointer = (const void *)(value < object->dlpi_addr ? value + object->dlpi_addr : value);
        switch (entry->d_tag) {
        case DT_SYMTAB: tables.symbols = pointer; break;
        case DT_STRTAB: tables.strings = pointer; break;
        case DT_GNU_HASH: tables.gnu_hash = pointer; break;
        case DT_HASH: tables.hash = pointer; break;
        case DT_SONAME: soname = value; break;
        default: break;
        }
    }
    tables.soname = tables.strings && soname ? tables.strings + soname : "";
    return tables;
}

static const Elf64_Sym *defined(const struct tables *tables, uint32_t index, const char *name)
{
    const Elf64_Sym *symbol = &tables->symbols[index];
    int is_ours = symbol->st_shndx != SHN_UNDEF && symbol->st_value && !strcmp(tables->strings + symbol->st_name, name);
    return is_ours ? symbol : NULL;
}

static const Elf64_Sym *by_gnu_hash(const struct tables *tables, const char *name)
{
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    const uint32_t *head = tables->gnu_hash;
    uint32_t buckets = head[0], offset = head[1], filter_words = head[2];
    const uint32_t *bucket = head + 4 + filter_words * 2; /* words of the filter have 64 bits */
    const uint32_t *chain = bucket + buckets;
    uint32_t index = buckets ? bucket[hash % buckets] : 0;
    for (; index >= offset && index; index++) {
        uint32_t link = chain[index - offset];
        const Elf64_Sym *symbol = (link | 1) == (hash | 1) ? defined(tables, index, name) : NULL;
        if (symbol) return symbol;
        if (link & 1) break;
    }
    return NULL;
}

static const Elf64_Sym *by_hash(const struct tables *tables, const char *name)
{
    uint32_t hash = 0;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    const uint32_t *bucket = tables->hash + 2, *chain = bucket + tables->hash[0];
    for (uint32_t index = bucket[hash % tables->hash[0]]; index; index = chain[index]) {
        const Elf64_Sym *symbol = defined(tables, index, name);
        if (symbol) return symbol;
    }
    return NULL;
}

static int look_into(struct dl_phdr_info *object, size_t size, void *data)
{
    (void)size;
    struct search *search = data;
    struct tables tables = tables_of(object);
    const char *slash = strrchr(object->dlpi_name, '/');
    const char *file = slash ? slash + 1 : object->dlpi_name;
    if (!tables.symbols || !tables.strings) return 0;
    if (!begins_with(file, search->library) && !begins_with(tables.soname, search->library)) return 0;
    const Elf64_Sym *symbol = tables.gnu_hash ? by_gnu_hash(&tables, search->name)
                              : tables.hash   ? by_hash(&tables, search->name)
                                              : NULL;
    if (symbol) search->address = (void *)(object->dlpi_addr + symbol->st_value);
    return symbol != NULL;
}

void *symbol_of(const char *library, const char *name)
{
    struct search search = {library, name, NULL};
    dl_iterate_phdr(look_into, &search);
    return search.address;
}

void *driver_function(const char *name) { return symbol_of("libcuda.so", name); }
void *management_function(const char *name) { return symbol_of("libnvidia-ml.so", name); }
