"""Ways to break FlashInfer's and CUTLASS's patches that their proofs once didn't see; see by_hand_vllm.py.

Each is a name, a patch, a file of the patched tree, what it has there once, and what that becomes.
"""

from __future__ import annotations

from by_hand_flashinfer_both import (
    BINDING,
    BOTH,
    EXT,
    JOBS,
    KERNELS,
    LAUNCHER,
    MOE_JIT,
    PROFILE,
    TOPK,
    Mutant,
    of,
    sink_module_name,
)

MOE = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm"
CONTEXT = "flashinfer/compilation_context.py"
HEURISTIC = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/cutlass_heuristic.cpp"
CONFIGS = "csrc/nv_internal/tensorrt_llm/cutlass_extensions/include/cutlass_extensions/gemm_configs.h"
MIXED = f"{MOE}/launchers/moe_gemm_sm120_mixed_input_launcher.inl"
DISPATCH = f"{MOE}/moe_gemm_template_dispatch_tma_ws.h"
ROWS = "csrc/fused_moe/cutlass_backend/cutlass_fused_moe_kernels.cuh"
UTILS, DECODE, PREFILL = (f"flashinfer/{name}.py" for name in ("utils", "decode", "prefill"))
TILES = "flashinfer/sm120-small-n-tiles"
SCALES, SINKS = "flashinfer/jit-module-scales", "flashinfer/sinks-left-out"
PDL, WAITS = "flashinfer/grouped-gemm-pdl", "flashinfer/grouped-gemm-waits"
SUFFIX, ROWS_PATCH = "flashinfer/arch-suffix", "flashinfer/moe-padding-rows"
NAMESPACE, TACTICS = "flashinfer/sm120-namespace-launcher", "flashinfer/moe-gemm2-tactic-ids"
LEFT_OUT = 'if sinks is not None and self._backend != "trtllm-gen":\n            raise ValueError(\n                f"The {self._backend} backend would leave'

