"""The objects that the operator writes for projects, and the limits that it enforces while jobs run."""
