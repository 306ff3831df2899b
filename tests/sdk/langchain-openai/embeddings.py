"""LangChain's embeddings: by default it sends token ids of a vocabulary that is not the model's."""

import math

import openai
import vocabulary
from harness import KEY, URL, raises
from langchain_openai import OpenAIEmbeddings

vocabulary.write()
TEXTS = ["The river bends.", "A gate of steel", "Grüße 🌊", "Zażółć gęślą jaźń\n\nline"]


def embeddings(model="vectors", **more):
    return OpenAIEmbeddings(model=model, api_key=KEY, base_url=f"{URL}/v1", **more)


def near(one, other):
    return len(one) == len(other) and all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(one, other))


def test_token_ids_and_texts_give_the_same_vectors():
    by_ids = embeddings().embed_documents(TEXTS)
    by_text = embeddings(check_embedding_ctx_length=False).embed_documents(TEXTS)
    assert len(by_ids) == len(TEXTS) and len(by_ids[0]) == 1024
    assert all(near(one, other) for one, other in zip(by_ids, by_text))


def test_a_query_is_the_vector_of_its_text():
    assert near(embeddings().embed_query(TEXTS[0]), embeddings().embed_documents([TEXTS[0]])[0])


def test_many_documents_keep_their_order():
    many = [f"text number {number}" for number in range(50)]
    together = embeddings(chunk_size=20).embed_documents(many)
    for number in [0, 19, 20, 49]:
        assert near(together[number], embeddings().embed_query(many[number])), number


def test_a_text_that_the_client_cuts_in_pieces():
    # Pieces of five tokens; the client averages their vectors. Characters may be cut apart.
    vector = embeddings(embedding_ctx_length=5).embed_query("Grüße 🌊🦦🌊🦦 und noch viel mehr Text, Zażółć gęślą jaźń")
    assert len(vector) == 1024 and math.isclose(sum(value * value for value in vector), 1, abs_tol=1e-3)


def test_dimensions_and_aliases():
    assert len(embeddings("text-embedding-3-small", dimensions=64).embed_query("x")) == 64


def test_errors_are_the_clients_own():
    error = raises(openai.NotFoundError, embeddings("nothing").embed_query, "x")
    assert error.code == "INFERENCE_3101"
