"""`python -m captioning` is `captioning`."""

import sys

from captioning.cli import main

sys.exit(main())
