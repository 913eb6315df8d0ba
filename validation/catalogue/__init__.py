"""The catalogue: every requirement of the documents, the checks that prove it, and the kinds of site that it is for."""
