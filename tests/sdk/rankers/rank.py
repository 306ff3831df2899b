"""Rankers of LlamaIndex and Haystack, and LlamaIndex's model for compatible services."""

import importlib.util

from harness import KEY, URL

LLAMA = importlib.util.find_spec("llama_index") is not None
TEXTS = ["A red apple.", "Rivers bend because of erosion.", "A green pear."]
QUERY = "Why do rivers bend?"


def test_llama_index_ranks_its_nodes():
    if not LLAMA:
        return
    from llama_index.core.schema import NodeWithScore, TextNode
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    ranker = CohereRerank(model="order", api_key=KEY, base_url=URL, top_n=2)
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
    ranked = ranker.postprocess_nodes(nodes, query_str=QUERY)
    assert len(ranked) == 2 and ranked[0].score >= ranked[1].score


def test_llama_index_speaks_to_its_model():
    if not LLAMA:
        return
    from llama_index.llms.openai_like import OpenAILike

    model = OpenAILike(model="small-chat", api_base=f"{URL}/v1", api_key=KEY, is_chat_model=True)
    assert "simulated" in model.complete("Hello").text


def test_llama_index_completes_texts_by_default():
    if not LLAMA:
        return
    from llama_index.llms.openai_like import OpenAILike

    # Its default is `/v1/completions`. `small-chat` has no such endpoint at its providers, and is asked in chat.
    for name in ["base", "small-chat"]:
        model = OpenAILike(model=name, api_base=f"{URL}/v1", api_key=KEY, max_tokens=32)
        assert model.complete("Hello").text, name
        assert "".join(piece.delta for piece in model.stream_complete("Hello")), name
    assert "simulated" in "".join(piece.delta for piece in model.stream_complete("Hello"))


def test_haystack_ranks_its_documents():
    if LLAMA:
        return
    from haystack import Document
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.cohere import CohereRanker

    ranker = CohereRanker(model="order", api_key=Secret.from_token(KEY), api_base_url=URL, top_k=2)
    ranked = ranker.run(query=QUERY, documents=[Document(content=text) for text in TEXTS])["documents"]
    assert len(ranked) == 2 and ranked[0].score >= ranked[1].score


def test_haystack_streams_with_usage():
    if LLAMA:
        return
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.utils import Secret

    pieces = []
    generator = OpenAIChatGenerator(
        model="small-chat",
        api_key=Secret.from_token(KEY),
        api_base_url=f"{URL}/v1",
        streaming_callback=lambda piece: pieces.append(piece.content),
    )
    reply = generator.run([ChatMessage.from_user("Hello")])["replies"][0]
    assert "simulated" in reply.text and "simulated" in "".join(pieces)
