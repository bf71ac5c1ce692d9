"""Ways to break the patches of FlashInfer and CUTLASS whose lines are the same in `gb10` and `gb10-newest`.

See by_hand_flashinfer.py.
"""

from __future__ import annotations

Mutant = tuple[str, str, str, str, str]

LAUNCHER = "csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.inl"
BINDING = "csrc/fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu"
TOPK = "include/flashinfer/topk.cuh"


def of(patch: str, path: str, *edits: tuple[str, str, str]) -> list[Mutant]:
    """Return one mutant per edit: its name, the lines as they are, and what they become."""
    return [(f"{patch.partition('/')[2]}: {name}", patch, path, old, new) for name, old, new in edits]


def sink_module_name(attention: str) -> list[Mutant]:
    """Return the mutants of attention-sink-jit-uri, whose wrapper is in the file `attention`."""
    patch = "flashinfer/attention-sink-jit-uri"
    return [
        *of(
            patch,
            attention,
            (
                "q_data_type for kv_data_type",
                "                q_data_type,\n                kv_data_type,\n                q_data_type,  # dtype_o\n",
                "                q_data_type,\n                q_data_type,\n                q_data_type,  # dtype_o\n",
            ),
            (
                "kv_data_type for q_data_type",
                "                q_data_type,\n                kv_data_type,\n                q_data_type,  # dtype_o\n",
                "                kv_data_type,\n                kv_data_type,\n                q_data_type,  # dtype_o\n",
            ),
            (
                "head_dim_vo for head_dim_qk",
                "                head_dim_qk,\n                head_dim_vo,\n                PosEncodingMode",
                "                head_dim_vo,\n                head_dim_vo,\n                PosEncodingMode",
            ),
            (
                "head_dim_qk for head_dim_vo",
                "                head_dim_qk,\n                head_dim_vo,\n                PosEncodingMode",
                "                head_dim_qk,\n                head_dim_qk,\n                PosEncodingMode",
            ),
            (
                "another dtype_o than it is compiled for",
                "                q_data_type,  # dtype_o\n                torch.int32,  # dtype_idx",
                "                kv_data_type,  # dtype_o\n                torch.int32,  # dtype_idx",
            ),
            (
                "a window of one token is none",
                "                window_left >= 0,\n                use_fp16_qk_reduction,\n            ),  # uri",
                "                window_left > 0,\n                use_fp16_qk_reduction,\n            ),  # uri",
            ),
            (
                "always with a window",
                "                window_left >= 0,\n                use_fp16_qk_reduction,\n            ),  # uri",
                "                True,\n                use_fp16_qk_reduction,\n            ),  # uri",
            ),
            (
                "the wrapper leaves out the reduction",
                "                window_left >= 0,\n                use_fp16_qk_reduction,\n            ),  # uri",
                "                window_left >= 0,\n            ),  # uri",
            ),
            (
                "one positional encoding",
                "                PosEncodingMode[pos_encoding_mode].value,\n                window_left >= 0,\n"
                "                use_fp16_qk_reduction,\n            ),  # uri",
                '                PosEncodingMode["NONE"].value,\n                window_left >= 0,\n'
                "                use_fp16_qk_reduction,\n            ),  # uri",
            ),
            (
                "the positional encoding's name instead of its number",
                "                PosEncodingMode[pos_encoding_mode].value,\n                window_left >= 0,\n"
                "                use_fp16_qk_reduction,\n            ),  # uri",
                "                pos_encoding_mode,\n                window_left >= 0,\n"
                "                use_fp16_qk_reduction,\n            ),  # uri",
            ),
            (
                "one backend",
                "get_batch_prefill_attention_sink_uri(\n                backend,",
                'get_batch_prefill_attention_sink_uri(\n                "fa2",',
            ),
            (
                "another dtype_idx than ahead of time",
                "                torch.int32,  # dtype_idx\n                head_dim_qk,",
                "                torch.int64,  # dtype_idx\n                head_dim_qk,",
            ),
        ),
        *of(
            patch,
            "flashinfer/jit/attention/modules.py",
            (
                "no positional encoding",
                '        f"posenc_{pos_encoding_mode}_"\n        f"use_swa_{use_sliding_window}_"\n'
                '        f"f16qk_{use_fp16_qk_reduction}" + ("_sm90" if backend == "fa3" else "")\n'
                "    )\n\n\ndef get_batch_attention_uri",
                '        f"use_swa_{use_sliding_window}_"\n'
                '        f"f16qk_{use_fp16_qk_reduction}" + ("_sm90" if backend == "fa3" else "")\n'
                "    )\n\n\ndef get_batch_attention_uri",
            ),
            (
                "no reduction",
                '        f"f16qk_{use_fp16_qk_reduction}" + ("_sm90" if backend == "fa3" else "")\n'
                "    )\n\n\ndef get_batch_attention_uri",
                '        "" + ("_sm90" if backend == "fa3" else "")\n    )\n\n\ndef get_batch_attention_uri',
            ),
            (
                "the same with FA3 as with FA2",
                '        f"f16qk_{use_fp16_qk_reduction}" + ("_sm90" if backend == "fa3" else "")\n'
                "    )\n\n\ndef get_batch_attention_uri",
                '        f"f16qk_{use_fp16_qk_reduction}"\n    )\n\n\ndef get_batch_attention_uri',
            ),
            (
                "a reduction in FP16 where none is asked for",
                "    use_fp16_qk_reduction: bool = False,\n) -> str:",
                "    use_fp16_qk_reduction: bool = True,\n) -> str:",
            ),
        ),
    ]


