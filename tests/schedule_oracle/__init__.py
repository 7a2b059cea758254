"""An independent implementation of the pipeline schedules, in plain Python with an event heap.

It shares no code with the compiled simulation in ``collapipe_env/physics`` and knows plain pipelines only:
stages joined by single links, without the CU's relay. The tests hold the two against each other.
"""
