"""For all tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine makes any example slow; what must be fast is measured under benchmarks/.
settings.register_profile("turbo-lab", deadline=None)
settings.load_profile("turbo-lab")
