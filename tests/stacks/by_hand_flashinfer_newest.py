"""Ways to break the patches of FlashInfer and CUTLASS in `gb10-newest`; see by_hand_flashinfer.py."""

from __future__ import annotations

from by_hand_flashinfer_both import (
    BINDING,
    BOTH,
    EXT,
    JOBS,
    MOE_CORE,
    MOE_JIT,
    PROFILE,
    TOPK,
    Mutant,
    of,
    sink_module_name,
)

UTILS, DECODE, PREFILL = (f"flashinfer/{name}.py" for name in ("utils", "decode", "prefill"))
JIT_UTILS, FP4 = "flashinfer/jit/utils.py", "flashinfer/gemm/gemm_mm_fp4_cute_dsl.py"
SCALES, SINKS = "flashinfer/jit-module-scales", "flashinfer/sinks-left-out"
UNTUNED, SKIPPED = "flashinfer/moe-untuned-tiles", "flashinfer/topk-skipped-rows"
OWN = """\
            check_jit_scales(
                self._jit_additional_scalar_names,
                self._jit_additional_scalar_names,
                q_scale,
                k_scale,
            )
"""
PAGED = """\
                check_jit_scales(
                    self._jit_additional_scalar_names[
                        : len(additional_args) - len(self._jit_additional_tensor_names)
                    ],
                    self._jit_additional_scalar_names,
                    q_scale,
                    k_scale,
                )
"""
NAMES = "            self._jit_additional_scalar_names = list(jit_args[9])\n"
DECODES = 'if sinks is not None and self.resolved_backend in ("fa2", "fa3"):'
PREFILLS = 'if sinks is not None and self._backend in ("fa2", "fa3"):\n            raise ValueError(\n                f"The {self._backend} backend would leave'
BARRIER = "        if (iter > 0) AdvanceRadixGroupBarrier(state, barrier_phase, ctas_per_group, tx);\n"

