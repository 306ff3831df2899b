"""A tokenizer in the format of Hugging Face that splits texts as the simulated providers do: into words, each with the
white space before it. It knows the words of the given texts."""

import pathlib
import re
import tempfile

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

END = "<end>"


def write(texts):
    """Writes the tokenizer into a new folder; returns its path."""
    words = sorted({word for text in texts for word in re.findall(r"\s*\S+", text)})
    ids = {word: number for number, word in enumerate([END, *words])}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s*\S+"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    folder = pathlib.Path(tempfile.mkdtemp())
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, unk_token=END).save_pretrained(folder)
    return str(folder)
