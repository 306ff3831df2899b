//! Tests of the filter lists: the order of the filters, and the loss of a filter's behaviour when it is removed.
#![allow(clippy::unwrap_used)]

use super::response::ResponseBodyFilterChain;
use super::*;
use bytes::Bytes;
use penstock_core::{
    AttemptTarget, BufferedResponse, Dialect, FinishReason, InferenceRequest, OfferCapabilities,
    OfferObservation, OutputBuffer, RequestAdjustment, StreamTranslation, TokenUsage, UpstreamAnswer,
    UpstreamError, WorkDone,
};
use pingora_http::ResponseHeader;

/// Objects of a settlement.
const OBJECTS: &[u8] = br#""billing_cost":{"credits":1}"#;
/// Stream of a provider.
const STREAM: &str = concat!(
    "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,",
    "\"delta\":{\"role\":\"assistant\",\"content\":\"Hello\"},\"finish_reason\":null}]}\n\n",
    "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,",
    "\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
    "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],",
    "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6}}\n\n",
    "data: [DONE]\n\n",
);

/// Response context for tests; its settlement is only recorded.
struct TestResponse {
    reply: Option<Box<dyn StreamTranslation>>,
    noted: usize,
    settled: Vec<WorkDone>,
}

impl TestResponse {
    /// Creates a response whose client and provider speak the same dialect.
    fn new(dialect: Dialect) -> Self {
        let body: &[u8] = match dialect {
            Dialect::Responses => br#"{"model":"m","stream":true,"input":"Hi"}"#,
            _ => br#"{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}"#,
        };
        let limits = penstock_request_validation::RequestLimits::default();
        let ask: InferenceRequest = penstock_request_validation::validate_generation_request(
            dialect,
            Bytes::from_static(body),
            &limits,
        )
        .unwrap();
        let abilities = OfferCapabilities::default();
        let target = AttemptTarget {
            model: "m",
            dialect,
            capabilities: &abilities,
            preset: &[],
            max_tokens: None,
            adjustment: RequestAdjustment::default(),
            answer_model: "m",
            answer_id: "1",
            answer_created: 1,
        };
        let translator = penstock_dialect::find_translator(dialect, dialect).unwrap();
        Self { reply: Some(translator.translate_stream(&ask, &target)), noted: 0, settled: Vec::new() }
    }

    /// Returns the output that a client receives for [`STREAM`] in pieces of this size.
    fn stream<L: ResponseBodyFilterChain>(&mut self, size: usize) -> String {
        let mut out = OutputBuffer::default();
        for piece in STREAM.as_bytes().chunks(size) {
            let upstream = Some(Bytes::from_static(piece));
            let mut piece =
                StreamPiece { upstream, length: piece.len(), end_of_stream: false, downstream: &mut out };
            L::filter_piece(self, &mut piece).unwrap();
        }
        let end = L::finish_stream(self);
        let mut reply = self.reply.take().unwrap();
        reply.write_end(&end.usage.unwrap_or_default(), &end.members, &mut out);
        String::from_utf8(out.0.concat()).unwrap()
    }
}

impl ResponseContext for TestResponse {
    type Error = UpstreamError;

    fn translation(&mut self) -> Option<&mut (dyn StreamTranslation + 'static)> {
        self.reply.as_deref_mut()
    }

    fn record_progress(&mut self, bytes: usize) {
        self.noted += bytes;
    }

    async fn translate(
        &mut self,
        mut upstream: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        Ok(BufferedResponse {
            body: upstream.pop().map(|answer| answer.body).into_iter().collect(),
            work: None,
            provider_work: None,
            measured_energy: None,
            finish_reason: FinishReason::Stop,
            output_bytes: 12,
            images: Vec::new(),
            observation: OfferObservation::default(),
        })
    }

    fn estimate_unreported_usage(&self, output_bytes: usize) -> TokenUsage {
        TokenUsage { output: u64::try_from(output_bytes / 4).unwrap(), ..TokenUsage::default() }
    }

    fn settle(&mut self, metered: ResponseUsage) -> Vec<u8> {
        self.settled.push(metered.charged_work);
        OBJECTS.to_vec()
    }
}

/// Checks that both lists have the order that is documented.
#[test]
fn the_lists_are_complete_and_in_the_documented_order() {
    assert_eq!(
        RequestFilters::NAMES,
        [
            "authenticate",
            "parse",
            "detokenize_input",
            "answer_zero_tokens",
            "admit",
            "candidates",
            "limit",
            "reserve"
        ]
    );
    assert_eq!(ResponseBodyFilters::NAMES, ["translate", "meter", "annotate"]);
    let documentation = include_str!("../../../docs/architecture.md");
    for names in [RequestFilters::NAMES, ResponseBodyFilters::NAMES] {
        let list = names.join(" → ");
        assert!(documentation.contains(&list), "docs/architecture.md lacks {list}");
    }
}

