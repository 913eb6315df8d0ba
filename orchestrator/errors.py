"""The error tree of muster.

    MusterError
    ├── UsageError            the command or a file says something that cannot be meant
    ├── ConfigurationError    kubeconfig, state directory or environment cannot be used
    ├── ClusterError          the Kubernetes API answered no, or not at all (leaves in orchestrator.cluster.errors)
    ├── LabError              the lab cannot be built, started or stopped (leaves in musterlab.errors)
    └── ValidationError       a scenario or report cannot be read (leaves in validation.errors)

Only the command line turns an error into an exit code; everything below raises.
Every message is one line that names what is wrong and, where one is known, the fix.
"""


class MusterError(Exception):
    """Root of all errors that muster raises on purpose."""

    exit_code = 1


class UsageError(MusterError):
    """The command line or an input file asks for something that cannot be meant."""

    exit_code = 2


class ConfigurationError(MusterError):
    """The kubeconfig, a directory or the environment cannot be used as it is."""
