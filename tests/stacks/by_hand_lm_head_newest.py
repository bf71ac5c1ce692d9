"""Ways to break `vllm/mxfp4-lm-head` of the set `gb10-newest` that its proof must see.

Used by test_by_hand.py, which explains how to run them.
"""

from __future__ import annotations

from by_hand_vllm import ByHand

PATCH = "vllm/mxfp4-lm-head"
QUANTIZATION = "vllm/model_executor/layers/quantization"
BASE, ONLINE, LINEAR = (f"{QUANTIZATION}/{name}.py" for name in ("base_config", "online/base", "online/fp8"))
GPT_OSS = "vllm/model_executor/models/gpt_oss.py"

NAMED = "            if pattern in matches and name and name in pattern\n"
TIED = "        for config in (hf_config, hf_config.get_text_config())\n"
TIED_METHOD = "        layer.quant_method = self.requantization_source or UnquantizedEmbeddingMethod()\n"
FORGET = "        online_config.quantized_layers.pop(layer.prefix, None)\n"

MUTANTS = [
    # Which target names the head.
    ByHand("an lm_head is named by its name alone", PATCH, ONLINE, NAMED, NAMED.replace("name in", "name ==")),
    ByHand(
        "an lm_head is named by any target that matches it", PATCH, ONLINE, NAMED, "            if pattern in matches\n"
    ),
    ByHand("an lm_head without a name is named", PATCH, ONLINE, NAMED, NAMED.replace(" and name and", " and")),
    ByHand(
        "an lm_head is named by a target that doesn't match it",
        PATCH,
        ONLINE,
        NAMED,
        NAMED.replace("pattern in matches and ", ""),
    ),
    ByHand(
        "an lm_head is named by its whole prefix",
        PATCH,
        ONLINE,
        '        name = prefix.rpartition(".")[2]\n',
        "        name = prefix\n",
    ),
    ByHand(
        "an lm_head's wildcards count next to a target that names it",
        PATCH,
        ONLINE,
        "            targets = self.get_lm_head_targets(prefix) or targets\n",
        "            pass\n",
    ),
    ByHand(
        "an lm_head of an unquantized checkpoint is silently left alone by wildcards",
        PATCH,
        ONLINE,
        "            targets = self.get_lm_head_targets(prefix) or targets\n",
        "            targets = self.get_lm_head_targets(prefix)\n",
    ),
    ByHand(
        "an lm_head of an unquantized checkpoint is quantized by wildcards",
        PATCH,
        ONLINE,
        "            issubclass(layer_cls, ParallelLMHead) and self.get_lm_head_targets(prefix)\n",
        "            issubclass(layer_cls, ParallelLMHead)\n",
    ),
    ByHand(
        "an lm_head of a quantized checkpoint isn't asked for",
        PATCH,
        BASE,
        "    ) and not quant_config.online_quantization_config.quantizes_lm_head(prefix):\n",
        "    ) and False:\n",
    ),
    ByHand(
        "an lm_head that isn't quantized loses the checkpoint's method",
        PATCH,
        BASE,
        "quantizes_lm_head(prefix):\n        return base_quant_method\n",
        "quantizes_lm_head(prefix):\n        return UnquantizedEmbeddingMethod()\n",
    ),
    ByHand(
        "an lm_head that is left alone isn't logged",
        PATCH,
        ONLINE,
        "            reason,\n        )\n        return False\n",
        "            reason,\n        ) if False else None\n        return False\n",
    ),
    ByHand(
        "an lm_head that no target matches is logged",
        PATCH,
        ONLINE,
        "        if not matches:\n            return False\n        if should_ignore_layer(\n",
        "        if should_ignore_layer(\n",
    ),
    # A tied head.
    ByHand(
        "an lm_head that the config ties is quantized",
        PATCH,
        ONLINE,
        "        elif _ties_word_embeddings():\n",
        "        elif False:\n",
    ),
    ByHand(
        "an lm_head is tied by the model's config alone", PATCH, ONLINE, TIED, "        for config in (hf_config,)\n"
    ),
    ByHand(
        "an lm_head is tied by the text's config alone",
        PATCH,
        ONLINE,
        TIED,
        "        for config in (hf_config.get_text_config(),)\n",
    ),
    ByHand("a tied lm_head keeps the online method", PATCH, LINEAR, TIED_METHOD, "        return layer\n"),
    ByHand(
        "a tied lm_head loses the checkpoint's method",
        PATCH,
        LINEAR,
        TIED_METHOD,
        "        layer.quant_method = UnquantizedEmbeddingMethod()\n",
    ),
    ByHand("a tied lm_head is reported as quantized", PATCH, LINEAR, FORGET, ""),
    ByHand(
        "a tied lm_head stays in layerwise loading",
        PATCH,
        LINEAR,
        "        get_layerwise_info(layer).reset()\n",
        "",
    ),
    # gpt-oss's head.
    ByHand(
        "an lm_head of gpt-oss gets every configuration",
        PATCH,
        GPT_OSS,
        "    return quant_config if isinstance(quant_config, Mxfp4Config) else None\n",
        "    return quant_config\n",
    ),
    ByHand(
        "an lm_head of gpt-oss gets online targets that only match it",
        PATCH,
        GPT_OSS,
        "        return quant_config if quant_config.get_lm_head_targets(prefix) else None\n",
        "        return quant_config\n",
    ),
]
