"""GPUs for real nodes: NVIDIA's device plugin or a DRA driver, on a test double of NVML, the driver's library.

models    the models of GPUs
nvml/     the double of NVML, in C
shown     the GPUs that the double shows on a node
built     the programs to build, and the replacement for each driver program
stack     the processes on a node, and the driver's files there
chart     the objects of a DRA driver, and its account
live      the state of a GPU: `muster lab gpu`
"""
