//! Translation of response bodies from the dialect of the provider to that of the client.

use super::response::{BufferedBody, ResponseBodyFilter, ResponseContext, StreamPiece};
use penstock_core::{UpstreamError, UpstreamErrorKind};

/// Filter that translates a response body. If there is no translation, it passes no byte of a provider on.
pub struct TranslateResponse;

impl ResponseBodyFilter for TranslateResponse {
    const NAME: &'static str = "translate";

    fn filter_piece<C: ResponseContext>(
        context: &mut C,
        piece: &mut StreamPiece<'_>,
    ) -> Result<(), UpstreamError> {
        let upstream = piece.upstream.take();
        let Some(reply) = context.translation() else {
            return Err(UpstreamError::new(UpstreamErrorKind::Malformed));
        };
        if let Some(upstream) = upstream {
            reply.push(upstream, piece.downstream)?;
        }
        if piece.end_of_stream { reply.end(piece.downstream) } else { Ok(()) }
    }

    async fn filter_buffered<C: ResponseContext>(
        context: &mut C,
        body: &mut BufferedBody,
    ) -> Result<(), C::Error> {
        let upstream = std::mem::take(&mut body.upstream);
        let mut translated = context.translate(upstream).await?;
        body.downstream = std::mem::take(&mut translated.body);
        body.translated = Some(translated);
        Ok(())
    }
}
