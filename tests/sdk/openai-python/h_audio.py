"""Transcripts: every form, through a provider that fails and the next."""

import io
import json
import wave

import openai
from harness import KEY, URL, raises, has_metadata

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)
# The cheaper provider closes before its head, so that each upload goes out twice.
MODEL = "listener:price"


def sound(seconds):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\x01\x02" * int(8000 * seconds))
    return buffer.getvalue()


def write_down(**more):
    file = more.pop("file", ("song.mp3", sound(6)))
    return client.audio.transcriptions.create(**{"model": MODEL, "file": file, **more})


def used(answer):
    """The usage, of which the older client makes a plain dictionary."""
    usage = answer.usage
    return usage if isinstance(usage, dict) else usage.model_dump(exclude_none=True)


def test_json_is_the_default_and_has_both_objects():
    answer = write_down(language="en", prompt="Names: Penstock", temperature=0)
    assert "simulated" in answer.text and has_metadata(answer)
    assert used(answer) == {"type": "duration", "seconds": 6}
    # Six seconds at 0.006 EUR a minute.
    assert answer.billing_cost["credits"] == 0.06, answer.billing_cost


def test_text_and_subtitles_are_strings_with_headers():
    for form in ["text", "srt", "vtt"]:
        answer = write_down(response_format=form)
        assert isinstance(answer, str) and "simulated" in answer, form
        if form != "text":
            assert answer.count(" --> ") == 2 and answer.startswith("WEBVTT" if form == "vtt" else "1\n"), answer
        raw = client.audio.transcriptions.with_raw_response.create(
            model=MODEL, file=("a", sound(6)), response_format=form
        )
        impact = json.loads(raw.headers["x-environment-impact"])
        assert impact["energy_kwh"] > 0 and impact["provider_id"] == "sdk-turku"
        assert json.loads(raw.headers["x-billing-cost"])["credits"] == 0.06


def test_verbose_has_segments_and_words():
    answer = write_down(response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert len(answer.segments) == 2 and float(answer.duration) == 6 and has_metadata(answer)
    assert answer.segments[0].start == 0 and answer.segments[1].end == 6
    assert answer.words[0].word and answer.words[-1].end <= 6.01


def test_a_name_counts_for_nothing_and_bytes_for_all():
    assert used(write_down(file=("document.pdf", sound(1), "application/pdf")))["seconds"] == 1
    error = raises(openai.BadRequestError, write_down, file=("a.wav", b"no sound, whatever the name says"))
    assert error.param == "file" and "WAV" in str(error), error


def test_a_large_file_passes():
    assert used(write_down(file=("long.wav", sound(600))))["seconds"] == 600


def test_what_is_wrong_is_named():
    for more, field in [
        ({"language": "english"}, "language"),
        ({"response_format": "diarized_json"}, "response_format"),
        ({"file": ("a.wav", b"")}, "file"),
        ({"model": "painter"}, "model"),
    ]:
        error = raises(openai.BadRequestError, write_down, **more)
        assert error.param == field, error
