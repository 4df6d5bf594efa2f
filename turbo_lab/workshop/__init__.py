"""The workshop kit: time plans, wheelhouse, self-check, student copies, grading."""
