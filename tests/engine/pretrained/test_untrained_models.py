"""Small models of random weights, saved and loaded by transformers: they know nothing, and keep few bytes."""

import math
from pathlib import Path

import pytest
import torch

from linbench.common.errors import UserError
from linbench.engine.pretrained import language_model
from linbench.engine.pretrained.ask import PretrainedCase
from linbench.engine.pretrained.language_model import LanguageModel, load_language_model
from linbench.engine.surroundings import find_torch_change
from linbench.results.schema import misfit
from tests.helpers.language_models import UNTRAINED, VOCABULARY, question, save_untrained

pytest.importorskip("transformers")

WIDTH, HEADS, HEAD_DIM, BYTES = 32, 2, 16, 4


@pytest.fixture(scope="module", params=list(UNTRAINED))
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    folder = save_untrained(request.param, tmp_path_factory.mktemp(request.param))
    return load_language_model(str(folder), device="cpu")


@pytest.mark.slow
def test_random_weights_score_at_chance(model: LanguageModel) -> None:
    examples = 256
    guessed = PretrainedCase(model, question("counter", examples=examples)).result()
    # counts are uniform and all of them can be answered; three places of an example are one guess at worst
    assert guessed["choices"] == 6
    assert abs(guessed["metrics"]["accuracy"] - 1 / 6) < 4 * math.sqrt(5 / 36 / examples)
    assert guessed["metrics"]["accuracy"] < guessed["chance"]
    recalled = PretrainedCase(model, question("mqar", shots=1, answers="written", examples=examples)).result()
    assert recalled["metrics"]["accuracy"] < recalled["chance"] / 4
    assert abs(recalled["metrics"]["nll"] - math.log(recalled["choices"])) < 0.5
    assert misfit(guessed) is misfit(recalled) is None
    assert {*recalled["slices"]} == {"distance", "slot"}


def test_the_bytes_of_a_state_are_those_of_its_tensors(model: LanguageModel) -> None:
    short, long = (
        PretrainedCase(model, question("mqar", seq_len=seq_len, kv_pairs=4, examples=1)).result()["state"]
        for seq_len in (32, 64)
    )
    assert short is not None
    assert long is not None
    assert (short["tokens"], long["tokens"]) == (32, 64)
    name = model.config.model_type
    layers, of_keys = {"llama": (2, HEADS), "mamba2": (0, 0), "qwen3_next": (1, 1)}[name]
    for state in (short, long):
        assert state["cache"] == state["tokens"] * layers * 2 * of_keys * HEAD_DIM * BYTES
    # Mamba-2: heads x dimensions x state, and a convolution of 4 over x, B and C; two layers of it.
    # Qwen3-Next: a state of 8 x 8 for each of 2 heads, and a convolution of 4 over q, k and v.
    mamba2 = 2 * (4 * 16 * 16 + 4 * (2 * WIDTH + 2 * 16))
    qwen3_next = 2 * 8 * 8 + 4 * 3 * 2 * 8
    expected = {"llama": 0, "mamba2": mamba2, "qwen3_next": qwen3_next}[name] * BYTES
    assert short["recurrent"] == long["recurrent"] == expected


def test_logits_are_those_of_the_whole_sequence_however_few_are_computed_at_once(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = PretrainedCase(model, question("mqar", seq_len=32, kv_pairs=4, shots=1, answers="written"))
    _, prompt = asked.draw(torch.arange(5))
    answers = torch.tensor(asked.vocabulary.answers)
    whole = model.module(input_ids=prompt.tokens).logits[:, :, answers]
    expected = whole.gather(1, prompt.positions[:, :, None].expand(-1, -1, len(answers)))
    assert torch.allclose(model.answer_logits(prompt, answers), expected, atol=1e-5)
    monkeypatch.setattr(language_model, "NUMBERS", 2 * prompt.positions.shape[1] * VOCABULARY)
    assert torch.allclose(model.answer_logits(prompt, answers), expected, atol=1e-5)


@pytest.mark.slow
def test_an_answer_comes_from_what_stands_before_it_alone(model: LanguageModel) -> None:
    asked = PretrainedCase(model, question("mqar", seq_len=32, kv_pairs=4))
    _, prompt = asked.draw(torch.arange(3))
    answers = torch.tensor(asked.vocabulary.answers)
    first = prompt._replace(positions=prompt.positions.amin(dim=1, keepdim=True))
    changed = first.tokens.clone()
    for row, at in enumerate(first.positions[:, 0].tolist()):
        changed[row, at + 1 :] = asked.vocabulary.separator
    logits = model.answer_logits(first, answers)
    assert torch.allclose(model.answer_logits(first._replace(tokens=changed), answers), logits, atol=1e-5)


def test_the_digest_is_that_of_weights_and_configuration(model: LanguageModel, tmp_path: Path) -> None:
    copy = tmp_path / "other name"
    copy.mkdir()
    for file in model.folder.path.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    again = load_language_model(str(copy), device="cpu")
    assert again.digest == model.digest
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert load_language_model(str(copy), device="cpu").digest != model.digest


@pytest.mark.parametrize(
    ("spoil", "word"),
    [("config.json", "holds no model"), ("model.safetensors", "no weights"), ("both", "cannot load")],
)
def test_a_folder_that_is_no_model_is_refused_in_a_sentence(tmp_path: Path, spoil: str, word: str) -> None:
    save_untrained("llama", tmp_path)
    if spoil == "both":
        (tmp_path / "config.json").write_text('{"model_type": "no such type"}')
    else:
        (tmp_path / spoil).unlink()
    with pytest.raises(UserError, match=word) as refused:
        load_language_model(str(tmp_path), device="cpu")
    assert "\n" not in str(refused.value)


def test_torn_weights_are_refused_in_a_sentence(tmp_path: Path) -> None:
    save_untrained("llama", tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    loaded = load_language_model(str(tmp_path), device="cpu")
    with pytest.raises(UserError, match="cannot load"):
        PretrainedCase(loaded, question("mqar", examples=1)).measure()


def test_a_model_with_a_tokenizer_is_asked_in_its_words(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, processors
    from transformers import PreTrainedTokenizerFast

    words = {name: i for i, name in enumerate(["<s>", "</s>", "##", "cat", "dog", "bird", "fish", "hen"])}
    made = Tokenizer(models.WordLevel(words, unk_token="##"))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    save_untrained("llama", tmp_path)
    PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="##"
    ).save_pretrained(tmp_path)
    asked = PretrainedCase(
        load_language_model(str(tmp_path), device="cpu"),
        question("parity", shots=1, answers="written", min_length=2, max_length=2, answer="last"),
    )
    assert (asked.vocabulary.begin, asked.vocabulary.separator, asked.vocabulary.inputs) == (0, 3, (4, 5, 6))
    _, prompt = asked.draw(torch.arange(1))
    assert prompt.tokens.shape == (1, 1 + 3 + 1 + 3)
    assert (int(prompt.tokens[0, 0]), int(prompt.tokens[0, 4])) == (0, 3)
    asked.measure()


def test_a_process_that_asked_a_model_can_still_train(tmp_path: Path) -> None:
    save_untrained("llama", tmp_path)
    loaded = load_language_model(str(tmp_path), device="cpu")
    PretrainedCase(loaded, question("mqar", examples=1)).measure()
    assert find_torch_change() is None