MUTANTS: list[Mutant] = [
    *BOTH,
    *sink_module_name("flashinfer/attention.py"),
    *of(
        "flashinfer/attention-sink-jit-uri",
        "flashinfer/attention.py",
        (
            "whether there is a positional encoding",
            "                PosEncodingMode[pos_encoding_mode].value,\n                window_left >= 0,\n"
            "                use_fp16_qk_reduction,\n            ),  # uri",
            '                int(pos_encoding_mode != "NONE"),\n                window_left >= 0,\n'
            "                use_fp16_qk_reduction,\n            ),  # uri",
        ),
    ),
    *of(
        "flashinfer/aot-sm121",
        "flashinfer/aot.py",
        (
            "for a list with both alone",
            "if has_sm120 or has_sm121:\n            # One",
            "if has_sm120 and has_sm121:\n            # One",
        ),
        ("for 12.1 alone", "if has_sm120 or has_sm121:\n            # One", "if has_sm121:\n            # One"),
        ("for 12.0 alone", "if has_sm120 or has_sm121:\n            # One", "if has_sm120:\n            # One"),
        ("for all architectures", "if has_sm120 or has_sm121:\n            # One", "if True:\n            # One"),
        (
            "no MoE",
            "            # One module serves both.\n            jit_specs.append(gen_cutlass_fused_moe_sm120_module())\n",
            "            # One module serves both.\n",
        ),
        (
            "no GEMM",
            "            # One module serves both.\n            jit_specs.append(gen_cutlass_fused_moe_sm120_module())\n            jit_specs.append(gen_gemm_sm120_module())\n",
            "            # One module serves both.\n            jit_specs.append(gen_cutlass_fused_moe_sm120_module())\n",
        ),
        (
            "no FP4 GEMM",
            "            # One module serves both.\n            jit_specs.append(gen_cutlass_fused_moe_sm120_module())\n            jit_specs.append(gen_gemm_sm120_module())\n            jit_specs.append(gen_gemm_sm120_module_cutlass_fp4())\n",
            "            # One module serves both.\n            jit_specs.append(gen_cutlass_fused_moe_sm120_module())\n            jit_specs.append(gen_gemm_sm120_module())\n",
        ),
        (
            "12.0's quantization on 12.1",
            "jit_specs.append(gen_fp4_quantization_sm121_module())",
            "jit_specs.append(gen_fp4_quantization_sm120_module())",
        ),
        (
            "12.1's quantization on 12.0",
            "        if has_sm121:\n            jit_specs.append(gen_fp4",
            "        if has_sm120:\n            jit_specs.append(gen_fp4",
        ),
        (
            "no quantization for 12.1",
            "        if has_sm121:\n            jit_specs.append(gen_fp4_quantization_sm121_module())\n        if has_sm120 or",
            "        if has_sm120 or",
        ),
        (
            "the fast build of the MoE",
            "            # One module serves both.\n            jit_specs.append(gen_cutlass_fused_moe_sm120_module())\n",
            "            # One module serves both.\n            jit_specs.append(gen_cutlass_fused_moe_sm120_module(True))\n",
        ),
        (
            "not where SM100 is listed too",
            "if has_sm120 or has_sm121:\n            # One",
            "if (has_sm120 or has_sm121) and not has_sm100:\n            # One",
        ),
        (
            "for SM110 as well",
            "if has_sm120 or has_sm121:\n            # One",
            "if has_sm110 or has_sm120 or has_sm121:\n            # One",
        ),
        (
            "the MoE for each of the two",
            "            # One module serves both.\n",
            "            # One module serves both.\n            if has_sm120 and has_sm121:\n                jit_specs.append(gen_cutlass_fused_moe_sm120_module())\n",
        ),
    ),
    *of(
        SUFFIX,
        CONTEXT,
        ("12.9 has no family", "version >= _NVCC_FAMILY else", "version > _NVCC_FAMILY else"),
        (
            "a family without an nvcc",
            'return "f" if version is not None and version >= _NVCC_FAMILY else "a"',
            'return "f" if version is None or version >= _NVCC_FAMILY else "a"',
        ),
        (
            "a and f exchanged",
            'return "f" if version is not None and version >= _NVCC_FAMILY else "a"',
            'return "a" if version is not None and version >= _NVCC_FAMILY else "f"',
        ),
        ("the family from 12.8 on", '_NVCC_FAMILY = Version("12.9")', '_NVCC_FAMILY = Version("12.8")'),
        ("the family from 13.0 on", '_NVCC_FAMILY = Version("12.9")', '_NVCC_FAMILY = Version("13.0")'),
        ("sm_120a from 12.9 on", '_NVCC_SM120 = Version("12.8")', '_NVCC_SM120 = Version("12.9")'),
        ("sm_120a from 12.7 on", '_NVCC_SM120 = Version("12.8")', '_NVCC_SM120 = Version("12.7")'),
        ("a second suffix", "if major == 12 and minor.isdigit():", "if major == 12:"),
        ("a suffix for SM100 and newer", "if major == 12 and minor.isdigit():", "if major >= 10 and minor.isdigit():"),
        ("a suffix for 12.0 alone", "if major == 12 and minor.isdigit():", 'if major == 12 and minor == "0":'),
        (
            "a detected 12.1 gets a",
            "                    if major == 12:\n",
            "                    if major == 12 and minor == 0:\n",
        ),
        (
            "a detected 12.0 gets a",
            "                    if major == 12:\n",
            "                    if major == 12 and minor == 1:\n",
        ),
        (
            "a detected SM12x gets a",
            "                        minor = str(minor) + _sm12x_suffix()\n",
            '                        minor = str(minor) + "a"\n',
        ),
        ("a detected SM100 gets f", "                    if major == 12:\n", "                    if major >= 10:\n"),
        (
            "a detected SM90 gets none",
            "                    elif major >= 9:\n",
            "                    elif major > 9:\n",
        ),
        ("sm_121a with 12.8", 'minor.endswith("f") or minor[0] != "0"', 'minor.endswith("f")'),
        ("sm_120f with 12.8", 'minor.endswith("f") or minor[0] != "0"', 'minor[0] != "0"'),
        (
            "the needed nvcc refused",
            "version is not None and version < needed",
            "version is not None and version <= needed",
        ),
        ("refused without an nvcc", "version is not None and version < needed", "version is None or version < needed"),
        ("nothing refused", "        _check_nvcc_targets(supported_cuda_archs)\n", ""),
        (
            "refused for what isn't compiled",
            "_check_nvcc_targets(supported_cuda_archs)",
            "_check_nvcc_targets(self.TARGET_CUDA_ARCHS)",
        ),
        (
            "the first target alone is checked",
            "    for major, minor in archs:\n        if major != 12:\n            continue\n",
            "    for major, minor in archs:\n        if major != 12:\n            return\n",
        ),
        ("other architectures refused", "        if major != 12:\n            continue\n", ""),
        (
            "a detected SM110 gets f",
            "                    if major == 12:\n",
            "                    if major in (11, 12):\n",
        ),
        ("the error names another target", 'f"sm_{major}{minor} needs', 'f"sm_{major} needs'),
        ("nvcc is asked each time", "@functools.cache\ndef _nvcc_version", "def _nvcc_version"),
    ),
    *of(
        PDL,
        LAUNCHER,
        (
            "SM90 always",
            "#ifdef CUTLASS_ENABLE_GDC_FOR_SM90\n  if constexpr (is_sm90) return CUTLASS_VERSION >= 430;\n#endif",
            "  if constexpr (is_sm90) return true;",
        ),
        (
            "SM90 since 4.2",
            "if constexpr (is_sm90) return CUTLASS_VERSION >= 430;",
            "if constexpr (is_sm90) return CUTLASS_VERSION >= 420;",
        ),
        (
            "SM90 not with 4.3",
            "if constexpr (is_sm90) return CUTLASS_VERSION >= 430;",
            "if constexpr (is_sm90) return CUTLASS_VERSION > 430;",
        ),
        ("SM120 since 4.2", "return is_sm100 || CUTLASS_VERSION >= 430;", "return is_sm100 || CUTLASS_VERSION >= 420;"),
        (
            "SM120 not with 4.3",
            "return is_sm100 || CUTLASS_VERSION >= 430;",
            "return is_sm100 || CUTLASS_VERSION > 430;",
        ),
        ("SM120 never", "return is_sm100 || CUTLASS_VERSION >= 430;", "return is_sm100;"),
        ("SM100 since 4.3", "return is_sm100 || CUTLASS_VERSION >= 430;", "return CUTLASS_VERSION >= 430;"),
        (
            "SM120 taken for SM100",
            "!is_sm90 && ArchTag::kMinComputeCapability < 120;",
            "!is_sm90 && ArchTag::kMinComputeCapability <= 120;",
        ),
        (
            "SM100 taken for SM90",
            "is_sm90 = ArchTag::kMinComputeCapability < 100;",
            "is_sm90 = ArchTag::kMinComputeCapability <= 100;",
        ),
        (
            "SM120 by SM90's flag",
            "#ifdef CUTLASS_ENABLE_GDC_FOR_SM100\n  if constexpr (!is_sm90)",
            "#ifdef CUTLASS_ENABLE_GDC_FOR_SM90\n  if constexpr (!is_sm90)",
        ),
        (
            "SM90 by SM100's flag",
            "#ifdef CUTLASS_ENABLE_GDC_FOR_SM90\n  if constexpr (is_sm90)",
            "#ifdef CUTLASS_ENABLE_GDC_FOR_SM100\n  if constexpr (is_sm90)",
        ),
        ("all without a flag", "#endif\n  return false;\n}", "#endif\n  return true;\n}"),
        (
            "though it isn't asked for",
            "tma_ws_input.enable_pdl && grouped_gemm_waits_for_grid<ArchTag>()",
            "grouped_gemm_waits_for_grid<ArchTag>()",
        ),
        (
            "whether the kernel waits or not",
            "tma_ws_input.enable_pdl && grouped_gemm_waits_for_grid<ArchTag>()",
            "tma_ws_input.enable_pdl",
        ),
        (
            "either of the two",
            "tma_ws_input.enable_pdl && grouped_gemm_waits_for_grid<ArchTag>()",
            "tma_ws_input.enable_pdl || grouped_gemm_waits_for_grid<ArchTag>()",
        ),
    ),
    *of(
        WAITS,
        MOE_JIT,
        ("not with 4.3", "_cutlass_version() >= (4, 3)", "_cutlass_version() > (4, 3)"),
        ("with 4.2", "_cutlass_version() >= (4, 3)", "_cutlass_version() >= (4, 2)"),
        ("with any CUTLASS", "if _cutlass_version() >= (4, 3):", "if True:"),
        ("with an older CUTLASS alone", "_cutlass_version() >= (4, 3)", "_cutlass_version() < (4, 3)"),
        ("not SM90's", '            "-DCUTLASS_ENABLE_GDC_FOR_SM90=1",\n', ""),
        ("not SM100's", '            "-DCUTLASS_ENABLE_GDC_FOR_SM100=1",\n', ""),
        ("SM120's for SM100's", "-DCUTLASS_ENABLE_GDC_FOR_SM100=1", "-DCUTLASS_ENABLE_GDC_FOR_SM120=1"),
        ("not for MXFP4", "if _cutlass_version() >= (4, 3):", "if _cutlass_version() >= (4, 3) and not mxfp4_only:"),
        ("for MXFP4 alone", "if _cutlass_version() >= (4, 3):", "if _cutlass_version() >= (4, 3) and mxfp4_only:"),
        (
            "for SM120 alone",
            "if _cutlass_version() >= (4, 3):",
            'if _cutlass_version() >= (4, 3) and device_arch == "120":',
        ),
        (
            "in place of other flags",
            '        nvcc_flags = nvcc_flags + [\n            "-DCUTLASS_ENABLE_GDC_FOR_SM90=1"',
            '        nvcc_flags = [\n            "-DCUTLASS_ENABLE_GDC_FOR_SM90=1"',
        ),
    ),
    *of(
        JOBS,
        "flashinfer/jit/core.py",
        (
            "one build is told if it is warm",
            "                not self.jit_library_path.exists(),\n",
            "                self.jit_library_path.exists(),\n",
        ),
        (
            "a module that was compiled ahead counts",
            "        if skip_prebuilt and spec.aot_path.exists():\n            continue\n"
            '        lines.append(f"subninja {spec.ninja_path}")\n'
            "        compiler_gib = max(compiler_gib, spec.compiler_gib)\n",
            "        compiler_gib = max(compiler_gib, spec.compiler_gib)\n"
            "        if skip_prebuilt and spec.aot_path.exists():\n            continue\n"
            '        lines.append(f"subninja {spec.ninja_path}")\n',
        ),
        (
            "one build is always told",
            "                not self.jit_library_path.exists(),\n",
            "                True,\n",
        ),
    ),
    *of(
        JOBS,
        MOE_JIT,
        (
            "the MoE of SM120 alone takes more",
            "        compiler_gib=9,  #",
            '        compiler_gib=9 if device_arch == "120" else 3,  #',
        ),
    ),
    *of(
        JOBS,
        EXT,
        (
            "each run of ninja takes 3 GiB",
            "_get_num_workers(compiler_gib, is_cold_build)\n",
            "_get_num_workers(3, is_cold_build)\n",
        ),
        (
            "each run of ninja is cold",
            "num_workers = _get_num_workers(compiler_gib, is_cold_build)\n",
            "num_workers = _get_num_workers(compiler_gib, True)\n",
        ),
    ),
    *of(
        JOBS,
        "flashinfer/jit/utils.py",
        ("the larger of the two", "return min(available, default=None)", "return max(available, default=None)"),
        (
            "the system's if there is one",
            "return min(available, default=None)",
            "return available[0] if available else None",
        ),
        ("an error where neither is told", "return min(available, default=None)", "return min(available)"),
        ("KiB for bytes", "int(line.split()[1]) * 1024", "int(line.split()[1])"),
        ("free for available", 'line.startswith("MemAvailable:")', 'line.startswith("MemFree:")'),
        (
            "active page cache alone",
            'int(stat["active_file"]) + int(stat["inactive_file"])',
            'int(stat["active_file"])',
        ),
        (
            "inactive page cache alone",
            'int(stat["active_file"]) + int(stat["inactive_file"])',
            'int(stat["inactive_file"])',
        ),
        ("page cache counts as used", "        used -= min(_cgroup_page_cache_bytes(cgroup), used)\n", ""),
        (
            "more page cache than is used",
            "min(_cgroup_page_cache_bytes(cgroup), used)",
            "_cgroup_page_cache_bytes(cgroup)",
        ),
        ("less than nothing", "max(limit - used, 0)", "limit - used"),
        ("the limit itself", "max(limit - used, 0)", "limit"),
        (
            "an error where there is no limit",
            "        available.append(max(limit - used, 0))\n    except (OSError, ValueError):",
            "        available.append(max(limit - used, 0))\n    except OSError:",
        ),
        (
            "an error where there is no cgroup",
            "        available.append(max(limit - used, 0))\n    except (OSError, ValueError):",
            "        available.append(max(limit - used, 0))\n    except ValueError:",
        ),
        ("the peak for the limit", '"memory.max"', '"memory.high"'),
    ),
    *of(
        SCALES,
        UTILS,
        (
            "any float taken for one",
            "(isinstance(scale, (int, float)) and scale == 1)",
            "isinstance(scale, (int, float))",
        ),
        ("a tensor is waited for", "(isinstance(scale, (int, float)) and scale == 1)", "(scale == 1)"),
        (
            "the whole number one refused",
            "(isinstance(scale, (int, float)) and scale == 1)",
            "(isinstance(scale, float) and scale == 1)",
        ),
        (
            "what is nearly one taken for it",
            "(isinstance(scale, (int, float)) and scale == 1)",
            "(isinstance(scale, (int, float)) and abs(scale - 1) < 1e-2)",
        ),
        (
            "NaN taken for one",
            "(isinstance(scale, (int, float)) and scale == 1)",
            "(isinstance(scale, (int, float)) and not scale < 1 and not scale > 1)",
        ),
        ("one refused", "(isinstance(scale, (int, float)) and scale == 1)", "False"),
        (
            "zero taken for one",
            "(isinstance(scale, (int, float)) and scale == 1)",
            "(isinstance(scale, (int, float)) and scale in (0, 1))",
        ),
        ("none refused", "if scale is not None and not (", "if not ("),
        ("a tensor passes", "if scale is not None and not (", "if isinstance(scale, (int, float)) and not ("),
        (
            "the first scale alone",
            "    for scale in scales:\n        if scale is not None and not",
            "    for scale in scales[:1]:\n        if scale is not None and not",
        ),
    ),
    *of(
        SCALES,
        DECODE,
        (
            "decode without a JIT module",
            "        if self._jit_module is not None:\n            check_scales",
            "        if self._jit_module is None:\n            check_scales",
        ),
        (
            "decode with or without a JIT module",
            "        if self._jit_module is not None:\n            check_scales",
            "        if True:\n            check_scales",
        ),
        (
            "decode with FA2 alone",
            "        if self._jit_module is not None:\n            check_scales",
            '        if self._jit_module is not None and self._backend == "fa2":\n            check_scales',
        ),
        ("decode not at all", "            check_scales_left_out(q_scale, k_scale)\n", "            pass\n"),
        ("decode of q alone", "check_scales_left_out(q_scale, k_scale)", "check_scales_left_out(q_scale)"),
        ("decode of k alone", "check_scales_left_out(q_scale, k_scale)", "check_scales_left_out(k_scale)"),
        (
            "decode of v as well",
            "check_scales_left_out(q_scale, k_scale)",
            "check_scales_left_out(q_scale, k_scale, v_scale)",
        ),
    ),
    *of(
        SCALES,
        PREFILL,
        (
            "prefill with FA2 alone",
            "                check_scales_left_out(q_scale, k_scale)\n",
            '                if self._backend == "fa2":\n                    check_scales_left_out(q_scale, k_scale)\n',
        ),
        (
            "prefill with a causal mask alone",
            "                check_scales_left_out(q_scale, k_scale)\n",
            "                if self._causal:\n                    check_scales_left_out(q_scale, k_scale)\n",
        ),
        ("prefill not at all", "                check_scales_left_out(q_scale, k_scale)\n", ""),
        ("prefill of q alone", "check_scales_left_out(q_scale, k_scale)\n", "check_scales_left_out(q_scale)\n"),
        ("prefill of k alone", "check_scales_left_out(q_scale, k_scale)\n", "check_scales_left_out(k_scale)\n"),
        (
            "prefill of v as well",
            "check_scales_left_out(q_scale, k_scale)\n",
            "check_scales_left_out(q_scale, k_scale, v_scale)\n",
        ),
        ("ragged without q", "(q_scale, k_scale, v_scale, o_scale)", "(k_scale, v_scale, o_scale)"),
        ("ragged without k", "(q_scale, k_scale, v_scale, o_scale)", "(q_scale, v_scale, o_scale)"),
        ("ragged without v", "(q_scale, k_scale, v_scale, o_scale)", "(q_scale, k_scale, o_scale)"),
        ("ragged without o", "(q_scale, k_scale, v_scale, o_scale)", "(q_scale, k_scale, v_scale)"),
        (
            "ragged with a JIT module alone",
            "if self._jit_module is not None or not (is_float8(q) and args):",
            "if self._jit_module is not None:",
        ),
        (
            "ragged without a JIT module alone",
            "if self._jit_module is not None or not (is_float8(q) and args):",
            "if self._jit_module is None and not (is_float8(q) and args):",
        ),
        (
            "ragged, but with no FP8 query",
            "if self._jit_module is not None or not (is_float8(q) and args):",
            "if self._jit_module is not None or not is_float8(q):",
        ),
        (
            "ragged, but with no arguments",
            "if self._jit_module is not None or not (is_float8(q) and args):",
            "if self._jit_module is not None or not args:",
        ),
        (
            "ragged with a JIT module and FP8 not",
            "if self._jit_module is not None or not (is_float8(q) and args):",
            "if not (is_float8(q) and args):",
        ),
        ("ragged always", "if self._jit_module is not None or not (is_float8(q) and args):", "if True:"),
    ),
    *of(
        TACTICS,
        BINDING,
        ("one of the first GEMM", "id2 >= mGemm1TacticCount && id2", "id2 >= 0 && id2"),
        ("not the first of the second GEMM", "id2 >= mGemm1TacticCount && id2", "id2 > mGemm1TacticCount && id2"),
        ("counted by the second GEMM's", "id2 >= mGemm1TacticCount && id2", "id2 >= mGemm2TacticCount && id2"),
        (
            "not the last",
            'id2 < static_cast<int64_t>(mAllProfiles.size()))\n            << "Invalid gemm2',
            'id2 < static_cast<int64_t>(mAllProfiles.size()) - 1)\n            << "Invalid gemm2',
        ),
        ("the one before", "mAllProfiles.at(id2)", "mAllProfiles.at(id2 - 1)"),
        ("relative to the first GEMM's", "mAllProfiles.at(id2)", "mAllProfiles.at(id2 - mGemm1TacticCount)"),
        (
            "for the first GEMM",
            "best_gemm2_profile = mAllProfiles.at(id2)",
            "best_gemm1_profile = mAllProfiles.at(id2)",
        ),
        (
            "the first GEMM's first is none",
            "      if (id2 != -1) {\n        TVM_FFI_ICHECK(id2 >=",
            "      if (id2 > 0) {\n        TVM_FFI_ICHECK(id2 >=",
        ),
        (
            "minus one refused",
            "      if (id2 != -1) {\n        TVM_FFI_ICHECK(id2 >=",
            "      {\n        TVM_FFI_ICHECK(id2 >=",
        ),
        (
            "the old meaning",
            "mAllProfiles.at(id2)",
            "mAllProfiles.at(id2 < mGemm2TacticCount ? mGemm1TacticCount + id2 : id2)",
        ),
    ),
    *of(
        PROFILE,
        MOE_JIT,
        (
            "all kernels are written",
            "            sm120_launcher,\n            mxfp4_only,\n",
            "            sm120_launcher,\n            False,\n",
        ),
        ("bytes taken for MXFP4", "weight_dtype == torch.long\n", "weight_dtype in (torch.long, torch.uint8)\n"),
        ("any integers taken for MXFP4", "weight_dtype == torch.long\n", "not weight_dtype.is_floating_point\n"),
        (
            "the module asks for the full one",
            "        mxfp4_only=mxfp4_only,\n        sm120_mixed_tiles=_sm120",
            "        mxfp4_only=False,\n        sm120_mixed_tiles=_sm120",
        ),
    ),
    *of(
        ROWS_PATCH,
        ROWS,
        ("a block for each row of the input", "std::max<int64_t>(num_rows * k, 1)", "std::max<int64_t>(num_rows, 1)"),
        ("no block for no row", "std::max<int64_t>(num_rows * k, 1)", "num_rows * k"),
        (
            "a block for each padding row",
            "std::max<int64_t>(num_rows * k, 1)",
            "std::max<int64_t>(num_rows * k, 128 * num_experts_per_node)",
        ),
        (
            "a block for each expert",
            "std::max<int64_t>(num_rows * k, 1)",
            "std::max<int64_t>(num_rows * k, num_experts_per_node)",
        ),
        (
            "a block for each SM",
            "std::min(smCount * 8, std::max<int64_t>(num_rows * k, 1))",
            "std::min<int64_t>(smCount, std::max<int64_t>(num_rows * k, 1))",
        ),
        ("the activation: no block for no row", "std::max<int64_t>(expanded_num_tokens, 1)", "expanded_num_tokens"),
        (
            "the activation: a block for each padding row",
            "std::max<int64_t>(expanded_num_tokens, 1)",
            "std::max<int64_t>(expanded_num_tokens, 128 * num_experts_per_node)",
        ),
        (
            "the activation: a block for each expert",
            "std::max<int64_t>(expanded_num_tokens, 1)",
            "std::max<int64_t>(expanded_num_tokens, num_experts_per_node)",
        ),
        (
            "the activation: a block for each SM",
            "std::min(smCount * 8, std::max<int64_t>(expanded_num_tokens, 1))",
            "std::min<int64_t>(smCount, std::max<int64_t>(expanded_num_tokens, 1))",
        ),
        (
            "the activation: any number of blocks",
            "std::min(smCount * 8, std::max<int64_t>(expanded_num_tokens, 1))",
            "std::max<int64_t>(expanded_num_tokens, 1)",
        ),
        (
            "any number of blocks",
            "std::min(smCount * 8, std::max<int64_t>(num_rows * k, 1))",
            "std::max<int64_t>(num_rows * k, 1)",
        ),
    ),
    *(
        mutant
        for path, kind in ((DECODE, "decode"), (PREFILL, "prefill"))
        for mutant in of(
            SINKS,
            path,
            (f"{kind} with trtllm-gen alone", LEFT_OUT, LEFT_OUT.replace("!=", "==")),
            (f"{kind} with FA2 alone", LEFT_OUT, LEFT_OUT.replace('!= "trtllm-gen"', '== "fa2"')),
            (f"{kind} with FA3 alone", LEFT_OUT, LEFT_OUT.replace('!= "trtllm-gen"', '== "fa3"')),
            (f"{kind} before auto is resolved", LEFT_OUT, LEFT_OUT.replace('!= "trtllm-gen"', '== "auto"')),
            (f"{kind} without sinks", LEFT_OUT, LEFT_OUT.replace("sinks is not None and ", "")),
            (f"{kind} with trtllm-gen, too", LEFT_OUT, LEFT_OUT.replace(' and self._backend != "trtllm-gen"', "")),
            (
                f"{kind} with sinks of zero",
                LEFT_OUT,
                LEFT_OUT.replace("sinks is not None", "sinks is not None and sinks.any()"),
            ),
            (f"{kind} with cuDNN not", LEFT_OUT, LEFT_OUT.replace('!= "trtllm-gen"', 'not in ("trtllm-gen", "cudnn")')),
        )
    ),
    *of(
        "flashinfer/sm120-mixed-candidates",
        HEURISTIC,
        (
            "NVFP4 instead",
            "      if ((config & CutlassGemmConfig::FP8FP4_MIXED) != 0) {\n        // The tiles below",
            "      if ((config & CutlassGemmConfig::FP8FP4_MIXED) == 0) {\n        // The tiles below",
        ),
        (
            "all",
            "      if ((config & CutlassGemmConfig::FP8FP4_MIXED) != 0) {\n        // The tiles below",
            "      if (true) {\n        // The tiles below",
        ),
        (
            "none",
            "      if ((config & CutlassGemmConfig::FP8FP4_MIXED) != 0) {\n        // The tiles below",
            "      if (false) {\n        // The tiles below",
        ),
        (
            "FP4 alone",
            "      if ((config & CutlassGemmConfig::FP8FP4_MIXED) != 0) {\n        // The tiles below",
            "      if ((config & CutlassGemmConfig::FP4_ONLY) != 0) {\n        // The tiles below",
        ),
        (
            "grouped GEMMs",
            "      if ((config & CutlassGemmConfig::FP8FP4_MIXED) != 0) {\n        // The tiles below",
            "      if ((config & CutlassGemmConfig::GROUPED_GEMM) != 0) {\n        // The tiles below",
        ),
        (
            "narrow weights",
            "      if ((config & CutlassGemmConfig::FP8FP4_MIXED) != 0) {\n        // The tiles below",
            "      if ((config & CutlassGemmConfig::WEIGHT_ONLY) != 0) {\n        // The tiles below",
        ),
        ("no tile at all", "#endif\n        return candidate_configs;\n", "#endif\n        return {};\n"),
        ("no return", "#endif\n        return candidate_configs;\n", "#endif\n"),
    ),
    *of(
        TILES,
        HEURISTIC,
        (
            "the tiles' names exchanged",
            "CutlassTileConfigSM120::CtaShape128x64x128B, Main",
            "CutlassTileConfigSM120::CtaShape128x32x128B, Main",
        ),
        (
            "N of 32 by the flag of 64",
            "#ifdef FLASHINFER_SM120_MOE_TILE_N32\n        candidate",
            "#ifdef FLASHINFER_SM120_MOE_TILE_N64\n        candidate",
        ),
        (
            "N of 64 by the flag of 32",
            "#ifdef FLASHINFER_SM120_MOE_TILE_N64\n        candidate",
            "#ifdef FLASHINFER_SM120_MOE_TILE_N32\n        candidate",
        ),
        (
            "N of 64 without a flag",
            "#ifdef FLASHINFER_SM120_MOE_TILE_N64\n        candidate",
            "#if 1\n        candidate",
        ),
    ),
    *of(
        TILES,
        CONFIGS,
        (
            "a name for another shape",
            "CtaShape128x32x128B = shape_tuple_to_enum(128, 32, 128),\n  CtaShape128x64x128B = shape_tuple_to_enum(128, 64, 128),\n  CtaShape128x128x128B = shape_tuple_to_enum(128, 128, 128),\n  CtaShape128x128x64B",
            "CtaShape128x32x128B = shape_tuple_to_enum(128, 32, 64),\n  CtaShape128x64x128B = shape_tuple_to_enum(128, 64, 128),\n  CtaShape128x128x128B = shape_tuple_to_enum(128, 128, 128),\n  CtaShape128x128x64B",
        ),
    ),
    *of(
        TILES,
        DISPATCH,
        ("128x64 never dispatched", "        SHAPE_CASE(120, 128, 64, 128)\n", ""),
        ("128x32 never dispatched", "        SHAPE_CASE(120, 128, 32, 128)\n", ""),
        ("N of 64 has no kernel", "(TileN == 32 || TileN == 64)", "(TileN == 32)"),
        ("N of 32 has no kernel", "(TileN == 32 || TileN == 64)", "(TileN == 64)"),
        (
            "128x32 dispatched by the flag of 64",
            "#ifdef FLASHINFER_SM120_MOE_TILE_N32\n        SHAPE",
            "#ifdef FLASHINFER_SM120_MOE_TILE_N64\n        SHAPE",
        ),
    ),
    *of(
        TILES,
        BINDING,
        (
            "the choice before tuning inverted",
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
        (
            "the first GEMM untuned by its first",
            "untunedTactic(0, mGemm1TacticCount, rows, experts)",
            "mAllProfiles.front()",
        ),
        (
            "the first GEMM by all tactics",
            "untunedTactic(0, mGemm1TacticCount, rows, experts)",
            "untunedTactic(0, mAllProfiles.size(), rows, experts)",
        ),
    ),
    *of(
        TILES,
        MOE_JIT,
        ("not with the needed CUTLASS", "if needed <= version)", "if needed < version)"),
        (
            "with any CUTLASS",
            "for t, needed in SM120_MIXED_TILES.items() if needed <= version)",
            "for t, needed in SM120_MIXED_TILES.items())",
        ),
        ("128x128 left out", "tiles = [(128, 128, 128)]", "tiles = []"),
        ("another depth", "int(match[3] or 128)", "int(match[3] or 64)"),
        ("M and N exchanged", "(int(match[1]), int(match[2]), int", "(int(match[2]), int(match[1]), int"),
        ("a tile twice", "        if tile not in tiles:\n            tiles.append(tile)", "        tiles.append(tile)"),
        (
            "the first folder of headers alone",
            "for folder in jit_env.CUTLASS_INCLUDE_DIRS:",
            "for folder in jit_env.CUTLASS_INCLUDE_DIRS[:1]:",
        ),
        (
            "the last CUTLASS among the headers",
            "for folder in jit_env.CUTLASS_INCLUDE_DIRS:",
            "for folder in reversed(jit_env.CUTLASS_INCLUDE_DIRS):",
        ),
        ("a tile isn't checked", "        check_sm120_mixed_tile(tile, version)\n", ""),
        ("no space in the list", r'r"\s*(\d+)x(\d+)(?:x(\d+))?\s*"', r'r"(\d+)x(\d+)(?:x(\d+))?"'),
        (
            "none where the list is empty",
            "    if text is None:\n        return tuple",
            "    if not text:\n        return tuple",
        ),
        ("built though it is there", "    if not spec.is_aot:\n        spec.build", "    if True:\n        spec.build"),
        ("built never", "    if not spec.is_aot:\n        spec.build", "    if spec.is_aot:\n        spec.build"),
        ("tiles under one name", '    variant += "".join(f"_n{n}" for n in small_n)\n', ""),
        ("named as asked", "small_n = sorted(n for", "small_n = list(n for"),
        ("128 has a flag", "in sm120_mixed_tiles if n < 128)", "in sm120_mixed_tiles if n <= 128)"),
        (
            "the host compiler isn't told",
            'extra_cflags=tile_flags + (["-DFAST_BUILD"] if',
            'extra_cflags=(["-DFAST_BUILD"] if',
        ),
        ("nvcc isn't told", "extra_cuda_cflags=nvcc_flags + tile_flags", "extra_cuda_cflags=nvcc_flags"),
        ("the module has the default tile", "        sm120_mixed_tiles=_sm120_moe_tiles(),\n", ""),
        (
            "kernels of the default tile",
            "            mxfp4_only,\n            sm120_mixed_tiles,\n",
            "            mxfp4_only,\n",
        ),
        (
            "the first of CUTLASS's numbers twice",
            'return int(found["MAJOR"]), int(found["MINOR"])',
            'return int(found["MAJOR"]), int(found["PATCH"])',
        ),
    ),
    *of(
        TILES,
        KERNELS,
        ("64 with 4.4", "(128, 64, 128): (4, 5)", "(128, 64, 128): (4, 4)"),
        ("32 with 4.6", "(128, 32, 128): (4, 5)", "(128, 32, 128): (4, 6)"),
        ("the needed CUTLASS refused", "if cutlass_version < needed:", "if cutlass_version <= needed:"),
        ("no CUTLASS refused", "if cutlass_version < needed:", "if False:"),
        ("an M for the depth", "        if m < 128:\n", "        if m < 64:\n"),
        ("a depth isn't said", "elif k != 128:", "elif k < 128:"),
        ("what doesn't fit isn't said", "elif m > 128 or n > 128:", "elif m > 128:"),
        ("NVFP4 with MXFP4's tiles", "(mixed_shapes if is_mixed else cta_shapes_mnk)", "mixed_shapes"),
        ("MXFP4 with NVFP4's tiles", "(mixed_shapes if is_mixed else cta_shapes_mnk)", "cta_shapes_mnk"),
        (
            "kernels twice",
            "cta_shapes_mnk + [s for s in mixed_shapes if s not in cta_shapes_mnk]",
            "cta_shapes_mnk + mixed_shapes",
        ),
        (
            "FP8 alone is mixed",
            "is_mixed = act_type == DataType.e4m3 and weight_type == e2m1",
            "is_mixed = act_type == DataType.e4m3",
        ),
    ),
    *of(
        NAMESPACE,
        MIXED,
        (
            "the scales of A and B exchanged",
            "  mainloop.ptr_SFA = SwapAB ? sf_weight : sf_act;\n  mainloop.ptr_SFB = SwapAB ? sf_act : sf_weight;",
            "  mainloop.ptr_SFA = SwapAB ? sf_act : sf_weight;\n  mainloop.ptr_SFB = SwapAB ? sf_weight : sf_act;",
        ),
        (
            "A's stride is B's",
            "SwapAB ? input.stride_weight : input.stride_act)",
            "SwapAB ? input.stride_act : input.stride_weight)",
        ),
        ("no alpha", "  thread.alpha_ptr_array = input.alpha_scale_ptr_array;\n", ""),
        ("one alpha for all experts", "input.alpha_scale_ptr_array ? 1 : 0}", "0}"),
        ("a step without alphas", "input.alpha_scale_ptr_array ? 1 : 0}", "1}"),
        ("no bias", "reinterpret_cast<ElementOutput const* const*>(finalize.ptr_bias)", "nullptr"),
        ("no router scales", "    thread.scale_ptr_array = finalize.ptr_router_scales;\n", ""),
        ("no indices", "    thread.ptr_index = finalize.ptr_source_token_index;\n", ""),
        ("no modulo", "    thread.index_modulo = finalize.num_rows_in_final_output;\n", ""),
        ("no shape", "    thread.shape_override = finalize.shape_override;\n", ""),
        ("always with a reduction", "thread.use_reduction = finalize.use_reduction", "thread.use_reduction = true"),
        (
            "the output's strides unset",
            "    args.epilogue.dD = reinterpret_cast<typename Kernel::StrideD*>(input.stride_d);\n",
            "",
        ),
        ("any orientation", "input.swap_ab == Kernel::SwapAB, ", "true, "),
        ("any fusion", "input.fusion == Kernel::Fusion, ", "true, "),
        ("any C", "input.ptr_c == nullptr, ", "true, "),
        (
            "weights without strides",
            "input.ptr_act && input.ptr_weight && input.stride_act && input.stride_weight,",
            "input.ptr_act && input.ptr_weight && input.stride_act,",
        ),
        (
            "activations without strides",
            "input.ptr_act && input.ptr_weight && input.stride_act && input.stride_weight,",
            "input.ptr_act && input.ptr_weight && input.stride_weight,",
        ),
        (
            "no weights",
            "input.ptr_act && input.ptr_weight && input.stride_act && input.stride_weight,",
            "input.ptr_act && input.stride_act && input.stride_weight,",
        ),
        (
            "scales without a layout",
            "          input.fpX_block_scaling_factors_stride_act &&\n          input",
            "          input",
        ),
        ("no row in the output", " && finalize.num_rows_in_final_output > 0", ""),
        ("no token indices", "            finalize.ptr_source_token_index && finalize", "            finalize"),
        ("an output without strides", "input.ptr_d && input.stride_d, ", "input.ptr_d, "),
        ("a workspace that fits refused", "needed <= input.gemm_workspace_size", "needed < input.gemm_workspace_size"),
        ("any workspace", "needed <= input.gemm_workspace_size", "true"),
        (
            "PDL whether the kernel waits or not",
            "input.enable_pdl && grouped_gemm_waits_for_grid<typename Kernel::ArchTag>()",
            "input.enable_pdl",
        ),
        (
            "a workspace for one expert",
            "input.shape_info = {num_experts, nullptr, nullptr};",
            "input.shape_info = {1, nullptr, nullptr};",
        ),
        ("an operand isn't checked", "  check_input<Kernel>(input);\n", ""),
        (
            "one scale layout for both",
            "SwapAB ? input.fpX_block_scaling_factors_stride_act\n             : input.fpX",
            "SwapAB ? input.fpX_block_scaling_factors_stride_weight\n             : input.fpX",
        ),
        (
            "no final output",
            "    thread.ptr_out = reinterpret_cast<ElementOutput*>(finalize.ptr_final_output);\n",
            "",
        ),
        ("no output", "    args.epilogue.ptr_D = reinterpret_cast<ElementOutput**>(input.ptr_d);\n", ""),
        ("the hardware is unknown", "  args.hw_info = hw_info;\n", ""),
        ("one processor", "hw_info.sm_count = multi_processor_count;", "hw_info.sm_count = 1;"),
        ("along M", "RasterOrderOptions::AlongN", "RasterOrderOptions::AlongM"),
        ("without the workspace", "gemm.initialize(args, input.gemm_workspace)", "gemm.initialize(args)"),
        ("on the default stream", "gemm.run(stream, nullptr,", "gemm.run(cudaStream_t{}, nullptr,"),
        (
            "not initialized",
            '  check("initialize()", gemm.initialize(args, input.gemm_workspace));\n',
            "",
        ),
        ("not asked whether it can", '  check("can_implement()", gemm.can_implement(args));\n', ""),
        ("failures pass", "status != cutlass::Status::kSuccess", "status == cutlass::Status::kErrorInternal"),
        ("PDL never", "input.enable_pdl && grouped_gemm_waits_for_grid<typename Kernel::ArchTag>()", "false"),
        ("PDL whether asked for or not", "input.enable_pdl && grouped_gemm_waits", "grouped_gemm_waits"),
        ("later failures unseen", "  sync_check_cuda_error(stream);\n", ""),
        ("all groups told", "if (said++ == 8) {", "if (said++ == 800) {"),
        ("empty groups told", "      if (m == 0 || n == 0) continue;\n", ""),
        ("shapes read in a capture", "capture == cudaStreamCaptureStatusNone && ", ""),
        ("CUDA's error left to the next", "  cudaGetLastError();\n  return text", "  return text"),
        ("what can't be loaded isn't said", "if (image != cudaSuccess) {", "if (false) {"),
        (
            "the name's sizes exchanged",
            "int(cute::size<0>(Tile{})), int(cute::size<1>(Tile{})),",
            "int(cute::size<1>(Tile{})), int(cute::size<0>(Tile{})),",
        ),
    ),
    *of(
        NAMESPACE,
        f"{MOE}/launchers/moe_gemm_sm120_mixed_input_kernel.inl",
        (
            "bias and router scale exchanged",
            "      std::conditional_t<SwapAB,\n                         cutlass::epilogue::fusion::ScaledAcc",
            "      std::conditional_t<!SwapAB,\n                         cutlass::epilogue::fusion::ScaledAcc",
        ),
        (
            "BF16 whatever is asked for",
            "TllmToCutlassTypeAdapter<SM120_MIXED_OUTPUT>::type",
            "TllmToCutlassTypeAdapter<__nv_bfloat16>::type",
        ),
        (
            "any fusion compiled",
            "Fusion == EpilogueFusion::NONE || Fusion == EpilogueFusion::FINALIZE,",
            "true,",
        ),
        # Not here, as nobody could tell: the finalize step with a C of the output's type, as the generic launcher
        # has it. Its fusion reads no C, and the stages and shared memory are the same. Nor is the kernel's own check of
        # its shared memory: where a tile has two stages, as it must, array-smem-capacity has CUTLASS check the same.
    ),
    *of(
        NAMESPACE,
        DISPATCH,
        (
            "the workspace of a tactic that isn't swapped",
            "  input.swap_ab = gemm_config.swap_ab;\n  // Most",
            "  // Most",
        ),
    ),
    *of(
        NAMESPACE,
        MOE_JIT,
        (
            "namespace by default",
            '"FLASHINFER_SM120_MOE_LAUNCHER", "generic"',
            '"FLASHINFER_SM120_MOE_LAUNCHER", "namespace"',
        ),
        ("any launcher", 'if launcher not in ("generic", "namespace"):', "if not launcher:"),
        ("namespace refused", 'if launcher not in ("generic", "namespace"):', 'if launcher != "generic":'),
        ("always generic", "sm120_launcher=_sm120_moe_launcher()", 'sm120_launcher="generic"'),
        (
            "both modules under one name",
            'device_arch if sm120_launcher == "generic" else f"{device_arch}_ns"',
            "device_arch",
        ),
        (
            "generic kernels in the module",
            "            sm120_launcher,\n            mxfp4_only,",
            '            "generic",\n            mxfp4_only,',
        ),
    ),
    *of(
        NAMESPACE,
        KERNELS,
        ("NVFP4 as well", 'launcher == "namespace" and act_type != weight_type', 'launcher == "namespace"'),
        (
            "NVFP4 instead",
            'launcher == "namespace" and act_type != weight_type',
            'launcher == "namespace" and act_type == weight_type',
        ),
        ("one fusion for all", 'EpiFusion[operation.epi_fusion].split(":")[-1]', '"NONE"'),
        (
            "one orientation for all",
            "    swap_ab = str(operation.swap_ab).lower()\n    namespace",
            '    swap_ab = "false"\n    namespace',
        ),
        ("N for M", "#define SM120_MIXED_CTA_M {m}", "#define SM120_MIXED_CTA_M {n}"),
        ("the generic launcher's header", '[f"{SM120_MIXED_INPUT_INL}_launcher.inl"]', "inl_map[key[:2]]"),
        ("without guards", "#if {guard_act} && {guard_weight}\n#define SM120", "#if 1\n#define SM120"),
        (
            "grouped with generic kernels",
            "            is_namespace_scope(op),\n        )",
            "            False,\n        )",
        ),
    ),
    *of(
        "flashinfer/topk-barrier-sync",
        TOPK,
        (
            "a warp's barrier in RadixSelectOneRound",
            "    __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads\n    if (tx == 0)",
            "    __syncwarp();\n    if (tx == 0)",
        ),
        (
            "a warp's barrier in RadixSelectFromSharedMemory",
            "      __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads\n      if (tx == 0)",
            "      __syncwarp();\n      if (tx == 0)",
        ),
        (
            "a fence in RadixSelectOneRound",
            "    __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads\n    if (tx == 0)",
            "    __threadfence();\n    if (tx == 0)",
        ),
        (
            "a fence in RadixSelectFromSharedMemory",
            "      __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads\n      if (tx == 0)",
            "      __threadfence();\n      if (tx == 0)",
        ),
    ),
    (
        "counted without a fence",
        "flashinfer/topk-group-reset",
        TOPK,
        "    __threadfence();\n    int last =",
        "    int last =",
    ),
    (
        "counted without a fence afterwards",
        "flashinfer/topk-group-reset",
        TOPK,
        "== last);\n    __threadfence();\n  }",
        "== last);\n  }",
    ),
    (
        "as much of each histogram cleared as there are threads",
        "flashinfer/topk-group-reset",
        TOPK,
        "  if (*shared_is_last) {\n    for (uint32_t buf = 0; buf < 3; ++buf) {\n      for (uint32_t i = tx; i < RADIX; i",
        "  if (*shared_is_last) {\n    for (uint32_t buf = 0; buf < 3; ++buf) {\n      for (uint32_t i = tx; i < BLOCK_THREADS; i",
    ),
    (
        "no block the last to leave",
        "flashinfer/topk-group-reset",
        TOPK,
        "    int last = (barrier_phase + 1) * ctas_per_group - 1;",
        "    int last = (barrier_phase + 1) * ctas_per_group;",
    ),
    (
        "the last block but one resets the state",
        "flashinfer/topk-group-reset",
        TOPK,
        "    int last = (barrier_phase + 1) * ctas_per_group - 1;",
        "    int last = (barrier_phase + 1) * ctas_per_group - 2;",
    ),
    (
        "barriers counted without the first",
        "flashinfer/topk-group-reset",
        TOPK,
        "    int last = (barrier_phase + 1) * ctas_per_group - 1;",
        "    int last = barrier_phase * ctas_per_group - 1;",
    ),
    (
        "threads don't wait for whether theirs is the last block",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    __threadfence();
  }
  __syncthreads();
  if (*shared_is_last) {\
""",
        """\
    __threadfence();
  }
  if (*shared_is_last) {\
""",
    ),
    (
        "two histograms of three cleared",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 3; ++buf) {
      for (uint32_t i = tx; i < RADIX; i += BLOCK_THREADS) {\
""",
        """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 2; ++buf) {
      for (uint32_t i = tx; i < RADIX; i += BLOCK_THREADS) {\
""",
    ),
    (
        "half of each histogram cleared",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 3; ++buf) {
      for (uint32_t i = tx; i < RADIX; i += BLOCK_THREADS) {\
""",
        """\
  if (*shared_is_last) {
    for (uint32_t buf = 0; buf < 3; ++buf) {
      for (uint32_t i = tx; i < RADIX / 2; i += BLOCK_THREADS) {\
""",
    ),
    (
        "all blocks reset the state",
        "flashinfer/topk-group-reset",
        TOPK,
        "  if (*shared_is_last) {",
        "  if (true) {",
    ),
    (
        "the counter reset to one",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    if (tx == 0) {
      st_release(&state->arrival_counter, 0);
    }
  }
}\
""",
        """\
    if (tx == 0) {
      st_release(&state->arrival_counter, 1);
    }
  }
}\
""",
    ),
    (
        "top_k leaves without a reset",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    RadixLeaveGroup<BLOCK_THREADS>(state, barrier_phase, ctas_per_group, tx, local_histogram);
  }

#undef shared_output_counter
}\
""",
        """\
  }

#undef shared_output_counter
}\
""",
    ),
    (
        "top_k_mask_logits leaves without a reset",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    RadixLeaveGroup<BLOCK_THREADS>(state, barrier_phase, ctas_per_group, tx, local_histogram);
  }
}

template <typename DType, typename IdType>
cudaError_t RadixTopKMaskLogitsMultiCTA(\
""",
        """\
  }
}

template <typename DType, typename IdType>
cudaError_t RadixTopKMaskLogitsMultiCTA(\
""",
    ),
    (
        "top_k_renorm_probs leaves without a reset",
        "flashinfer/topk-group-reset",
        TOPK,
        """\
    RadixLeaveGroup<BLOCK_THREADS>(state, barrier_phase, ctas_per_group, tx, local_histogram);
  }
}

template <typename DType, typename IdType>
cudaError_t RadixTopKRenormProbMultiCTA(\
""",
        """\
  }
}

template <typename DType, typename IdType>
cudaError_t RadixTopKRenormProbMultiCTA(\
""",
    ),
    (
        "no barrier in RadixSelectOneRound",
        "flashinfer/topk-barrier-sync",
        TOPK,
        """\
    __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads
    if (tx == 0) {
      red_release(&state->arrival_counter, 1);
    }
    int target = (barrier_phase + 1) * ctas_per_group;
    wait_ge(&state->arrival_counter, target, tx);
    barrier_phase++;
    __syncthreads();

    // Read\
""",
        """\
    if (tx == 0) {
      red_release(&state->arrival_counter, 1);
    }
    int target = (barrier_phase + 1) * ctas_per_group;
    wait_ge(&state->arrival_counter, target, tx);
    barrier_phase++;
    __syncthreads();

    // Read\
""",
    ),
    (
        "no barrier in RadixSelectFromSharedMemory",
        "flashinfer/topk-barrier-sync",
        TOPK,
        """\
      __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads
      if (tx == 0) {
        red_release(&state->arrival_counter, 1);
      }
      int target\
""",
        """\
      if (tx == 0) {
        red_release(&state->arrival_counter, 1);
      }
      int target\
""",
    ),
    (
        "the barrier of RadixSelectOneRound after the release",
        "flashinfer/topk-barrier-sync",
        TOPK,
        """\
    __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads
    if (tx == 0) {
      red_release(&state->arrival_counter, 1);
    }\
""",
        """\
    if (tx == 0) {
      red_release(&state->arrival_counter, 1);
    }
    __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads\
""",
    ),
    (
        "the barrier of RadixSelectFromSharedMemory after the release",
        "flashinfer/topk-barrier-sync",
        TOPK,
        """\
      __syncthreads();  // tx 0's release covers what other threads did before the last syncthreads
      if (tx == 0) {
        red_release(&state->arrival_counter, 1);
      }
      int target\
""",
        """\
      if (tx == 0) {
        red_release(&state->arrival_counter, 1);
      }
      __syncthreads();
      int target\
""",
    ),
    (
        "skipped rows counted for the histograms",
        "flashinfer/topk-skipped-rows",
        TOPK,
        "num_selected++, local_gt_count",
        "iter, local_gt_count",
    ),
    (
        "each row by the histograms of the first",
        "flashinfer/topk-skipped-rows",
        TOPK,
        "num_selected++, local_gt_count",
        "0, local_gt_count",
    ),
    (
        "selected rows not counted",
        "flashinfer/topk-skipped-rows",
        TOPK,
        "num_selected++, local_gt_count",
        "num_selected, local_gt_count",
    ),
    (
        "every other turn with the histograms",
        "flashinfer/topk-skipped-rows",
        TOPK,
        "num_selected++, local_gt_count",
        "(num_selected += 2), local_gt_count",
    ),
    (
        "no wait in the second row",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 1) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
    (
        "no wait but in the second row",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter == 1) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
    (
        "a barrier that isn't counted",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);\
""",
    ),
    (
        "a wait for the barrier before",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = barrier_phase * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
    (
        "a block that isn't announced",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 0) {
          if (tx == 0) {
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
    (
        "the wait left to other blocks than the leading one",
        "flashinfer/topk-skipped-rows",
        TOPK,
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
        """\
        if (iter > 0) {
          if (tx == 0) {
            red_release(&state->arrival_counter, 1);
          }
          int target = (barrier_phase + 1) * ctas_per_group;
          if (cta_in_group > 0) wait_ge(&state->arrival_counter, target, tx);
          barrier_phase++;\
""",
    ),
]
