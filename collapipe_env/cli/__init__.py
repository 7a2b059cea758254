"""The command line, the top layer: ``collapipe train``, ``evaluate`` and ``compare``.

One module a command; :mod:`collapipe_env.cli.main` picks it, and imports nothing else.
"""
