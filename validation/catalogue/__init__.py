"""The catalogue: every requirement of the documents, the checks that prove it, and the kinds of site with the
requirements that do not apply to them.
"""
