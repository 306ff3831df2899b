"""Text completions, speech and moderation."""

import io
import json
import wave

import openai
from harness import KEY, URL, raises, has_metadata

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)


def complete(**more):
    return client.completions.create(**{"model": "base", "prompt": "Once upon a time", "max_tokens": 12, **more})


def test_a_completion_has_both_objects():
    answer = complete(temperature=0, seed=7)
    assert answer.object == "text_completion" and answer.choices[0].text and has_metadata(answer)
    assert answer.usage.completion_tokens == 12


def test_several_prompts_give_several_choices_in_order():
    answer = complete(prompt=["One", "Two"], n=2, echo=True)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert [choice.text[:3] for choice in answer.choices] == ["One", "One", "Two", "Two"]


def test_the_log_likelihood_of_token_ids():
    # As lm-eval asks for it.
    answer = complete(prompt=[[5, 6, 7, 8]], max_tokens=1, logprobs=1, echo=True, temperature=0, seed=1234)
    logprobs = answer.choices[0].logprobs
    assert len(logprobs.token_logprobs) == 5 and logprobs.token_logprobs[0] is None
    assert sum(logprobs.token_logprobs[2:-1]) < 0
    assert len(logprobs.top_logprobs) == 5 and isinstance(logprobs.top_logprobs[3], dict)


def test_a_stream_of_text_ends_with_usage_and_both_objects():
    chunks = list(complete(stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert chunks[-1].usage.completion_tokens == 12 and has_metadata(chunks[-1])
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_what_a_provider_without_the_endpoint_cannot_do_is_named():
    assert complete(model="small-chat").choices[0].text
    error = raises(openai.BadRequestError, complete, model="small-chat", echo=True)
    assert error.param == "echo", error


def test_speech_is_audio_with_headers():
    text = "A penstock is a pipe that leads water to a mill."
    raw = client.audio.speech.with_raw_response.create(
        model="speaker", voice="alloy", input=text, response_format="wav"
    )
    audio = raw.content
    with wave.open(io.BytesIO(audio)) as file:
        seconds = file.getnframes() / file.getframerate()
    assert raw.headers["content-type"] == "audio/wav"
    assert json.loads(raw.headers["x-billing-cost"])["credits"] == seconds
    assert json.loads(raw.headers["x-environment-impact"])["energy_kwh"] > 0


def test_moderation_has_a_result_for_each_text():
    answer = client.moderations.create(model="guard", input=["a pipe", "much harm"])
    assert [result.flagged for result in answer.results] == [False, True] and has_metadata(answer)
