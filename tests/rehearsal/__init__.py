"""A rehearsal from bare hosts to a signed validation record, with the real DeepOps and kubespray: `make rehearsal`."""
