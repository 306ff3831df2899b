//! Request `POST /moderations` of hosts that classify texts. The results pass as the provider wrote them, since the
//! categories are the model's own.

use crate::answer_usage::AnswerUsage;
use crate::cursor::EmbeddingJsonCursor;
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

/// Reads a result object and checks the types of its known members. `flagged` or `categories` is required, because
/// clients read an empty result as harmless. The names of the categories depend on the model and are not checked.
fn check_result(cursor: &mut EmbeddingJsonCursor<'_>) -> Option<()> {
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
        let mut body = vec![Bytes::from([br#"{"model":"#, json_string(target.model).as_slice()].concat())];
        body.push(Bytes::from_static(br#","input":"#));
        write_json_array(&task.texts, &mut body);
        body.push(Bytes::from_static(b"}"));
        Ok(vec![UpstreamRequest::json(body)])
    }

    fn translate(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
        mut answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
        let task = task(ask).ok_or_else(malformed)?;
        let answer = answers.pop().map(|answer| answer.body).ok_or_else(malformed)?;
        let mut reported = AnswerUsage::default();
        let (mut results, mut count, mut error) = (None, 0, false);
        let mut cursor = EmbeddingJsonCursor::new(&answer);
        let read = cursor.read_object(|key, cursor| {
            match key {
                "results" if results.is_none() => {
                    let start = cursor.position();
                    cursor.read_array(|cursor| {
                        count += 1;
                        check_result(cursor)
                    })?;
                    results = Some(start..cursor.position());
                }
                "error" => error |= cursor.read_value_bytes()? != b"null",
                _ => reported.read_member(key, cursor.read_value_bytes()?),
            }
            Some(())
        });
        if error {
            return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
        }
        let results = read.filter(|()| cursor.is_at_end()).and(results).ok_or_else(malformed)?;
        if count != task.texts.len() {
            return Err(malformed());
        }
        let usage = reported.to_token_usage(ask, target);
        let model = json_string(target.answer_model);
        let head: [&[u8]; 5] =
            [br#"{"id":"modr-"#, target.id.as_bytes(), br#"","model":"#, &model, br#","results":"#];
        let tail = format!(r#","usage":{{"prompt_tokens":{0},"total_tokens":{0}}}}}"#, usage.input);
        Ok(BufferedResponse {
            body: vec![Bytes::from(head.concat()), answer.slice(results), Bytes::from(tail)],
            work: Some(WorkDone::Tokens(usage)),
            measured_energy: reported.measured,
            finish_reason: FinishReason::Stop,
            output_bytes: 0,
            images: Vec::new(),
            observation: OfferObservation::default(),
        })
    }
}
