"""lm-eval measures log-likelihoods over text completions, and generates over text completions and chat completions."""

import json
import os
import pathlib
import tempfile

from harness import KEY, URL

FOLDER = pathlib.Path(tempfile.mkdtemp())
os.environ.update(OPENAI_API_KEY=KEY, HF_HOME=str(FOLDER), HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
import lm_eval  # noqa: E402
import tiktoken  # noqa: E402
import vocabulary  # noqa: E402
import word_tokenizer  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

# The log probability of a token that a simulated provider invents depends on its length alone, so the shortest choice
# is the right one.
QUESTIONS = [
    {"question": "Where does the water fall?", "choices": ["in a deep penstock", "a hill"], "answer": 1},
    {"question": "What turns?", "choices": ["a wheel", "an extraordinarily large wheel"], "answer": 0},
    {"question": "Who listens?", "choices": ["nobody who was asked", "a gate of steel", "we"], "answer": 2},
]
DATA = FOLDER / "questions.jsonl"
DATA.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS))
CHOICES = [[f" {choice}" for choice in question["choices"]] for question in QUESTIONS]
PROMPT = "Question: {{question}}\nAnswer:"
TEXTS = [PROMPT.replace("{{question}}", question["question"]) for question in QUESTIONS]
TOKENIZER = word_tokenizer.write([*TEXTS, *(question["question"] for question in QUESTIONS), *sum(CHOICES, [])])
# Without the tasks that lm-eval has, which it would read from thousands of files.
TASKS = TaskManager(include_defaults=False)
vocabulary.write()


def task(kind, metric, **more):
    return {
        "task": kind,
        "output_type": kind,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(DATA)}},
        "test_split": "test",
        "metric_list": [{"metric": metric}],
        **more,
    }


CHOICE = task("multiple_choice", "acc", doc_to_text=PROMPT, doc_to_choice="choices", doc_to_target="answer")
ROLLING = task("loglikelihood_rolling", "word_perplexity", doc_to_text="", doc_to_target="{{question}}")
GENERATION = task(
    "generate_until",
    "exact_match",
    doc_to_text=PROMPT,
    doc_to_target="This is a simulated",
    generation_kwargs={"until": ["\n\n", " answer"], "max_gen_toks": 24},
)


def evaluated(config, kind="completions", batch_size=1, **more):
    """The metrics and the answers of one task. No request is repeated."""
    path = kind.replace("-", "/")
    got = lm_eval.simple_evaluate(
        model=f"local-{kind}",
        model_args={"model": "base", "base_url": f"{URL}/v1/{path}", "max_retries": 1, **more},
        tasks=[config],
        task_manager=TASKS,
        apply_chat_template=kind.startswith("chat"),
        batch_size=batch_size,
        bootstrap_iters=0,
    )
    name = config["task"]
    samples = sorted(got["samples"][name], key=lambda sample: sample["doc_id"])
    metrics = {key.split(",")[0]: value for key, value in got["results"][name].items()}
    return metrics, [sample["filtered_resps"] for sample in samples]


def are_right(result, shown):
    """Checks the log-likelihoods of all choices. `shown` splits a choice into tokens as the provider shows them."""
    metrics, answers = result
    assert metrics["acc"] == 1.0, answers
    found = [[round(float(value), 6) for value, _ in choices] for choices in answers]
    expected = [
        [round(sum(-0.01 * (len(token.encode()) + 1) for token in shown(choice)), 6) for choice in choices]
        for choices in CHOICES
    ]
    assert found == expected, (found, expected)
    return True


def ids(encode):
    """Tokens of which only the ids are sent."""
    return lambda text: [f"<{number}>" for number in encode(text)]


def words(text):
    return [f" {word}" for word in text.split()]


def test_log_likelihoods_of_token_ids():
    # The defaults: lm-eval asks whether the server has a tokenizer, uses that of the model if not, and sends ids.
    assert are_right(evaluated(CHOICE, tokenizer=TOKENIZER), ids(AutoTokenizer.from_pretrained(TOKENIZER).encode))


def test_log_likelihoods_of_texts():
    assert are_right(evaluated(CHOICE, tokenizer=TOKENIZER, tokenized_requests=False), words)


def test_log_likelihoods_with_a_vocabulary_of_openai():
    model = "gpt-3.5-turbo-instruct"
    result = evaluated(CHOICE, model=model, tokenizer_backend="tiktoken")
    assert are_right(result, ids(tiktoken.encoding_for_model(model).encode))


def test_batches_and_concurrent_requests_give_the_same_log_likelihoods():
    encode = AutoTokenizer.from_pretrained(TOKENIZER).encode
    for more in [{"batch_size": 4}, {"num_concurrent": 3}, {"batch_size": 2, "num_concurrent": 2}]:
        assert are_right(evaluated(CHOICE, tokenizer=TOKENIZER, **more), ids(encode)), more
        assert are_right(evaluated(CHOICE, tokenizer=TOKENIZER, tokenized_requests=False, **more), words), more


def test_the_perplexity_of_texts():
    metrics, _ = evaluated(ROLLING, tokenizer=TOKENIZER)
    assert 1.03 < metrics["word_perplexity"] < 1.06, metrics


def test_completions_end_at_a_stop_sequence():
    for more in [{}, {"tokenized_requests": False}, {"batch_size": 3}, {"num_concurrent": 3}]:
        metrics, answers = evaluated(GENERATION, tokenizer=TOKENIZER, **more)
        assert metrics["exact_match"] == 1.0, (more, answers)


def test_chat_completions_end_at_a_stop_sequence():
    for model in ["small-chat", "native"]:
        for more in [{}, {"num_concurrent": 3}]:
            metrics, answers = evaluated(GENERATION, "chat-completions", model=model, **more)
            assert metrics["exact_match"] == 1.0, (model, more, answers)
