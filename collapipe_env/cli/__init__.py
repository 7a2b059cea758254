"""The command line, ``collapipe``: one module for each command, which :func:`.common.perform` runs."""
