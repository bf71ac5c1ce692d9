"""On PYTHONPATH, torch and FlashInfer take an SM90 GPU for an SM121: what they then load is what module.py built."""

from typing import Any

import torch


class _SM121:
    """A device's properties, but for those that its architecture decides."""

    major, minor, shared_memory_per_block_optin = 12, 1, 101376

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


_properties = torch.cuda.get_device_properties
torch.cuda.get_device_properties = lambda *args, **kwargs: _SM121(_properties(*args, **kwargs))
torch.cuda.get_device_capability = lambda *_, **__: (12, 1)
