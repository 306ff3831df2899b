"""Packs a published vocabulary into pairs (see README.md here).

Usage: python3 pack.py o200k_base.tiktoken o200k.pairs
       python3 pack.py cl100k_base.tiktoken cl100k.pairs
"""

import base64
import hashlib
import sys

EXPECTED = {
    "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d": "o200k_base",
    "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7": "cl100k_base",
}


def halves(token: bytes, rank: int, ranks: dict) -> tuple:
    """The two tokens a token was merged from: byte-pair encoding stopped before its own rank."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        found = [
            (ranks[parts[i] + parts[i + 1]], i)
            for i in range(len(parts) - 1)
            if ranks.get(parts[i] + parts[i + 1], rank) < rank
        ]
        _, at = min(found)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return ranks[parts[0]], ranks[parts[1]]


def main(source: str, target: str) -> None:
    raw = open(source, "rb").read()
    assert hashlib.sha256(raw).hexdigest() in EXPECTED, "not a published vocabulary"
    ranks = {}
    for line in raw.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    tokens = sorted(ranks, key=ranks.get)
    assert list(ranks[t] for t in tokens) == list(range(len(tokens)))
    assert all(len(t) == 1 for t in tokens[:256]) and all(len(t) > 1 for t in tokens[256:])
    for at, token in enumerate(tokens[256:]):
        left, right = halves(token, ranks[token], ranks)
        assert left < (1 << 18) and right < (1 << 18)
        tokens[256 + at] = (left, right)
    out = bytearray(b"".join(tokens[:256]))
    pending, width = 0, 0
    for left, right in tokens[256:]:
        for half in (left, right):
            pending |= half << width
            width += 18
            while width >= 8:
                out.append(pending & 0xFF)
                pending >>= 8
                width -= 8
    if width:
        out.append(pending & 0xFF)
    open(target, "wb").write(out)


if __name__ == "__main__":
    main(*sys.argv[1:3])
