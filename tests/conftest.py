"""Property tests try the same examples in every run, and no machine is too slow for them.

`pytest --hypothesis-profile=default` looks for new examples.
"""

from __future__ import annotations

from hypothesis import settings

settings.load_profile("ci")