MUTANTS: list[Mutant] = [
    *BOTH,
    *sink_module_name("flashinfer/attention/_core.py"),
    *of(
        JOBS,
        "flashinfer/jit/core.py",
        (
            "one build is always told",
            "                self.compiler_gib,\n                is_cold_build,\n",
            "                self.compiler_gib,\n                True,\n",
        ),
        (
            "one build is never told",
            "                self.compiler_gib,\n                is_cold_build,\n",
            "                self.compiler_gib,\n                False,\n",
        ),
        (
            "several builds are never told",
            "            compiler_gib,\n            is_cold_build,\n            max_jobs",
            "            compiler_gib,\n            False,\n            max_jobs",
        ),
    ),
    *of(
        JOBS,
        EXT,
        (
            "each run of ninja takes 3 GiB",
            "else _get_num_workers(compiler_gib, is_cold_build)",
            "else _get_num_workers(3, is_cold_build)",
        ),
        (
            "each run of ninja is cold",
            "else _get_num_workers(compiler_gib, is_cold_build)",
            "else _get_num_workers(compiler_gib, True)",
        ),
        (
            "a number passed by the caller is ignored",
            "        if max_jobs is not None\n        else _get",
            "        if False\n        else _get",
        ),
        (
            "without a number all jobs",
            "        else _get_num_workers(compiler_gib, is_cold_build)",
            "        else None",
        ),
    ),
    *of(
        JOBS,
        JIT_UTILS,
        ("the larger of the two", "return min(candidates) if candidates", "return max(candidates) if candidates"),
        ("the system's if there is one", "return min(candidates) if candidates", "return candidates[0] if candidates"),
        ("KiB for bytes", "int(line.split()[1]) * 1024", "int(line.split()[1])"),
        ("free for available", 'line.startswith("MemAvailable:")', 'line.startswith("MemFree:")'),
        (
            "active page cache alone",
            'int(stat[f"{prefix}active_file"]) + int(stat[f"{prefix}inactive_file"])',
            'int(stat[f"{prefix}active_file"])',
        ),
        (
            "inactive page cache alone",
            'int(stat[f"{prefix}active_file"]) + int(stat[f"{prefix}inactive_file"])',
            'int(stat[f"{prefix}inactive_file"])',
        ),
        (
            "version 2: page cache counts as used",
            '            current -= min(_cgroup_page_cache_bytes("/sys/fs/cgroup"), current)\n',
            "",
        ),
        (
            "version 2: more page cache than is used",
            'min(_cgroup_page_cache_bytes("/sys/fs/cgroup"), current)',
            '_cgroup_page_cache_bytes("/sys/fs/cgroup")',
        ),
        ("version 2: less than nothing", "return max(0, int(limit) - current)", "return int(limit) - current"),
        (
            "version 1: page cache counts as used",
            '            usage -= min(\n                _cgroup_page_cache_bytes("/sys/fs/cgroup/memory", "total_"), usage\n            )\n',
            "",
        ),
        ("version 1: the group's own page cache alone", '"/sys/fs/cgroup/memory", "total_"', '"/sys/fs/cgroup/memory"'),
        (
            "version 1: more page cache than is used",
            'min(\n                _cgroup_page_cache_bytes("/sys/fs/cgroup/memory", "total_"), usage\n            )',
            '_cgroup_page_cache_bytes("/sys/fs/cgroup/memory", "total_")',
        ),
        ("version 1: less than nothing", "return max(0, limit_v1 - usage)", "return limit_v1 - usage"),
        ("version 1: no limit is one", "        if limit_v1 < 1 << 60:", "        if True:"),
        (
            "no limit of version 1",
            '"/sys/fs/cgroup/memory/memory.limit_in_bytes"',
            '"/sys/fs/cgroup/memory/memory.max_usage_in_bytes"',
        ),
    ),
    *of(
        JOBS,
        FP4,
        ("mm_fp4's workers by no memory", "    available = available_host_memory_bytes()\n", "    available = None\n"),
    ),
    *of(
        SCALES,
        UTILS,
        (
            "where the module derives it",
            '    if "sm_scale" not in given_scalar_names:\n',
            '    if "sm_scale" in given_scalar_names:\n',
        ),
        ("whichever scalars there are", '    if "sm_scale" not in given_scalar_names:\n        return\n', ""),
        (
            "by all scalars of the module",
            '    if "sm_scale" not in given_scalar_names:\n',
            '    if "sm_scale" not in scalar_names:\n',
        ),
        (
            "by those given alone",
            "if scale is None or name in scalar_names:",
            "if scale is None or name in given_scalar_names:",
        ),
        ("though declared", "if scale is None or name in scalar_names:", "if scale is None:"),
        ("though none", "if scale is None or name in scalar_names:", "if name in scalar_names:"),
        (
            "q's scalar for k's",
            '(("scale_q_scalar", q_scale), ("scale_k_scalar", k_scale))',
            '(("scale_k_scalar", q_scale), ("scale_q_scalar", k_scale))',
        ),
        ("q alone", '(("scale_q_scalar", q_scale), ("scale_k_scalar", k_scale))', '(("scale_q_scalar", q_scale),)'),
        ("k alone", '(("scale_q_scalar", q_scale), ("scale_k_scalar", k_scale))', '(("scale_k_scalar", k_scale),)'),
        ("another name of q's scalar", '("scale_q_scalar", q_scale)', '("q_scale", q_scale)'),
        (
            "any float taken for one",
            "        if isinstance(scale, (int, float)) and scale == 1:\n            continue\n        raise",
            "        if isinstance(scale, (int, float)):\n            continue\n        raise",
        ),
        (
            "a tensor is waited for",
            "        if isinstance(scale, (int, float)) and scale == 1:\n            continue\n        raise",
            "        if scale == 1:\n            continue\n        raise",
        ),
        (
            "the whole number one refused",
            "        if isinstance(scale, (int, float)) and scale == 1:\n            continue\n        raise",
            "        if isinstance(scale, float) and scale == 1:\n            continue\n        raise",
        ),
        (
            "one refused",
            "        if isinstance(scale, (int, float)) and scale == 1:\n            continue\n        raise",
            "        raise",
        ),
        (
            "one ends it",
            "        if isinstance(scale, (int, float)) and scale == 1:\n            continue\n        raise",
            "        if isinstance(scale, (int, float)) and scale == 1:\n            return\n        raise",
        ),
        (
            "none ends it",
            "        if scale is None or name in scalar_names:\n            continue",
            "        if scale is None or name in scalar_names:\n            return",
        ),
    ),
    *(
        mutant
        for path, kind in ((DECODE, "decode"), (PREFILL, "ragged"))
        for mutant in of(
            SCALES,
            path,
            (f"{kind} not at all", OWN, "            pass\n"),
            (f"{kind} of q alone", OWN, OWN.replace("k_scale", "None")),
            (f"{kind} of k alone", OWN, OWN.replace("q_scale", "None")),
            (
                f"{kind} of scales exchanged",
                OWN,
                OWN.replace(
                    "                q_scale,\n                k_scale",
                    "                k_scale,\n                q_scale",
                ),
            ),
            (f"{kind} of no scalar given", OWN, OWN.replace("self._jit_additional_scalar_names", "[]", 1)),
            (
                f"{kind} of no scalar declared",
                OWN,
                OWN.replace("names,\n                self._jit_additional_scalar_names", "names,\n                []"),
            ),
        )
    ),
    *of(
        SCALES,
        DECODE,
        ("decode by the tensors' names", NAMES, NAMES.replace("9", "7")),
        ("decode by the scalars' types", NAMES, NAMES.replace("9", "10")),
        (
            "decode without a JIT module",
            "        if self._jit_module is not None:\n            # All of its",
            "        if self._jit_module is None:\n            # All of its",
        ),
    ),
    *of(
        SCALES,
        PREFILL,
        ("paged not at all", PAGED, ""),
        ("paged of q alone", PAGED, PAGED.replace("k_scale", "None")),
        ("paged of k alone", PAGED, PAGED.replace("q_scale", "None")),
        (
            "paged of scales exchanged",
            PAGED,
            PAGED.replace("q_scale,\n                    k_scale", "k_scale,\n                    q_scale"),
        ),
        (
            "paged with all scalars given",
            PAGED,
            PAGED.replace(
                "[\n                        : len(additional_args) - len(self._jit_additional_tensor_names)\n                    ]",
                "",
            ),
        ),
        (
            "paged with tensors counted as scalars",
            PAGED,
            PAGED.replace(" - len(self._jit_additional_tensor_names)", ""),
        ),
        (
            "paged with no scalar given",
            PAGED,
            PAGED.replace("len(additional_args) - len(self._jit_additional_tensor_names)", "0"),
        ),
        (
            "paged with no scalar declared",
            PAGED,
            PAGED.replace("],\n                    self._jit_additional_scalar_names", "],\n                    []"),
        ),
    ),
    *of(
        SINKS,
        DECODE,
        ("decode with FA2 alone", DECODES, DECODES.replace(', "fa3")', ",)")),
        ("decode with FA3 alone", DECODES, DECODES.replace('"fa2", ', '"fa3", ')),
        ("decode before auto is resolved", DECODES, DECODES.replace("resolved_backend", "_backend")),
        ("decode with trtllm-gen, too", DECODES, DECODES.replace('"fa3")', '"fa3", "trtllm-gen")')),
        ("decode with cuDNN, too", DECODES, DECODES.replace('"fa3")', '"fa3", "cudnn")')),
        ("decode with cute-dsl, too", DECODES, DECODES.replace('"fa3")', '"fa3", "cute-dsl")')),
        ("decode with all but trtllm-gen", DECODES, DECODES.replace('in ("fa2", "fa3")', '!= "trtllm-gen"')),
        ("decode without sinks", DECODES, DECODES.replace("sinks is not None and ", "")),
        ("decode of others", DECODES, DECODES.replace(" in (", " not in (")),
    ),
    *of(
        SINKS,
        PREFILL,
        ("prefill with FA2 alone", PREFILLS, PREFILLS.replace(', "fa3")', ",)")),
        ("prefill with FA3 alone", PREFILLS, PREFILLS.replace('"fa2", ', '"fa3", ')),
        ("prefill with trtllm-gen, too", PREFILLS, PREFILLS.replace('"fa3")', '"fa3", "trtllm-gen")')),
        ("prefill with cuDNN, too", PREFILLS, PREFILLS.replace('"fa3")', '"fa3", "cudnn")')),
        ("prefill without sinks", PREFILLS, PREFILLS.replace("sinks is not None and ", "")),
        ("prefill of others", PREFILLS, PREFILLS.replace(" in (", " not in (")),
    ),
    *of(
        PROFILE,
        MOE_CORE,
        (
            "the workspace of the full module",
            "        return get_cutlass_fused_moe_module_for_dtypes(\n            device_arch, x_dtype, weight_dtype\n",
            "        return get_cutlass_fused_moe_module(\n            device_arch\n",
        ),
        (
            "the workspace by dtypes exchanged",
            "            device_arch, x_dtype, weight_dtype\n",
            "            device_arch, weight_dtype, x_dtype\n",
        ),
    ),
    *of(
        PROFILE,
        "flashinfer/fused_moe/runners.py",
        (
            "a runner with one dtype",
            "str(self._device_arch), self._x_dtype, self._weight_dtype",
            "str(self._device_arch), self._x_dtype, self._x_dtype",
        ),
        (
            "a runner with dtypes exchanged",
            "str(self._device_arch), self._x_dtype, self._weight_dtype",
            "str(self._device_arch), self._weight_dtype, self._x_dtype",
        ),
        (
            "a runner for another architecture",
            "str(self._device_arch), self._x_dtype, self._weight_dtype",
            '"100", self._x_dtype, self._weight_dtype',
        ),
        (
            "a runner whose architecture is a number",
            "str(self._device_arch), self._x_dtype, self._weight_dtype",
            "self._device_arch, self._x_dtype, self._weight_dtype",
        ),
    ),
    *of(
        PROFILE,
        MOE_JIT,
        (
            "all kernels are written",
            "            mxfp4_only=mxfp4_only,\n        )\n\n    except",
            "        )\n\n    except",
        ),
        (
            "the module asks for the full one",
            'nvcc_flags, "120", use_fast_build, mxfp4_only=mxfp4_only',
            'nvcc_flags, "120", use_fast_build',
        ),
        ("generated sources in one folder", "cutlass_instantiations/{variant}", "cutlass_instantiations/{device_arch}"),
        (
            "modules under one name, with folders of their own",
            'module_name or f"fused_moe_{variant}"',
            'module_name or f"fused_moe_{device_arch}"',
        ),
        ("a module's own name lost", 'module_name or f"fused_moe_{variant}"', 'f"fused_moe_{variant}"'),
    ),
    *of(
        UNTUNED,
        BINDING,
        (
            "the choice inverted",
            "is_small && rows_per_expert <= tile_n(config)",
            "is_small && rows_per_expert > tile_n(config)",
        ),
        ("the rows must leave room", "rows_per_expert <= tile_n(config)", "rows_per_expert < tile_n(config)"),
        ("rows rounded down", "(rows + experts - 1) / experts", "rows / experts"),
        ("all rows for one expert", "(rows + experts - 1) / experts", "rows"),
        ("the largest of the small tiles", "tile_n(config) < tile_n(best)", "tile_n(config) > tile_n(best)"),
        ("the last of the small tiles", "(!best.swap_ab || tile_n(config) < tile_n(best))", "true"),
        ("not instead of a swapped one", "(!best.swap_ab || tile_n(config) < tile_n(best))", "!best.swap_ab"),
        (
            "not swapped",
            "config.sm_version == 120 && config.swap_ab && tile_n",
            "config.sm_version == 120 && !config.swap_ab && tile_n",
        ),
        (
            "swapped or not",
            "config.sm_version == 120 && config.swap_ab && tile_n",
            "config.sm_version == 120 && tile_n",
        ),
        ("128 is small", "tile_n(config) < 128;", "tile_n(config) <= 128;"),
        ("64 is not small", "tile_n(config) < 128;", "tile_n(config) < 64;"),
        ("any architecture", "is_small = config.sm_version == 120 && ", "is_small = "),
        ("any dtype", "    if (!isWMxfp4AMxfp8Quant() && !isWMxfp4AFp8Quant()) return best;\n", ""),
        (
            "not with MXFP8",
            "    if (!isWMxfp4AMxfp8Quant() && !isWMxfp4AFp8Quant()) return best;\n",
            "    if (!isWMxfp4AFp8Quant()) return best;\n",
        ),
        (
            "not with FP8",
            "    if (!isWMxfp4AMxfp8Quant() && !isWMxfp4AFp8Quant()) return best;\n",
            "    if (!isWMxfp4AMxfp8Quant()) return best;\n",
        ),
        (
            "with both alone",
            "    if (!isWMxfp4AMxfp8Quant() && !isWMxfp4AFp8Quant()) return best;\n",
            "    if (!isWMxfp4AMxfp8Quant() || !isWMxfp4AFp8Quant()) return best;\n",
        ),
        ("the list's first for each GEMM", "auto best = mAllProfiles.at(first);", "auto best = mAllProfiles.front();"),
        (
            "past the GEMM's last",
            "i < first + count; ++i) {\n      auto const& config",
            "i < mAllProfiles.size(); ++i) {\n      auto const& config",
        ),
        (
            "not the GEMM's last",
            "i < first + count; ++i) {\n      auto const& config",
            "i + 1 < first + count; ++i) {\n      auto const& config",
        ),
        (
            "the second GEMM by the first's",
            "untunedTactic(mGemm1TacticCount, mGemm2TacticCount, rows, experts)",
            "best_gemm1_profile",
        ),
        (
            "the second GEMM by the first's count",
            "untunedTactic(mGemm1TacticCount, mGemm2TacticCount, rows, experts)",
            "untunedTactic(mGemm1TacticCount, mGemm1TacticCount, rows, experts)",
        ),
        ("the first GEMM by its first", "untunedTactic(0, mGemm1TacticCount, rows, experts)", "mAllProfiles.front()"),
        (
            "the first GEMM by all tactics",
            "untunedTactic(0, mGemm1TacticCount, rows, experts)",
            "untunedTactic(0, mAllProfiles.size(), rows, experts)",
        ),
        (
            "rows and experts exchanged",
            "ActivationType activation_type,\n                         int64_t rows, int64_t experts)",
            "ActivationType activation_type,\n                         int64_t experts, int64_t rows)",
        ),
    ),
    *of(
        SKIPPED,
        TOPK,
        ("no wait in the second row", BARRIER, BARRIER.replace("iter > 0", "iter > 1")),
        ("no wait but in the second row", BARRIER, BARRIER.replace("iter > 0", "iter == 1")),
        ("no wait", BARRIER, ""),
        ("a wait of one block", BARRIER, BARRIER.replace("iter > 0", "iter > 0 && cta_in_group == 0")),
        ("skipped rows counted for the histograms", "num_selected++, local_gt_count", "iter, local_gt_count"),
        ("each row by the histograms of the first", "num_selected++, local_gt_count", "0, local_gt_count"),
        ("selected rows not counted", "num_selected++, local_gt_count", "num_selected, local_gt_count"),
        (
            "every other turn with the histograms",
            "num_selected++, local_gt_count",
            "(num_selected += 2), local_gt_count",
        ),
        ("counted before", "num_selected++, local_gt_count", "++num_selected, local_gt_count"),
        (
            "skipped rows are selected from",
            "      // with, and a peer may still be about to read its others.\n      continue;\n",
            "      // with, and a peer may still be about to read its others.\n",
        ),
        ("a block too many for the barrier", BARRIER, BARRIER.replace("ctas_per_group, tx", "ctas_per_group - 1, tx")),
    ),
]
