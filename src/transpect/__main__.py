"""``python -m transpect`` is ``transpect``: for launchers that start modules, as ``torchrun`` does."""

import sys

from transpect.cli.main import main

sys.exit(main())
