"""The vocabulary that tiktoken would fetch from the network, written where it looks first.

It is unpacked from the gateway's own copy; tiktoken checks its digest, so that copy is checked too.
"""

import base64
import os
import pathlib
import tempfile

PACKED = pathlib.Path(__file__).parents[3] / "plugins/tokens/assets/cl100k.pairs"
# Cache file name of tiktoken for cl100k_base: the SHA-1 of its URL.
NAME = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"


def tokens(packed):
    """The bytes of each token by rank: 256 of one byte, then pairs of 18-bit ranks."""
    found = [bytes([byte]) for byte in packed[:256]]
    bits = int.from_bytes(packed[256:], "little")
    count = (len(packed) - 256) * 8 // 36
    raw = bits.to_bytes(len(packed), "little")
    for pair in range(count):
        start = pair * 36
        word = int.from_bytes(raw[start // 8 : start // 8 + 6], "little") >> start % 8
        found.append(found[word & 0x3FFFF] + found[word >> 18 & 0x3FFFF])
    return found


def write():
    folder = pathlib.Path(tempfile.mkdtemp())
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens(PACKED.read_bytes()))]
    (folder / NAME).write_bytes(b"".join(lines))
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
