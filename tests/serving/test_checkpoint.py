"""The made checkpoint is what transformers takes for the hub's; the quantiser is MXFP4's definition."""

from __future__ import annotations

import json
from pathlib import Path

import checkpoint
import comparing
import mxfp4
import pytest
import reference
import torch
from safetensors.torch import load_file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gpt-oss")
    checkpoint.write(made, checkpoint.SIZES["tiny"], seed=3)
    return made


def test_each_value_takes_the_nearest_level_and_ties_the_even_code() -> None:
    exact = torch.tensor([*mxfp4.LEVELS, *(-level for level in mxfp4.LEVELS), *([0.0] * 16)])
    assert mxfp4.dequantise(*mxfp4.quantise(exact)).tolist() == exact.tolist()
    ties = torch.tensor([6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, -0.25, -0.75, -2.5, -5.0, *([0.0] * 20)])
    want = [6.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, -0.0, -1.0, -2.0, -4.0]
    assert mxfp4.dequantise(*mxfp4.quantise(ties))[:12].tolist() == want


def test_the_scale_is_the_smallest_that_nothing_overflows() -> None:
    for largest, exponent in ((6.0, 0), (6.01, 1), (3.0, -1), (100.0, 5), (1e-20, -69)):
        _, scales = mxfp4.quantise(torch.tensor([largest] + [0.0] * 31))
        assert scales.item() == exponent + 127, largest
    blocks, scales = mxfp4.quantise(torch.zeros(32))
    assert (scales.item(), blocks.sum().item()) == (0, 0)


def test_a_saturating_scale_keeps_the_largest_value_below_seven_steps() -> None:
    for largest, exponent in ((6.0, 0), (6.99, 0), (7.0, 1), (3.5, 0), (3.49, -1), (100.0, 4), (0.0, -127)):
        blocks, scales = mxfp4.quantise(torch.tensor([largest] + [0.0] * 31), saturating=True)
        assert scales.item() == exponent + 127, largest
        if largest == 6.99:
            assert mxfp4.dequantise(blocks, scales)[0].item() == 6.0


def test_no_value_is_further_off_than_half_a_step() -> None:
    values = torch.randn(64, 256, generator=torch.Generator().manual_seed(1)).bfloat16()
    blocks, scales = mxfp4.quantise(values)
    off = (mxfp4.dequantise(blocks, scales).float() - values.float()).abs().unflatten(-1, (-1, 32))
    assert (off <= torch.exp2(scales.float() - 127)[..., None]).all()  # the widest step, 4 to 6, is 2


