//! Request `POST /moderations` of hosts that classify texts. The results pass as the provider wrote them, since the
//! categories are the model's own; a missing `flagged` is added.

use crate::answer_usage::AnswerUsage;
use crate::cursor::AnswerJsonCursor;
use crate::json_text::{json_string, write_json_array};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, FinishReason, InferenceRequest, InferenceTask, ModelKind,
    OfferObservation, PassthroughTask, ProviderAdapter, UpstreamAnswer, UpstreamError, UpstreamErrorKind,
    UpstreamRequest, WorkDone,
};
use penstock_json_scan::tape::is_interoperable;

/// Adapter for moderation with the OpenAI API.
#[derive(Clone, Copy, Debug)]
pub struct OpenAiModeration;

fn task(ask: &InferenceRequest) -> Option<&PassthroughTask> {
    match &ask.task {
        InferenceTask::Passthrough(task) => Some(task),
        _ => None,
    }
}

/// Splits the texts into batches that the provider accepts.
fn text_batches<'a>(task: &'a PassthroughTask, target: &AttemptTarget<'_>) -> std::slice::Chunks<'a, Bytes> {
    let all = &task.texts;
    all.chunks(target.capabilities.max_inputs.unwrap_or(all.len()).max(1))
}

/// Results of one answer with the reported usage.
struct ModerationResults {
    /// Elements of the list, without its brackets.
    elements: Vec<Bytes>,
    usage: AnswerUsage,
}

/// Reads an answer with one result for each of the `count` texts.
///
/// # Errors
/// Returns `InBandError` for an error object; `Malformed` for another number of results or an invalid one.
fn read(answer: &Bytes, count: usize) -> Result<ModerationResults, UpstreamError> {
    let mut usage = AnswerUsage::default();
    let (mut list, mut found, mut error) = (None, 0, false);
    // Results without `flagged`: the offset after the opening brace, and the verdict.
    let mut derived: Vec<(usize, bool)> = Vec::new();
    let mut cursor = AnswerJsonCursor::new(answer);
    let read = cursor.read_object(|key, cursor| {
        match key {
            // Parsers disagree on which of two lists counts.
            "results" if list.is_some() => return None,
            "results" => {
                let (mut start, mut end) = (None, cursor.position());
                cursor.read_array(|cursor| {
                    let element = cursor.position();
                    start.get_or_insert(element);
                    found += 1;
                    if let ResultVerdict::Derived(flagged) = read_result(cursor)? {
                        derived.push((element + 1, flagged));
                    }
                    end = cursor.position();
                    Some(())
                })?;
                list = Some(start.unwrap_or(end)..end);
            }
            "error" => error |= cursor.read_value_bytes()? != b"null",
            _ => usage.read_member(key, cursor.read_value_bytes()?),
        }
        Some(())
    });
    if error {
        return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
    }
    let list = read.filter(|()| cursor.is_at_end() && found == count).and(list);
    let list = list.ok_or_else(|| UpstreamError::new(UpstreamErrorKind::Malformed))?;
    let (mut elements, mut copied) = (Vec::with_capacity(1 + 2 * derived.len()), list.start);
    for (offset, flagged) in derived {
        elements.push(answer.slice(copied..offset));
        let member: &[u8] = if flagged { br#""flagged":true,"# } else { br#""flagged":false,"# };
        elements.push(Bytes::from_static(member));
        copied = offset;
    }
    elements.push(answer.slice(copied..list.end));
    Ok(ModerationResults { elements, usage })
}

/// Verdict of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultVerdict {
    /// Result with a member `flagged`.
    Stated,
    /// Result without this member, which Mistral leaves out: true if any category is true.
    Derived(bool),
}

/// Reads a result object and checks its JSON and the types of its known members; `None` if it is invalid. `flagged` or
/// a category is required, because clients read a result without a verdict as harmless. The names of the categories
/// depend on the model and are not checked.
fn read_result(cursor: &mut AnswerJsonCursor<'_>) -> Option<ResultVerdict> {
    let value = cursor.read_value_bytes()?;
    let mut has_flagged = false;
    let mut categories: Vec<&[u8]> = Vec::new();
    AnswerJsonCursor::new(value).read_object(|key, cursor| {
        match key {
            "flagged" => {
                has_flagged = true;
                matches!(cursor.read_value_bytes()?, b"true" | b"false").then_some(())
            }
            "categories" => cursor.read_object(|_, cursor| {
                let category = cursor.read_value_bytes()?;
                categories.push(category);
                // OpenAI declares some categories as nullable.
                matches!(category, b"true" | b"false" | b"null").then_some(())
            }),
            "category_scores" => cursor.read_object(|_, cursor| {
                let score = cursor.read_value_bytes()?;
                matches!(score, [b'-' | b'0'..=b'9', ..] | b"null").then_some(())
            }),
            _ => cursor.read_value_range().map(drop),
        }
    })?;
    let verdict = match categories.as_slice() {
        _ if has_flagged => ResultVerdict::Stated,
        categories if categories.contains(&&b"true"[..]) => ResultVerdict::Derived(true),
        [] => return None,
        categories if categories.contains(&&b"null"[..]) => return None,
        _ => ResultVerdict::Derived(false),
    };
    is_interoperable(value).then_some(verdict)
}

impl ProviderAdapter for OpenAiModeration {
    fn kind(&self) -> ModelKind {
        ModelKind::Moderation
    }

    fn name(&self) -> &'static str {
        "openai"
    }

    fn path(&self) -> &'static str {
        "/moderations"
    }

    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let task = task(ask).ok_or_else(|| ApiError::invalid("input", "input: expected texts."))?;
        let call = |texts: &[Bytes]| {
            let head = [br#"{"model":"#, json_string(target.model).as_slice(), br#","input":"#].concat();
            let mut body = vec![Bytes::from(head)];
            write_json_array(texts, &mut body);
            body.push(Bytes::from_static(b"}"));
            UpstreamRequest::from_json(body)
        };
        Ok(text_batches(task, target).map(call).collect())
    }

    fn translate(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
        let task = task(ask).ok_or_else(malformed)?;
        let batches = text_batches(task, target);
        if answers.len() != batches.len() {
            return Err(malformed());
        }
        let model = json_string(target.answer_model);
        let head: [&[u8]; 5] =
            [br#"{"id":"modr-"#, target.answer_id.as_bytes(), br#"","model":"#, &model, br#","results":["#];
        let mut body = vec![Bytes::from(head.concat())];
        let mut usages = Vec::with_capacity(answers.len());
        for (texts, answer) in batches.zip(answers) {
            let results = read(&answer.body, texts.len())?;
            if !usages.is_empty() {
                body.push(Bytes::from_static(b","));
            }
            body.extend(results.elements);
            usages.push(results.usage);
        }
        let reported = AnswerUsage::sum(usages);
        let usage = reported.to_token_usage(ask, target);
        let tail = format!(r#"],"usage":{{"prompt_tokens":{0},"total_tokens":{0}}}}}"#, usage.input);
        body.push(Bytes::from(tail));
        Ok(BufferedResponse {
            body,
            work: Some(WorkDone::Tokens(usage)),
            provider_work: None,
            measured_energy: reported.measured,
            finish_reason: FinishReason::Stop,
            output_bytes: 0,
            images: Vec::new(),
            observation: OfferObservation::default(),
        })
    }
}
