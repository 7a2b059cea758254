"""The command line, the top layer: ``collapipe train``, ``evaluate``, ``compare`` and ``scenario``.

One module a command; :mod:`collapipe_env.cli.main` picks it, and imports nothing else.
"""