def test_transformers_reads_the_experts_as_the_reference_does(folder: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    read = reference.tensors(folder, (), "cpu")
    name = "model.layers.1.mlp.experts.down_proj"
    shard = load_file(folder / "model-00002-of-00003.safetensors")
    theirs = convert_moe_packed_tensors(shard[f"{name}_blocks"], shard[f"{name}_scales"].to(torch.uint8))
    assert torch.equal(theirs, read[name])


def test_names_and_shapes_are_those_of_transformers(folder: Path) -> None:
    model = reference.load(folder)  # strict: no tensor too many, none missing
    assert {p.device.type for p in model.parameters()} == {"cpu"}


def test_the_config_has_what_the_hub_has(folder: Path) -> None:
    said = json.loads((folder / "config.json").read_text())
    assert said["quantization_config"]["quant_method"] == "mxfp4"
    assert said["layer_types"] == ["sliding_attention", "full_attention"]


def test_words_and_tokens(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.encode("t7 t300 t504") == [7, 300, 504]
    assert tokenizer.get_vocab()["<|end|>"] == 506
    assert tokenizer.decode([7, 300]) == "t7 t300"
    assert tokenizer.vocab_size == 512


def test_the_same_seed_makes_the_same_model(folder: Path, tmp_path: Path) -> None:
    checkpoint.write(tmp_path, checkpoint.SIZES["tiny"], seed=3)
    for file in sorted(folder.iterdir()):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name


def test_scores_are_those_of_the_whole_models_logits(folder: Path) -> None:
    model = reference.load(folder)
    tokens = torch.randint(2, 512, (700,), generator=torch.Generator().manual_seed(2)).tolist()
    [rows] = reference.score(model, [tokens])
    with torch.no_grad():
        want = torch.log_softmax(model(torch.tensor([tokens])).logits[0], -1)
    assert len(rows["logprobs"]) == len(rows["top"]) == 699
    for at in (0, 127, 128, 511, 512, 698):
        assert rows["logprobs"][at] == pytest.approx(want[at, tokens[at + 1]].item(), abs=1e-4)
        assert rows["top"][at] == want[at].argmax().item()


def test_windows_sinks_and_quantised_layers_change_the_scores(folder: Path) -> None:
    """Each thing that is compared must show: else an engine that leaves it out would look right."""
    tokens = torch.randint(2, 512, (300,), generator=torch.Generator().manual_seed(4)).tolist()
    base = reference.score(reference.load(folder), [tokens])[0]["logprobs"]

    def off(model: object) -> float:
        other = reference.score(model, [tokens])[0]["logprobs"]
        return max(abs(a - b) for a, b in zip(base, other, strict=True))

    assert off(reference.load(folder, sinks=False)) > 0.1
    for layer in reference.LAYERS:
        assert off(reference.load(folder, quantised=[layer])) > 0.05, layer
    wide = reference.load(folder)
    for layer in wide.model.layers:
        layer.self_attn.sliding_window = None
    wide.config.sliding_window = 4096
    wide.model.config.sliding_window = 4096
    assert off(wide) > 0.05


def test_the_draft_fits_the_target(tmp_path: Path) -> None:
    size = checkpoint.SIZES["tiny"]
    checkpoint.write_draft(tmp_path, size)
    tensors = load_file(tmp_path / "model.safetensors")
    assert tensors["fc.weight"].shape == (size.hidden, 3 * size.hidden)
    assert tensors["midlayer.self_attn.q_proj.weight"].shape == (size.heads * size.head_dim, 2 * size.hidden)
    assert tensors["lm_head.weight"].shape[0] == size.vocabulary


@pytest.mark.parametrize(("echo", "least", "most"), [(True, 0.3, 0.8), (False, 0.0, 0.05)])
def test_an_echo_repeats_itself_and_its_draft_sees_it(tmp_path: Path, echo: bool, least: float, most: float) -> None:
    """Over random tokens: how often the last one is the likeliest, and the draft's answer without its layer the target's."""
    size = checkpoint.Size(3, 256, 64, 8, 4, 2, 4096)
    checkpoint.write(tmp_path / "target", size, echo=echo)
    checkpoint.write_draft(tmp_path / "draft", size, echo=echo)
    model, draft = reference.load(tmp_path / "target"), load_file(tmp_path / "draft/model.safetensors")
    assert ("lm_head.weight" in draft) != echo
    tokens = torch.randint(2, size.vocabulary, (600,), generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        said = model(tokens[None], output_hidden_states=True)
        likeliest = said.logits[0].argmax(-1)
        assert least <= (likeliest == tokens).float().mean().item() <= most
        seen = torch.cat(said.hidden_states[:3], -1)[0] @ draft["fc.weight"].float().T
        head = draft["lm_head.weight"].float() if "lm_head.weight" in draft else model.lm_head.weight
        drafted = torch.nn.functional.rms_norm(seen, (size.hidden,), draft["norm.weight"].float()) @ head.T
    assert least <= (drafted.argmax(-1) == likeliest).float().mean().item() <= most


def test_a_float32_engine_has_no_error_and_a_wrong_one_has(folder: Path) -> None:
    """The comparison from end to end, the reference's own BF16 standing for an engine."""
    model = reference.load(folder, dtype=torch.bfloat16)
    prompt = torch.randint(2, 512, (200,), generator=torch.Generator().manual_seed(5)).tolist()

    def serve(tokens: list[int]) -> dict[str, object]:
        generated: list[int] = []
        for _ in range(4):
            with torch.no_grad():
                generated.append(int(model(torch.tensor([[*tokens, *generated]])).logits[0, -1].argmax()))
        [said] = reference.score(model, [[*tokens, *generated]])
        cut = len(tokens) - 1
        return {"prompt": tokens, "logprobs": said["logprobs"][:cut], "top": said["top"][:cut], "tokens": generated,
                "token_logprobs": said["logprobs"][cut:]}  # fmt: skip

    rows = [serve(prompt), serve(prompt[:20])]
    todo = comparing.sequences([{"passes": {"batched": rows}}])
    truth = dict(zip(map(tuple, todo), reference.score(reference.load(folder), todo), strict=True))
    found = comparing.prompts(rows, truth)
    assert found["positions"] == 199 + 19
    assert 0 < found["mean"] < 0.1
    assert found["top1"] > 0.9
    assert comparing.greedy(rows, truth)["likeliest"] == 1.0
    without = reference.score(reference.load(folder, sinks=False), todo)
    wrong = comparing.prompts(rows, dict(zip(map(tuple, todo), without, strict=True)))
    assert wrong["mean"] > 3 * found["mean"]
