"""The public name of the proofs' pytest plugin: ``-p patchq.testing``."""

import sys

from patchq.proofs import plugin

sys.modules[__name__] = plugin
