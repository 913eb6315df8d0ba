"""How the operator's image is made; not part of the distribution."""
