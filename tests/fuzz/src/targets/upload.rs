//! Uploads of batch files and of audio: the result does not depend on the cuts, names are valid, errors name a part.

use crate::however_cut;
use bytes::Bytes;
use penstock_batch::upload_form;
use penstock_core::ApiError;
use penstock_media::speech;

const TYPE: &str = "multipart/form-data; boundary=XyZ";

fn file(pieces: &[&[u8]]) -> Result<(upload_form::UploadFields, Vec<u8>), ApiError> {
    let mut upload = upload_form::UploadParser::new(TYPE)?;
    let mut contents = Vec::new();
    for piece in pieces {
        upload.push(Bytes::copy_from_slice(piece), &mut contents)?;
    }
    Ok((upload.end()?, contents.concat()))
}

fn sound(pieces: &[&[u8]]) -> Result<(String, Vec<u8>), ApiError> {
    let mut upload = speech::TranscriptionFormParser::new(TYPE)?;
    let mut contents = Vec::new();
    for piece in pieces {
        upload.push(Bytes::copy_from_slice(piece), &mut contents)?;
    }
    let (model, asked) = upload.end()?;
    Ok((format!("{model} {asked:?}"), contents.concat()))
}

pub fn check(bytes: &[u8]) {
    match however_cut(bytes, file) {
        Ok((uploaded, contents)) => {
            assert!(contents.len() <= bytes.len());
            let name = &uploaded.filename;
            assert!(!name.is_empty() && name.len() <= 255 && !name.contains(['/', '\\', '\0', '\n']));
            assert!(
                uploaded
                    .expires_after
                    .is_none_or(|seconds| upload_form::ALLOWED_LIFETIME_SECONDS.contains(&seconds))
            );
        }
        Err(refusal) => assert!(refusal.param.is_some() && refusal.message.len() < 1_024),
    }
    if let Ok((_, contents)) = however_cut(bytes, sound) {
        assert!(contents.len() <= bytes.len());
    }
}
