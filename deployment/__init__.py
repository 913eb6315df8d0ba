"""The installer.

It brings bare hosts to a verified cluster: site file, plan, journal, and a playbook for each stage.
"""
