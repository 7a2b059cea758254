"""Settings for all tests: repeatable examples, one numerical thread in each worker."""

import os

# Before the libraries are imported, which read them once.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from hypothesis import settings  # noqa: E402

# The same examples in every run: a failure is the change's, and can be repeated. For fresh ones:
# HYPOTHESIS_PROFILE=explore
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
