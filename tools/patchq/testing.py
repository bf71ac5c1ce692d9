"""Public name of the pytest plugin for proofs: ``-p patchq.testing``."""

import sys

from patchq.proofs import plugin

sys.modules[__name__] = plugin
