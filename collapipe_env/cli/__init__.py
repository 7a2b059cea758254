"""The command line: ``collapipe train``, ``evaluate``, ``compare``, ``scenario``, ``zoo`` and ``warm-up``.

One module a command; :mod:`collapipe_env.cli.main` picks it, and imports nothing else.
"""
