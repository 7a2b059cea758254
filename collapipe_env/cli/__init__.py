"""The command line, ``collapipe``: one module for each command.

:mod:`collapipe_env.cli.main` picks the module and imports nothing else.
"""
