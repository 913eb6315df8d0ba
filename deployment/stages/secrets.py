"""Secrets as templates that Ansible resolves when a task needs them; their values are never in the inventory."""


def secret(reference: dict[str, str] | None) -> str | None:
    """Return the template that gives a secret when it is needed: from the environment, or a variable of vault.yml."""
    if reference is None:
        return None
    if "env" in reference:
        return f"{{{{ lookup('ansible.builtin.env', '{reference['env']}') }}}}"
    return f"{{{{ {reference['vault']} }}}}"


def secrets(reference: dict[str, str] | None) -> str | None:
    """Return the template that gives a list of secrets: a list in vault.yml, or an environment variable split at
    commas.
    """
    template = secret(reference)
    if reference is None or template is None or "vault" in reference:
        return template
    return template.removesuffix(" }}") + " | split(',') | map('trim') | select }}"
