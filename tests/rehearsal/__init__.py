"""One chain from bare hosts to a signed record, with the real DeepOps and kubespray: `make rehearsal`."""
