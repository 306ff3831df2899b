"""LangChain's model for text completions."""

from harness import KEY, URL
from langchain_openai import OpenAI


def model(name="base", **more):
    return OpenAI(model=name, api_key=KEY, base_url=f"{URL}/v1", max_tokens=24, max_retries=0, **more)


def test_a_prompt_is_completed():
    assert model().invoke("Once upon a time")
    assert model("small-chat").invoke("Once upon a time")


def test_prompts_of_a_batch_go_in_one_request():
    result = model(n=2, best_of=2).generate(["One", "Two", "Three"])
    assert [len(texts) for texts in result.generations] == [2, 2, 2]
    assert result.llm_output["token_usage"]["completion_tokens"] > 0


def test_a_stream_comes_in_pieces():
    assert len(list(model().stream("Once upon a time"))) > 2
