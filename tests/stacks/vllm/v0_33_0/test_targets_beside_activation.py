"""--quantization-config takes the experts' activation beside targets: all of gpt-oss in MXFP4, by two kernels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

TARGETS = {"re:.*self_attn.qkv_proj": "mxfp4", "lm_head": "mxfp4"}


def given(parse: Callable[..., Any], **quantization: Any) -> Any:
    """The quantization arguments that vLLM makes of the line, or its refusal."""
    made = parse("--quantization", "gpt_oss_mxfp4", "--quantization-config", json.dumps(quantization))
    return made if isinstance(made, str) else made.quantization_config


def test_both(
    parse: Callable[..., Any], config: Any, quant_config: Callable[..., Any], moe_backend: Callable[..., str]
) -> None:
    found = given(parse, targets=TARGETS, moe={"activation": "mxfp8"})
    assert not isinstance(found, str), found
    assert found.targets == TARGETS
    online = quant_config(targets=TARGETS, moe={"activation": "mxfp8"}).online_quantization_config
    assert online.args.targets == TARGETS
    assert moe_backend("flashinfer_cutlass") == "FLASHINFER_CUTLASS_MXFP4_MXFP8"
    quant_config(targets=TARGETS)
    assert moe_backend("flashinfer_cutlass").startswith("refused"), "which is what the activation is for"


@pytest.mark.parametrize(
    "other",
    [
        {"moe": "mxfp4"}, {"moe": {"weight": "mxfp4", "activation": "mxfp8"}}, {"moe": {}}, {"linear": "mxfp4"},
        {"linear": {"activation": "mxfp8"}}, {"moe": {"activation": "mxfp8"}, "linear": "mxfp4"},
    ],
    ids=str,
)  # fmt: skip
def test_weights_stay_exclusive(
    parse: Callable[..., Any], other: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not isinstance(given(parse, targets=TARGETS, moe={"activation": "mxfp8"}), str)
    refused = given(parse, targets=TARGETS, **other)
    assert isinstance(refused, str), refused
    assert "mutually exclusive" in refused + capsys.readouterr().err
