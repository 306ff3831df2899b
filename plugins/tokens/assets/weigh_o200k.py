"""Weighs each token of o200k for the estimate (see README.md here).

Usage: python3 weigh_o200k.py <folder of .tiktoken files> o200k.weights      (needs tiktoken)"""

import base64
import sys

import tiktoken

GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
CL100K = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
SINGLE = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")


def load(path: str, pattern: str) -> tiktoken.Encoding:
    ranks = {base64.b64decode(t): int(r) for t, r in (line.split() for line in open(path, "rb"))}
    return tiktoken.Encoding(path, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def weight(token: bytes, all_texts: list, ascii_only: list) -> int:
    encodings = all_texts + (ascii_only if token.isascii() else [])
    try:
        text = token.decode()
        most = max(len(e.encode_ordinary(text)) for e in encodings)
    except UnicodeDecodeError:
        most = max(len(e._encode_single_piece(token)) for e in encodings)
    return min(most, len(token), 15)


if __name__ == "__main__":
    folder, target = sys.argv[1:3]
    o200k = sorted((int(r), base64.b64decode(t)) for t, r in (line.split() for line in open(f"{folder}/o200k_base.tiktoken", "rb")))
    all_texts = [load(f"{folder}/cl100k_base.tiktoken", CL100K), load(f"{folder}/voyage3_base.tiktoken", SINGLE)]
    ascii_only = [load(f"{folder}/p50k_base.tiktoken", GPT2)]
    weights = [weight(token, all_texts, ascii_only) for _, token in o200k]
    open(target, "wb").write(bytes(low | high << 4 for low, high in zip(weights[::2], weights[1::2])))
    print({w: weights.count(w) for w in sorted(set(weights))})
