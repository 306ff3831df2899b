"""Small tokenizers of the usual families, and the counts transformers gives with them.

Usage: python3 families.py        (tokenizers, transformers, jinja2; no network)
Writes families/<name>/{tokenizer.json, chat_template.jinja, tokenizer_config.json, expected.json}
and families/texts.json."""

import json
import os
import random

os.environ["HF_HUB_OFFLINE"] = "1"
from datetime import datetime

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

CORPUS = (open("families.py").read() + open("cases.py").read() + open("harmony.py").read() + json.dumps(json.load(open("cases.json")), ensure_ascii=False)[:4000]).splitlines()
CORPUS += ["The quick brown fox jumps over the lazy dog, and then the weather in Zürich is sunny today.",
           "Das Wetter in Zürich ist heute sonnig, und morgen wird es regnen.", "Le ciel est bleu, il fait beau à l'été.",
           "今天的天气很好,世界。", "Привет, мир! Сегодня хорошая погода.", "2024 1999 3.14159 100,000"] * 20

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    names = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"]
    t.add_special_tokens([AddedToken(n, normalized=False) for n in names])
    bos = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", bos)])])
    return t, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}


def qwen():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    names = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"]
    t.add_special_tokens([AddedToken(n, normalized=False) for n in names])
    t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False), AddedToken("<think>", normalized=True, rstrip=True), AddedToken("weather", single_word=True, normalized=True), AddedToken("klar", lstrip=True)])
    return t, {"eos_token": "<|im_end|>"}


def mistral():
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    words = [" ".join(line.split()) for line in CORPUS if line.strip()]
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = t.normalizer
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    alphabet = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789▁.,:;!?'\"{}[]()<>|/=-_é")
    trained.train_from_iterator(words, trainers.BpeTrainer(vocab_size=900, special_tokens=specials, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False))
    model = json.loads(trained.to_str())["model"]
    t.model = models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]], unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken(n, normalized=False) for n in ["<unk>", "<s>", "</s>"]])
    t.add_special_tokens([AddedToken(n, normalized=False) for n in ["[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[IMG]"]])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def gemma():
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")])
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=700, unk_token="<unk>", special_tokens=["<unk>", "<bos>", "<eos>"], show_progress=False))
    t.add_special_tokens([AddedToken(n, normalized=False) for n in ["<start_of_turn>", "<end_of_turn>", "<image_soft_token>"]])
    return t, {"bos_token": {"content": "<bos>", "lstrip": False}, "eos_token": "<eos>"}


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t, {}


def deepseek():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Sequence([])
    cut = [pre_tokenizers.Split(Regex(p), "isolated") for p in [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]]
    t.pre_tokenizer = pre_tokenizers.Sequence(cut + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    names = ["<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
    t.add_special_tokens([AddedToken(n, normalized=False) for n in names])
    return t, {"bos_token": names[0]}


FAMILIES = {"llama3": llama3, "qwen": qwen, "mistral": mistral, "gemma": gemma}
TEXT_ONLY = {"gpt2": gpt2, "deepseek": deepseek}


def qwen_image(width, height):
    """Qwen2-VL's smart_resize, factor 28, 4 to 16384 patches."""
    import math
    f, least, most = 28, 56 * 56, 28 * 28 * 16384
    h, w = round(height / f) * f, round(width / f) * f
    if h * w > most:
        beta = math.sqrt(height * width / most)
        h, w = max(f, math.floor(height / beta / f) * f), max(f, math.floor(width / beta / f) * f)
    elif h * w < least:
        beta = math.sqrt(least / (height * width))
        h, w = math.ceil(height * beta / f) * f, math.ceil(width * beta / f) * f
    return h * w // f // f


def pixtral_image(width, height):
    """mistral-common's rule, patches of 16, longest side 1024; each row ends with a break."""
    ratio = max(width / 1024, height / 1024)
    if ratio > 1:
        width, height = round(width / ratio), round(height / ratio)
    return ((height - 1) // 16 + 1) * ((width - 1) // 16 + 2)


IMAGES = {"qwen": ("<|image_pad|>", qwen_image), "mistral": ("[IMG]", pixtral_image), "gemma": ("<image_soft_token>", lambda w, h: 256)}
SIZES = {"image": [(640, 427)], "images": [(30, 17), (1999, 701)]}


class Fixed(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 11, 22)


def prepared(body: dict) -> list:
    """Messages as engines hand them to a template: arguments parsed, no null."""
    out = []
    for message in json.loads(json.dumps(body["messages"])):
        if message.get("content") is None:
            message["content"] = ""
        for c in message.get("tool_calls", []):
            c["function"]["arguments"] = json.loads(c["function"]["arguments"])
        if isinstance(message["content"], list):
            message["content"] = [{"type": "image"} if p["type"] == "image_url" else p for p in message["content"]]
        out.append(message)
    return out


def texts() -> list:
    random.seed(7)
    pools = ["abcdefgh ", "theatr in", " \n\t\r", "0123456789,.", "!?#-=<>|/'\"", "éüßñÅ\u0301ﬁ①", "世界今天,。", "Привет ", "🙂👍🏽\u200d", "<|im_end|>", "AbCd_", "▁ ", "\u00a0\u3000 x"]
    out = ["", " ", "a", "  a", "weather", "weathers weather!", " klar klar  klar", "<think> \n x", "it's we'LL", "[INST] a [/INST]", "  leading", "trailing  ", "a  b   c"]
    for length in [3, 10, 40, 120]:
        for _ in range(60):
            out.append("".join(random.choice(random.choice(pools)) for _ in range(length)))
    return out + ["x" * 500, "ab" * 400, " " * 300, "the " * 200, "世" * 200]


if __name__ == "__main__":
    chat_template_utils.datetime = Fixed
    cases = json.load(open("cases.json"))
    samples = texts()
    json.dump(samples, open("families/texts.json", "w"), ensure_ascii=False)
    for name, build in {**FAMILIES, **TEXT_ONLY}.items():
        tokenizer, config = build()
        folder = f"families/{name}"
        os.makedirs(folder, exist_ok=True)
        tokenizer.save(f"{folder}/tokenizer.json", pretty=False)
        json.dump(config, open(f"{folder}/tokenizer_config.json", "w"), ensure_ascii=False)
        expected = {"texts": [len(tokenizer.encode(s, add_special_tokens=False).ids) for s in samples], "special": len(tokenizer.encode("", add_special_tokens=True).ids)}
        if name in FAMILIES:
            template = open(f"{folder}/chat_template.jinja").read()
            plain = {k: v if isinstance(v, str) else v["content"] for k, v in config.items()}
            fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **plain)
            expected["chats"] = {}
            for case, body in cases.items():
                if case in SIZES and name not in IMAGES:
                    continue
                try:
                    text = fast.apply_chat_template(prepared(body), tools=body.get("tools"), tokenize=False, add_generation_prompt=True)
                except Exception as error:
                    expected["chats"][case] = {"error": str(error)}
                    continue
                full = text
                for size in SIZES.get(case, []):
                    mark, rule = IMAGES[name]
                    full = full.replace(mark, "\0" * rule(*size), 1)
                full = full.replace("\0", IMAGES[name][0]) if name in IMAGES else full
                expected["chats"][case] = {"prompt": text, "tokens": len(tokenizer.encode(full, add_special_tokens=False).ids)}
        json.dump(expected, open(f"{folder}/expected.json", "w"), ensure_ascii=False, indent=1)
        print(name, tokenizers.__version__, sum(expected["texts"]), {k: v.get("tokens", v.get("error")) for k, v in expected.get("chats", {}).items()})
