"""`python -m sumus` is the same as `sumus`."""

import sys

from sumus.cli import main

sys.exit(main())
