/* What the double of NVML shows: the GPUs of one node, as the lab wrote them into a text file.
 *
 * The file has lines `KEY VALUE`. `driver` and `cuda` stand first; `gpu INDEX` begins a GPU, and the lines below it are its
 * fields: the names in state.c, `link INDEX` for each NVLink (the GPU at the other end, or `switch`), and
 * `process PID MIB NAME`. The lab replaces the file as a whole; a process that loaded the library reads it again then. */
#ifndef STATE_H
#define STATE_H

enum { MOST_GPUS = 16, MOST_LINKS = 18, MOST_PROCESSES = 64, TEXT_BYTES = 96, TO_SWITCH = -1 };

struct process {
    unsigned pid;
    unsigned long long memory; /* bytes */
    char name[TEXT_BYTES];
};

typedef unsigned long long number;

struct gpu {
    char uuid[TEXT_BYTES], name[TEXT_BYTES], bus_id[32], root[32], serial[32];
    number minor, numa, pci_device, pci_subsystem;
    number memory_total, memory_reserved, memory_used, bar1_total; /* bytes */
    number architecture, brand, compute_major, compute_minor;      /* NVML's own numbers */
    number utilization, memory_utilization;                        /* percent */
    number temperature, power, sm_clock, memory_clock;             /* Celsius, milliwatts, MHz */
    number ecc_corrected, ecc_uncorrected;
    number lost;       /* 1 after the GPU fell off the bus */
    number xid;        /* code of the last error */
    number xid_number; /* grows with each error of the node */
    int links[MOST_LINKS];
    unsigned link_count, process_count;
    struct process processes[MOST_PROCESSES];
};

struct node {
    char driver[TEXT_BYTES];
    int cuda; /* 12040 for 12.4 */
    unsigned count;
    struct gpu gpus[MOST_GPUS];
};

/* Read the file again if it was replaced. Returns 0 if there is none, or a line of it is not understood. The caller holds a lock. */
int read_state(struct node *node);

/* Whether the path of the file came from the environment, as for programs of the node; containers have it in /config. */
int state_is_of_the_node(void);

#endif
