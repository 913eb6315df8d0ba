"""GPUs for real nodes: NVIDIA's device plugin, or a DRA driver, over a double of the driver's library.

models    which GPUs there are
nvml/     the double of NVML, in C
shown     what the double shows on a node
built     which programs are built, and which program stands for which
stack     what runs on a node, and the driver's files there
chart     the objects of a DRA driver, and its account
live      what a GPU does: `muster lab gpu`
"""
