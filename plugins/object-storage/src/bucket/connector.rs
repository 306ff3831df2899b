//! HTTP client of a bucket: HTTP/1.1 connections with TLS by rustls and ring, and for each request a timeout and a size
//! limit of the response.

use super::options::{BucketOptions, BucketTimeouts};
use super::request_counts::RequestCounters;
use super::store_clock::StoreClock;
use async_trait::async_trait;
use http::header::IF_NONE_MATCH;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector as StoreConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};
use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum bytes of a response: a part of an object, or a page of a list.
const MAX_ANSWER: usize = 8 << 20;
/// Maximum number of idle connections.
const IDLE_CONNECTIONS: usize = 16;
/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// HTTP client for the requests to a bucket.
#[derive(Clone, Debug)]
pub struct BucketHttpClient {
    client: Client<HttpsConnector<HttpConnector>, HttpRequestBody>,
    timeouts: BucketTimeouts,
    counters: Arc<RequestCounters>,
    clock: Arc<StoreClock>,
    /// True if uploads in parts must not replace an object.
    has_conditional_completion: bool,
}

impl BucketHttpClient {
    /// Creates a client.
    ///
    /// # Errors
    /// Returns a description if TLS cannot be set up.
    pub fn new(
        options: &BucketOptions,
        counters: Arc<RequestCounters>,
        clock: Arc<StoreClock>,
    ) -> io::Result<Self> {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(options.timeouts.connect));
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let https = HttpsConnectorBuilder::new().with_tls_config(options.tls_config()?);
        let https = if options.uses_only_tls() { https.https_only() } else { https.https_or_http() };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(https.enable_http1().wrap_connector(tcp));
        Ok(Self { client, timeouts: options.timeouts, counters, clock, has_conditional_completion: false })
    }

    /// Returns a client that completes an upload in parts only if no object of the name exists. The client adds
    /// `If-None-Match: *` itself: the S3 library cannot add this header, and the signature need not cover it.
    #[must_use]
    pub fn with_conditional_completion(self) -> Self {
        Self { has_conditional_completion: true, ..self }
    }

    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.client.request(request).await.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
            HttpError::new(kind, error)
        })?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(body_error)?;
        Ok(Response::from_parts(parts, body.to_bytes().into()))
    }
}

fn body_error(error: Box<dyn Error + Send + Sync>) -> HttpError {
    HttpError::new(HttpErrorKind::Interrupted, io::Error::new(ErrorKind::UnexpectedEof, error.to_string()))
}

#[async_trait]
impl HttpService for BucketHttpClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let method = request.method().clone();
        let is_completion = || request.uri().query().is_some_and(|query| query.contains("uploadId="));
        if self.has_conditional_completion && method == Method::POST && is_completion() {
            request.headers_mut().insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let limit = match method {
            Method::PUT | Method::POST => self.timeouts.upload,
            _ => self.timeouts.request,
        };
        let answer = tokio::time::timeout(limit, self.exchange(request)).await.unwrap_or_else(|_| {
            let cause = io::Error::new(ErrorKind::TimedOut, "it did not answer in time");
            Err(HttpError::new(HttpErrorKind::Timeout, cause))
        });
        let status: Option<StatusCode> = answer.as_ref().ok().map(Response::status);
        self.counters.record(&method, status);
        // The token service gets only POST requests, so an answer to a GET request comes from the object store.
        if let Ok(answer) = &answer
            && method == Method::GET
        {
            self.clock.record_date(answer.headers(), Instant::now());
        }
        answer
    }
}

impl StoreConnector for BucketHttpClient {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}
