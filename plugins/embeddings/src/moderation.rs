//! Request `POST /moderations` of hosts that classify texts. The results pass as the provider wrote them, since the
//! categories are the model's own.

use crate::answer_usage::AnswerUsage;
use crate::cursor::AnswerJsonCursor;
use crate::json_text::{json_string, write_json_array};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, FinishReason, InferenceRequest, InferenceTask, ModelKind,
    OfferObservation, PassthroughTask, ProviderAdapter, UpstreamAnswer, UpstreamError, UpstreamErrorKind,
    UpstreamRequest, WorkDone,
};

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

/// Results of one answer, as the provider wrote them, with the reported usage.
struct ModerationResults {
    /// Elements of the list, without its brackets.
    elements: Bytes,
    usage: AnswerUsage,
}

/// Reads an answer with one result for each of the `count` texts.
///
/// # Errors
/// Returns `InBandError` for an error object; `Malformed` for another number of results or an invalid one.
fn read(answer: &Bytes, count: usize) -> Result<ModerationResults, UpstreamError> {
    let mut usage = AnswerUsage::default();
    let (mut list, mut found, mut error) = (None, 0, false);
    let mut cursor = AnswerJsonCursor::new(answer);
    let read = cursor.read_object(|key, cursor| {
        match key {
            "results" if list.is_none() => {
                let (mut start, mut end) = (None, cursor.position());
                cursor.read_array(|cursor| {
                    start.get_or_insert(cursor.position());
                    found += 1;
                    check_result(cursor)?;
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
    Ok(ModerationResults { elements: answer.slice(list), usage })
}

/// Reads a result object and checks the types of its known members; `None` if it is invalid. `flagged` or `categories`
/// is required, because clients read an empty result as harmless. The names of the categories depend on the model and
/// are not checked.
fn check_result(cursor: &mut AnswerJsonCursor<'_>) -> Option<()> {
    let mut has_verdict = false;
    cursor.read_object(|key, cursor| {
        let value = cursor.read_value_bytes()?;
        let is_valid = match key {
            "flagged" => {
                has_verdict = true;
                matches!(value, b"true" | b"false")
            }
            "categories" => {
                has_verdict = true;
                value.first() == Some(&b'{')
            }
            "category_scores" => value.first() == Some(&b'{'),
            _ => true,
        };
        is_valid.then_some(())
    })?;
    has_verdict.then_some(())
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
            body.push(results.elements);
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
