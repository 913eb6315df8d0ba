"""The catalogue: every requirement of the documents, the checks that prove it, and the requirements that do not apply
to each kind of site.
"""
