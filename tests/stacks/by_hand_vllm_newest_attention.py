"""Ways to break the patches of vLLM's attention and platform, and of Marlin's warning, of the set `gb10-newest`.

Used by test_by_hand.py, which explains how to run them.
"""

from __future__ import annotations

from by_hand_vllm import ByHand

PLANS, GROUPS, CLASS, WARNING, SINKS = (
    "vllm/prefill-plan-keywords",
    "vllm/attention-hyperparameter-groups",
    "vllm/blackwell-class",
    "vllm/marlin-fp4-warning",
    "vllm/attention-sinks-switch",
)
BACKENDS = "vllm/v1/attention/backends"
MARLIN = "vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py"
MODEL_DTYPE = "o_data_type=self.model_config.dtype,\n                            prefill_fixed"
_TENSORS = "vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors_moe"
_USED = "        self.sinks = sinks if use_sinks(sinks is not None) else None\n"

_EDITS = [
    # The plans of decode context parallelism.
    (PLANS, f"{BACKENDS}/flashinfer.py", [
        ("the context's output has the query's dtype", "            o_data_type=o_data_type,\n        )\n        self._new_tokens", "            o_data_type=q_data_type,\n        )\n        self._new_tokens"),
        ("the context's output has the cache's dtype", "            o_data_type=o_data_type,\n        )\n        self._new_tokens", "            o_data_type=kv_cache_dtype,\n        )\n        self._new_tokens"),
        ("the context is planned without a dtype", "            o_data_type=o_data_type,\n        )\n        self._new_tokens", "        )\n        self._new_tokens"),
        ("new tokens' output has the query's dtype", "            o_data_type=o_data_type,\n        )\n\n    def run", "            o_data_type=q_data_type,\n        )\n\n    def run"),
        ("new tokens' output has the cache's dtype", "            o_data_type=o_data_type,\n        )\n\n    def run", "            o_data_type=kv_cache_dtype,\n        )\n\n    def run"),
        ("new tokens are planned without a dtype", "            o_data_type=o_data_type,\n        )\n\n    def run", "        )\n\n    def run"),
    ]),
    # The groups patch moves this line of prefill-plan-keywords into its loop over plans.
    (GROUPS, f"{BACKENDS}/flashinfer.py", [
        ("the output has the query's dtype", MODEL_DTYPE, MODEL_DTYPE.replace("self.model_config.dtype", "self.q_data_type_prefill")),
        ("the output has the cache's dtype", MODEL_DTYPE, MODEL_DTYPE.replace("self.model_config.dtype", "self.kv_cache_dtype")),
        ("the output is BF16 whatever the model", MODEL_DTYPE, MODEL_DTYPE.replace("self.model_config.dtype", "torch.bfloat16")),
        ("the output has the decode's query's dtype", MODEL_DTYPE, MODEL_DTYPE.replace("self.model_config.dtype", "self.q_data_type_decode")),
    ]),
    (CLASS, "vllm/platforms/interface.py", [
        ("SM11x is none of them", "self.major in (10, 11, 12)", "self.major in (10, 12)"),
        ("SM12x is none of them", "self.major in (10, 11, 12)", "self.major in (10, 11)"),
        ("SM10x is none of them", "self.major in (10, 11, 12)", "self.major in (11, 12)"),
        ("all that follow are Blackwell", "self.major in (10, 11, 12)", "self.major >= 10"),
        ("Hopper is Blackwell", "self.major in (10, 11, 12)", "self.major in (9, 10, 11, 12)"),
        ("only SM100, SM110 and SM120 are", "self.major in (10, 11, 12)", "self.to_int() in (100, 110, 120)"),
        ("the first device is asked", "cls.get_device_capability(device_id=device_id)\n        return capability is not None and capability.is_b", "cls.get_device_capability()\n        return capability is not None and capability.is_b"),
        ("no device is one of them", "return capability is not None and capability.is_blackwell_class", "return capability is None or capability.is_blackwell_class"),
        ("a missing device fails", "return capability is not None and capability.is_blackwell_class", "return capability.is_blackwell_class"),
        ("the second device is the default", "def is_blackwell_class(cls, device_id: int = 0)", "def is_blackwell_class(cls, device_id: int = 1)"),
        ("the capability is a method", "    @property\n    def is_blackwell_class(self)", "    def is_blackwell_class(self)"),
    ]),
    (CLASS, "vllm/platforms/cuda.py", [
        ("SM12x alone has FlashInfer first", "device_capability.is_blackwell_class and not use_non_causal", "device_capability.major == 12 and not use_non_causal"),
        ("FlashInfer comes first for all attention", "device_capability.is_blackwell_class and not use_non_causal", "device_capability.is_blackwell_class"),
        ("FlashInfer comes first where it isn't causal", "device_capability.is_blackwell_class and not use_non_causal", "device_capability.is_blackwell_class and use_non_causal"),
        ("Hopper has FlashInfer first", "device_capability.is_blackwell_class and not use_non_causal", "device_capability.major >= 9 and not use_non_causal"),
        ("FlashInfer comes first on all that isn't Blackwell", "device_capability.is_blackwell_class and not use_non_causal", "not device_capability.is_blackwell_class and not use_non_causal"),
        ("SM12x is Blackwell only where there is a prefix", "device_capability.is_blackwell_class and not use_non_causal", "(device_capability.major == 10 or device_capability.is_blackwell_class and use_mm_prefix) and not use_non_causal"),
    ]),
    (WARNING, MARLIN, [
        ("Hopper isn't warned", "has_device_capability(100):\n        return\n    logger.warning_once", "has_device_capability(90):\n        return\n    logger.warning_once"),
        ("SM100 is warned", "has_device_capability(100):\n        return\n    logger.warning_once", "has_device_capability(101):\n        return\n    logger.warning_once"),
        ("SM12x is warned", "current_platform.has_device_capability(100):\n        return\n    logger.warning_once", "current_platform.is_device_capability_family(100):\n        return\n    logger.warning_once"),
        ("SM100 is warned, Hopper isn't", "if current_platform.has_device_capability(100):\n        return\n    logger.warning_once", "if not current_platform.has_device_capability(100):\n        return\n    logger.warning_once"),
        ("no GPU is warned", "if current_platform.has_device_capability(100):\n        return\n    logger.warning_once", "if current_platform.is_cuda():\n        return\n    logger.warning_once"),
        ("each layer is warned of", "    logger.warning_once(\n        \"Your GPU does not", "    logger.warning(\n        \"Your GPU does not"),
        ("it is information", "    logger.warning_once(\n        \"Your GPU does not", "    logger.info_once(\n        \"Your GPU does not"),
        ("only CUDA is warned", "has_device_capability(100):\n        return\n    logger.warning_once", "has_device_capability(100) or not current_platform.is_cuda():\n        return\n    logger.warning_once"),
        ("the warning names another kernel", "be used leveraging the Marlin kernel. This may degrade \"\n        \"performance for compute-heavy workloads.\"\n    )\n\n\ndef prepare_fp4", "be used leveraging the CUTLASS kernel. This may degrade \"\n        \"performance for compute-heavy workloads.\"\n    )\n\n\ndef prepare_fp4"),
        ("NVFP4 experts don't warn", "    warn_if_no_native_fp4()\n\n    input_dtype", "    input_dtype"),
    ]),
    (WARNING, "vllm/model_executor/kernels/linear/nvfp4/marlin.py", [
        ("linear layers don't warn", "        warn_if_no_native_fp4()\n", ""),
        ("linear layers aren't prepared", "        warn_if_no_native_fp4()\n        prepare_fp4_layer_for_marlin(layer)\n", "        warn_if_no_native_fp4()\n"),
    ]),
    (WARNING, f"{_TENSORS}/compressed_tensors_moe_w4a4_mxfp4.py", [
        ("compressed experts don't warn", "            warn_if_no_native_fp4()\n", ""),
        ("compressed experts aren't prepared", "            warn_if_no_native_fp4()\n            prepare_moe_fp4_layer_for_marlin(layer)\n", "            warn_if_no_native_fp4()\n"),
    ]),
    (SINKS, "vllm/v1/attention/sink_utils.py", [
        ("sinks are dropped by default", "envs.VLLM_ATTENTION_SINKS == \"false\"", "envs.VLLM_ATTENTION_SINKS != \"true\""),
        ("sinks are dropped where they shall be applied", "envs.VLLM_ATTENTION_SINKS == \"false\"", "envs.VLLM_ATTENTION_SINKS == \"auto\""),
        ("a layer without sinks has them", "    if not has_sinks:\n        return False\n", "    if not has_sinks:\n        return True\n"),
        ("a layer without sinks warns of their loss", "    if not has_sinks:\n        return False\n", ""),
        ("sinks are kept with a warning", "        )\n        return False\n    return True\n", "        )\n    return True\n"),
        ("nothing warns", "        logger.warning_once(\n", "        logger.debug(\n"),
        ("the warning names no variable", "\"VLLM_ATTENTION_SINKS=false: attention sinks are dropped. They are \"", "\"Attention sinks are dropped. They are \""),
        ("each layer warns", "        logger.warning_once(\n", "        logger.warning(\n"),
    ]),
    (SINKS, "vllm/envs.py", [
        ("sinks are dropped where nothing is set", "\"VLLM_ATTENTION_SINKS\", \"auto\", [\"auto\", \"false\"]", "\"VLLM_ATTENTION_SINKS\", \"false\", [\"auto\", \"false\"]"),
        ("any value is taken", "    \"VLLM_ATTENTION_SINKS\": env_with_choices(\n        \"VLLM_ATTENTION_SINKS\", \"auto\", [\"auto\", \"false\"]\n    ),\n", "    \"VLLM_ATTENTION_SINKS\": lambda: os.getenv(\"VLLM_ATTENTION_SINKS\", \"auto\"),\n"),
        ("true is a value", "\"auto\", [\"auto\", \"false\"]\n    ),", "\"auto\", [\"auto\", \"true\", \"false\"]\n    ),"),
        ("the graph is kept whatever is set", "    \"VLLM_ATTENTION_SINKS\": env_with_choices(\n", "    \"VLLM_SINKS\": env_with_choices(\n"),
    ]),
    (SINKS, "vllm/model_executor/layers/attention/attention.py", [
        ("a layer keeps its sinks", "use_sinks(extra_impl_args.get(\"sinks\") is not None)", "(extra_impl_args.get(\"sinks\") is not None)"),
        ("a backend without sinks gets None", "            extra_impl_args.pop(\"sinks\", None)\n", "            extra_impl_args[\"sinks\"] = None\n"),
        ("an implementation gets the sinks", "            extra_impl_args.pop(\"sinks\", None)\n", "            pass\n"),
        ("sinks that are used are taken away", "        if not self.has_sink:\n            # Not as", "        if self.has_sink:\n            # Not as"),
        ("a layer that has no argument fails", "extra_impl_args.pop(\"sinks\", None)", "extra_impl_args.pop(\"sinks\")"),
        ("each argument counts as sinks", "use_sinks(extra_impl_args.get(\"sinks\") is not None)", "use_sinks(\"sinks\" in extra_impl_args)"),
    ]),
    (SINKS, "vllm/v1/attention/backend.py", [
        ("backends without sinks are rejected", "        has_sink = use_sinks(has_sink)\n", ""),
        ("backends are taken whatever the sinks", "        has_sink = use_sinks(has_sink)\n", "        has_sink = False\n"),
        ("each layer has sinks", "        has_sink = use_sinks(has_sink)\n", "        has_sink = use_sinks(True)\n"),
    ]),
    (SINKS, f"{BACKENDS}/utils.py", [
        ("builders count sinks", "use_sinks(getattr(impl, \"sinks\", None) is not None)", "(getattr(impl, \"sinks\", None) is not None)"),
        ("builders count no sinks", "use_sinks(getattr(impl, \"sinks\", None) is not None)", "False"),
        ("builders count None as sinks", "use_sinks(getattr(impl, \"sinks\", None) is not None)", "use_sinks(hasattr(impl, \"sinks\"))"),
    ]),
    (SINKS, f"{BACKENDS}/flashinfer.py", [
        ("FlashInfer keeps its sinks", "        if not use_sinks(sinks is not None):\n            sinks = None\n", ""),
        ("FlashInfer loses its sinks", "        if not use_sinks(sinks is not None):\n            sinks = None\n", "        sinks = None\n"),
        ("FlashInfer refreshes what was dropped", "        if not use_sinks(sinks is not None):\n            sinks = None\n        # Keep the source so RL weight updates can refresh the runtime tensor.\n        self._sinks_source = sinks\n", "        self._sinks_source = sinks\n        if not use_sinks(sinks is not None):\n            sinks = None\n"),
    ]),
    *(
        (SINKS, f"{BACKENDS}/{name}_attn.py", [
            (f"{name} keeps its sinks", _USED, "        self.sinks = sinks\n"),
            (f"{name} loses its sinks", _USED, "        self.sinks = None\n"),
        ])
        for name in ("cpu", "flash", "rocm", "triton")
    ),
]  # fmt: skip

MUTANTS = [ByHand(name, patch, path, old, new) for patch, path, edits in _EDITS for name, old, new in edits]
