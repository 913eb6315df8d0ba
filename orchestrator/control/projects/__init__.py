"""The objects of a project, and the limits that are enforced while its jobs run."""