#[test]
fn a_stream_is_the_same_at_every_split() {
    let mut response = TestResponse::new(Dialect::Chat);
    let whole = response.stream::<ResponseBodyFilters>(STREAM.len());
    assert!(whole.contains("Hello") && whole.contains("billing_cost") && whole.ends_with("data: [DONE]\n\n"));
    assert_eq!((response.noted, response.settled.len()), (STREAM.len(), 1));
    for size in 1..STREAM.len() {
        assert_eq!(
            TestResponse::new(Dialect::Chat).stream::<ResponseBodyFilters>(size),
            whole,
            "pieces of {size} bytes"
        );
    }
}

#[test]
fn an_event_of_the_same_dialect_keeps_its_bytes() {
    let mut response = TestResponse::new(Dialect::Messages);
    let events = [
        concat!(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"type\":\"message\",",
            "\"role\":\"assistant\",\"model\":\"m\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,",
            "\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n",
        ),
        concat!(
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,",
            "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        ),
        concat!(
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,",
            "\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
        ),
        concat!(
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,",
            "\"delta\":{\"type\":\"text_delta\",\"text\":\" world\"}}\n\n",
        ),
    ];
    let mut out = OutputBuffer::default();
    for event in events {
        out.0.clear();
        let upstream = Some(Bytes::from_static(event.as_bytes()));
        response_body_filter(&mut response, upstream, false, &mut out).unwrap();
    }
    assert_eq!(out.0, [events[3].as_bytes()]);
}

#[test]
fn a_filter_that_is_left_out_takes_its_behaviour_with_it() {
    let mut response = TestResponse::new(Dialect::Chat);
    let stream = response.stream::<(TranslateResponse, MeterUsage)>(64);
    assert!(stream.contains("Hello") && !stream.contains("billing_cost"));
    assert_eq!(response.settled.len(), 1);

    let mut response = TestResponse::new(Dialect::Chat);
    let stream = response.stream::<(TranslateResponse, AnnotateSettlement)>(64);
    assert!(stream.contains("Hello") && !stream.contains("billing_cost"));
    assert_eq!((response.noted, response.settled.len()), (0, 0));

    // If the response was not settled before, the annotation has no objects to add.
    let stream =
        TestResponse::new(Dialect::Chat).stream::<(TranslateResponse, AnnotateSettlement, MeterUsage)>(64);
    assert!(!stream.contains("billing_cost"));

    let mut response = TestResponse::new(Dialect::Chat);
    let mut out = OutputBuffer::default();
    let upstream = Some(Bytes::from_static(STREAM.as_bytes()));
    let mut piece =
        StreamPiece { upstream, length: STREAM.len(), end_of_stream: false, downstream: &mut out };
    <(MeterUsage, AnnotateSettlement)>::filter_piece(&mut response, &mut piece).unwrap();
    assert!(out.is_empty());
}

#[tokio::test]
async fn a_buffered_body_passes_the_same_filters() {
    let upstream =
        || vec![UpstreamAnswer { body: Bytes::from_static(b"{\"a\":1}"), ..UpstreamAnswer::default() }];
    let mut response = TestResponse::new(Dialect::Chat);
    let body = ResponseBodyFilters::filter_buffered(&mut response, upstream()).await.unwrap();
    assert_eq!(body.downstream.concat(), br#"{"a":1,"billing_cost":{"credits":1}}"#);
    let counted = TokenUsage { output: 3, ..TokenUsage::default() };
    assert_eq!(response.settled, [WorkDone::Tokens(counted)]);
    let body =
        <(TranslateResponse, MeterUsage)>::filter_buffered(&mut TestResponse::new(Dialect::Chat), upstream())
            .await
            .unwrap();
    assert_eq!(body.downstream.concat(), br#"{"a":1}"#);
    let body = <(MeterUsage, AnnotateSettlement)>::filter_buffered(
        &mut TestResponse::new(Dialect::Chat),
        upstream(),
    )
    .await
    .unwrap();
    assert!(body.downstream.is_empty());
}

#[test]
fn without_a_translation_nothing_of_a_provider_passes() {
    let mut response = TestResponse { reply: None, ..TestResponse::new(Dialect::Chat) };
    let mut out = OutputBuffer::default();
    let upstream = Some(Bytes::from_static(STREAM.as_bytes()));
    assert!(response_body_filter(&mut response, upstream, true, &mut out).is_err());
    assert!(out.is_empty());
}

#[test]
fn a_response_head_keeps_the_fields_of_the_allow_list_alone() {
    let mut head = ResponseHeader::build(200, None).unwrap();
    for name in ["x-request-id", "x-penstock-provider", "vary", "set-cookie", "server", "openai-organization"]
    {
        head.append_header(name, "a").unwrap();
    }
    head.append_header("set-cookie", "b").unwrap();
    remove_unlisted_fields(&mut head);
    let names: Vec<_> = head.headers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["x-request-id", "x-penstock-provider", "vary"]);
}
