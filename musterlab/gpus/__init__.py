"""GPUs for real nodes: NVIDIA's mock of the driver's library, with NVIDIA's device plugin or DRA driver on top.

Nothing here stands in for what NVIDIA has: the library that says which GPUs there are, the plugin, the driver, the hook
that changes containers and the program that changes what GPUs do are built from NVIDIA's sources at pinned commits.

sources   the source trees: from an archive, or fetched
mock      the corrections of the mock, and what a node's GPUs are
recipe    how the programs are built
stack     what runs on a node, and the driver's files there
chart     the objects of the DRA driver's chart, and its account
live      what a GPU does: `muster lab gpu`
"""