CORE, EXT = "flashinfer/jit/core.py", "flashinfer/jit/cpp_ext.py"
MOE_JIT, KERNELS = "flashinfer/jit/fused_moe.py", "flashinfer/jit/gemm/cutlass/generate_kernels.py"
MOE_CORE = "flashinfer/fused_moe/core.py"
JOBS, PROFILE = "flashinfer/jit-jobs-by-memory", "flashinfer/moe-mxfp4-build-profile"
FINALIZE, ARCH = "flashinfer/sm120-finalize-stages", "cutlass/array-smem-capacity"
COOPERATIVE, PINGPONG = (
    f"include/cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_{name}.hpp"
    for name in ("cooperative", "pingpong")
)
CHECK = "  static_assert(cutlass::arch::CheckSmemCapacity<ArchTag, SharedStorageSize, TileShape>::value);"
COLLECTED = """\
  // The caller may overwrite shared_ordered, or announce this CTA's indices to its peers.
  __syncthreads();\
"""

BOTH: list[Mutant] = [
    *of(
        JOBS,
        CORE,
        ("a module's default is 4 GiB", "    compiler_gib: int = 3,\n", "    compiler_gib: int = 4,\n"),
        ("a module's amount is lost", "        compiler_gib=compiler_gib,\n", ""),
        (
            "each module is built by the default",
            "                self.compiler_gib,\n",
            "                3,\n",
        ),
        (
            "the last module's amount for all",
            "compiler_gib = max(compiler_gib, spec.compiler_gib)",
            "compiler_gib = spec.compiler_gib",
        ),
        (
            "the sum of the modules' amounts",
            "compiler_gib = max(compiler_gib, spec.compiler_gib)",
            "compiler_gib += spec.compiler_gib",
        ),
        (
            "told if all of several are cold",
            "is_cold_build |= not spec.jit_library_path.exists()",
            "is_cold_build = not spec.jit_library_path.exists()",
        ),
        (
            "told if one of several is warm",
            "is_cold_build |= not spec.jit_library_path.exists()",
            "is_cold_build |= spec.jit_library_path.exists()",
        ),
        ("several are always cold", "    is_cold_build = False\n    for", "    is_cold_build = True\n    for"),
    ),
    *of(
        JOBS,
        EXT,
        (
            "as many jobs as ninja's are a limit",
            "    if jobs >= default_jobs:\n        return None\n",
            "    if jobs > default_jobs:\n        return None\n",
        ),
        (
            "more jobs than ninja's",
            "    if jobs >= default_jobs:\n        return None\n",
            "",
        ),
        (
            "no job where none fits",
            "jobs = max(available // (compiler_gib << 30), 1)",
            "jobs = available // (compiler_gib << 30)",
        ),
        (
            "two jobs where one fits",
            "jobs = max(available // (compiler_gib << 30), 1)",
            "jobs = max(available // (compiler_gib << 30), 2)",
        ),
        ("GB for GiB", "(compiler_gib << 30)", "(compiler_gib * 10**9)"),
        (
            "rounded up",
            "jobs = max(available // (compiler_gib << 30), 1)",
            "jobs = available // (compiler_gib << 30) + 1",
        ),
        ("told of a warm build", "    if is_cold_build:\n        from .core", "    if True:\n        from .core"),
        (
            "told of a warm build alone",
            "    if is_cold_build:\n        from .core",
            "    if not is_cold_build:\n        from .core",
        ),
        ("told each time", "jit_logger.info_once(", "jit_logger.info("),
        (
            "told the wrong way round",
            "            jobs,\n            default_jobs,\n",
            "            default_jobs,\n            jobs,\n",
        ),
        (
            "ninja's default unknown",
            "    if available is None or default_jobs is None:",
            "    if available is None:",
        ),
        (
            "memory unknown",
            "    if available is None or default_jobs is None:",
            "    if default_jobs is None:",
        ),
    ),
    *of(
        JOBS,
        MOE_JIT,
        ("the MoE module takes 3 GiB", "compiler_gib=9,", "compiler_gib=3,"),
        ("the MoE module takes 10 GiB", "compiler_gib=9,", "compiler_gib=10,"),
    ),
    *of(
        JOBS,
        "flashinfer/jit/utils.py",
        ("without an error where page cache isn't told", "(OSError, ValueError, KeyError)", "(OSError, ValueError)"),
    ),
    *of(
        PROFILE,
        "csrc/fused_moe/cutlass_backend/cutlass_fused_moe_instantiation.cu",
        (
            "no FP16 output",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\ntemplate class CutlassMoeFCRunner<__nv_fp8_e4m3, __nv_fp4_e2m1, half>;\n",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\n",
        ),
        (
            "no BF16 output",
            "template class CutlassMoeFCRunner<__nv_fp8_e4m3, __nv_fp4_e2m1, __nv_bfloat16>;\n#else",
            "#else",
        ),
        (
            "the full module has two kinds alone",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\ntemplate",
            "#ifndef FLASHINFER_MOE_MXFP4_ONLY\ntemplate",
        ),
    ),
    *of(
        PROFILE,
        BINDING,
        (
            "MXFP8 activations alone",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\n    if (isWMxfp4AMxfp8Quant() || isWMxfp4AFp8Quant()) {",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\n    if (isWMxfp4AMxfp8Quant()) {",
        ),
        (
            "FP8 activations alone",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\n    if (isWMxfp4AMxfp8Quant() || isWMxfp4AFp8Quant()) {",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\n    if (isWMxfp4AFp8Quant()) {",
        ),
        (
            "all dtypes taken for MXFP4",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\n    if (isWMxfp4AMxfp8Quant() || isWMxfp4AFp8Quant()) {",
            "#ifdef FLASHINFER_MOE_MXFP4_ONLY\n    if (true) {",
        ),
        (
            "multiplier 2",
            "      mInnerDimMultiplier = 16;  // 16 FP4 -> 1 LONG\n"
            "      mKernelRunner = switch_output_type<__nv_fp8_e4m3, __nv_fp4_e2m1>(mOutputDtype);\n    } else {\n",
            "      mInnerDimMultiplier = 2;  // 16 FP4 -> 1 LONG\n"
            "      mKernelRunner = switch_output_type<__nv_fp8_e4m3, __nv_fp4_e2m1>(mOutputDtype);\n    } else {\n",
        ),
        (
            "the runner of NVFP4",
            "      mKernelRunner = switch_output_type<__nv_fp8_e4m3, __nv_fp4_e2m1>(mOutputDtype);\n    } else {\n"
            '      TVM_FFI_LOG_AND_THROW(NotImplementedError)\n          << "This module was built with',
            "      mKernelRunner = switch_output_type<__nv_fp4_e2m1, __nv_fp4_e2m1>(mOutputDtype);\n    } else {\n"
            '      TVM_FFI_LOG_AND_THROW(NotImplementedError)\n          << "This module was built with',
        ),
    ),
    *of(
        PROFILE,
        MOE_CORE,
        ("not on 12.1", 'if device_arch in ("120", "121") and use_sm120', 'if device_arch == "120" and use_sm120'),
        ("not on 12.0", 'if device_arch in ("120", "121") and use_sm120', 'if device_arch == "121" and use_sm120'),
        ("on all architectures", 'if device_arch in ("120", "121") and use_sm120', "if use_sm120"),
        (
            "the full module for MXFP4",
            "get_cutlass_fused_moe_module(device_arch, mxfp4_only=True)",
            "get_cutlass_fused_moe_module(device_arch, mxfp4_only=False)",
        ),
        (
            "which module isn't passed on",
            "gen_cutlass_fused_moe_sm120_module(\n            use_fast_build, mxfp4_only\n        )",
            "gen_cutlass_fused_moe_sm120_module(\n            use_fast_build\n        )",
        ),
        (
            "a call's dtypes exchanged",
            "device_arch, input.dtype, fc1_expert_weights.dtype",
            "device_arch, fc1_expert_weights.dtype, input.dtype",
        ),
        (
            "a call's output for its activations",
            "device_arch, input.dtype, fc1_expert_weights.dtype",
            "device_arch, output_dtype, fc1_expert_weights.dtype",
        ),
    ),
    *of(
        PROFILE,
        MOE_JIT,
        (
            "full by default",
            '"FLASHINFER_FUSED_MOE_BUILD_PROFILE", "auto"',
            '"FLASHINFER_FUSED_MOE_BUILD_PROFILE", "full"',
        ),
        (
            "minimal by default",
            '"FLASHINFER_FUSED_MOE_BUILD_PROFILE", "auto"',
            '"FLASHINFER_FUSED_MOE_BUILD_PROFILE", "mxfp4_minimal"',
        ),
        (
            "auto can't be named",
            'profile not in ("auto", "full", "mxfp4_minimal")',
            'profile not in ("full", "mxfp4_minimal")',
        ),
        (
            "anything is a profile",
            'profile not in ("auto", "full", "mxfp4_minimal")',
            "not profile",
        ),
        (
            "all FP8 activations",
            "mxfp4 = x_dtype == torch.float8_e4m3fn and weight_dtype == torch.long",
            "mxfp4 = x_dtype == torch.float8_e4m3fn",
        ),
        (
            "all FP4 weights",
            "mxfp4 = x_dtype == torch.float8_e4m3fn and weight_dtype == torch.long",
            "mxfp4 = weight_dtype == torch.long",
        ),
        (
            "E5M2 activations",
            "mxfp4 = x_dtype == torch.float8_e4m3fn and weight_dtype == torch.long",
            "mxfp4 = x_dtype == torch.float8_e5m2 and weight_dtype == torch.long",
        ),
        (
            "bytes of FP4 weights",
            "mxfp4 = x_dtype == torch.float8_e4m3fn and weight_dtype == torch.long",
            "mxfp4 = x_dtype == torch.float8_e4m3fn and weight_dtype == torch.uint8",
        ),
        (
            "the minimal profile refuses nothing",
            '    if profile == "mxfp4_minimal" and not mxfp4:\n',
            "    if False:\n",
        ),
        (
            "auto refuses what is no MXFP4",
            '    if profile == "mxfp4_minimal" and not mxfp4:\n',
            '    if profile != "full" and not mxfp4:\n',
        ),
        (
            "the full profile has the small module",
            '    if profile == "full" or not mxfp4:\n',
            "    if not mxfp4:\n",
        ),
        (
            "the full module of two",
            "        or gen_cutlass_fused_moe_sm120_module(mxfp4_only=True).is_compiled\n",
            "",
        ),
        (
            "the small module though the full one is there",
            "        or not gen_cutlass_fused_moe_sm120_module(mxfp4_only=False).is_compiled\n",
            "        or True\n",
        ),
        (
            "the full module where none is there",
            "        or not gen_cutlass_fused_moe_sm120_module(mxfp4_only=False).is_compiled\n",
            "",
        ),
        (
            "the minimal profile can't be overridden",
            "    if mxfp4_only is None:\n",
            "    if not mxfp4_only:\n",
        ),
        (
            "ahead of time the small module",
            'mxfp4_only = _sm120_moe_profile() == "mxfp4_minimal"',
            'mxfp4_only = _sm120_moe_profile() != "full"',
        ),
        (
            "ahead of time never the small module",
            'mxfp4_only = _sm120_moe_profile() == "mxfp4_minimal"',
            "mxfp4_only = False",
        ),
        ("both modules under one name", '        variant += "_mxfp4min"\n', ""),
        ("no flag", 'nvcc_flags = nvcc_flags + ["-DFLASHINFER_MOE_MXFP4_ONLY"]', "pass"),
        ("the source of NVFP4", '(["fp8_fp4"] if mxfp4_only', '(["fp4_fp4"] if mxfp4_only'),
        ("all sources in the small module", '(["fp8_fp4"] if mxfp4_only else _MOE_GEMM_DTYPES)', "_MOE_GEMM_DTYPES"),
        ("the full module lacks a source", '    "bf16_fp8",\n', ""),
        ("the full module has a source twice", '    "bf16_fp8",\n', '    "bf16_fp4",\n'),
    ),
    *of(
        PROFILE,
        KERNELS,
        ("MXFP4 left out", "mxfp4_only and not is_mxfp8_mxfp4(op)", "mxfp4_only and is_mxfp8_mxfp4(op)"),
        ("MXFP4 alone in each module", "mxfp4_only and not is_mxfp8_mxfp4(op)", "not is_mxfp8_mxfp4(op)"),
        ("no kernel left out", "mxfp4_only and not is_mxfp8_mxfp4(op)", "False"),
        (
            "all FP4 kernels kept",
            "        and op.act_type == DataType.e4m3\n        and op.weight_type == e2m1\n    )",
            "        and op.weight_type == e2m1\n    )",
        ),
    ),
    *of(
        FINALIZE,
        LAUNCHER,
        ("half the alignment", "IsFinalizeFusion ? 1024 : 0;", "IsFinalizeFusion ? 512 : 0;"),
        ("8 KiB", "IsFinalizeFusion ? 1024 : 0;", "IsFinalizeFusion ? 8192 : 0;"),
        ("16 KiB", "IsFinalizeFusion ? 1024 : 0;", "IsFinalizeFusion ? 16384 : 0;"),
        ("the kernels without finalize", "IsSM120 && IsFinalizeFusion ? 1024", "IsSM120 && !IsFinalizeFusion ? 1024"),
        ("the other architectures", "IsSM120 && IsFinalizeFusion ? 1024", "!IsSM120 && IsFinalizeFusion ? 1024"),
        ("taken away instead", "SharedStorage) + SmemAlignment)>;", "SharedStorage) - SmemAlignment)>;"),
        ("not counted", "SharedStorage) + SmemAlignment)>;", "SharedStorage))>;"),
        (
            "16 KiB for the kernels without finalize",
            "IsSM120 && IsFinalizeFusion ? 1024 : 0;",
            "IsSM120 ? (IsFinalizeFusion ? 1024 : 16384) : 0;",
        ),
        (
            "8 KiB on all architectures",
            "constexpr int SmemAlignment = IsSM120 && IsFinalizeFusion ? 1024 : 0;",
            "constexpr int SmemAlignment = 8192;",
        ),
    ),
    *of(
        "flashinfer/topk-collect-sync",
        TOPK,
        ("no barrier after the indices", COLLECTED, COLLECTED.replace("\n  __syncthreads();", "")),
        ("for one block a row alone", COLLECTED, COLLECTED.replace("__sync", "if constexpr (SINGLE_CTA) __sync")),
        ("for several blocks a row alone", COLLECTED, COLLECTED.replace("__sync", "if constexpr (!SINGLE_CTA) __sync")),
        ("a warp's barrier", COLLECTED, COLLECTED.replace("__syncthreads", "__syncwarp")),
        ("a fence", COLLECTED, COLLECTED.replace("__syncthreads", "__threadfence")),
        ("for the row's first block alone", COLLECTED, COLLECTED.replace("__sync", "if (chunk_start == 0) __sync")),
        ("for the row's other blocks alone", COLLECTED, COLLECTED.replace("__sync", "if (chunk_start > 0) __sync")),
        (
            "where larger ones were found alone",
            COLLECTED,
            COLLECTED.replace("__sync", "if (local_gt_count > 0) __sync"),
        ),
    ),
    *of(
        ARCH,
        "include/cutlass/arch/arch.h",
        (
            "a kernel that fits to the byte refused",
            "SharedStorageSize <= sm120_smem_capacity_bytes",
            "SharedStorageSize < sm120_smem_capacity_bytes",
        ),
        (
            "SM90's capacity",
            "SharedStorageSize <= sm120_smem_capacity_bytes",
            "SharedStorageSize <= sm90_smem_capacity_bytes",
        ),
        (
            "one KiB more",
            "SharedStorageSize <= sm120_smem_capacity_bytes",
            "SharedStorageSize <= sm120_smem_capacity_bytes + 1024",
        ),
        (
            "one byte more",
            "SharedStorageSize <= sm120_smem_capacity_bytes",
            "SharedStorageSize <= sm120_smem_capacity_bytes + 1",
        ),
        ("all architectures", "ArchTag::kMinComputeCapability != 120 || ", ""),
        ("other architectures", "kMinComputeCapability != 120 ||", "kMinComputeCapability == 120 ||"),
        (
            "SM90 as well",
            "ArchTag::kMinComputeCapability != 120 ||",
            "(ArchTag::kMinComputeCapability != 120 && ArchTag::kMinComputeCapability != 90) ||",
        ),
        ("SM100 as well", "ArchTag::kMinComputeCapability != 120 ||", "ArchTag::kMinComputeCapability < 100 ||"),
    ),
    *of(
        ARCH,
        COOPERATIVE,
        ("none in the cooperative kernel", CHECK, ""),
        ("SM90 in the cooperative kernel", CHECK, CHECK.replace("<ArchTag", "<cutlass::arch::Sm90")),
        (
            "the mainloop alone in the cooperative kernel",
            CHECK,
            CHECK.replace("SharedStorageSize", "sizeof(typename CollectiveMainloop::SharedStorage)"),
        ),
    ),
    *of(
        ARCH,
        PINGPONG,
        ("none in the pingpong kernel", CHECK, ""),
        ("SM90 in the pingpong kernel", CHECK, CHECK.replace("<ArchTag", "<cutlass::arch::Sm90")),
        (
            "the mainloop alone in the pingpong kernel",
            CHECK,
            CHECK.replace("SharedStorageSize", "sizeof(typename CollectiveMainloop::SharedStorage)"),
        ),
    ),
]
