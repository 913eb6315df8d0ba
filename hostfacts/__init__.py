"""Facts of hosts: reads the kernel's log, error counters of links and the clock source, and finds faults. Pure."""
