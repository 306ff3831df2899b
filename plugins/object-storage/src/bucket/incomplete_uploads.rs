//! Uploads in parts that were not completed, such as those of a process that was killed. Their parts take space that no
//! list of objects shows.

use super::Bucket;
use super::connector::BucketHttpClient;
use super::error::{BucketError, is_temporary_status};
use super::listing::object_name_from_key;
use super::options::{AddressingStyle, BucketOptions};
use http::{Method, Request};
use object_store::aws::{AmazonS3, AwsAuthorizer};
use object_store::client::{HttpRequestBody, HttpService};
use object_store::multipart::MultipartStore;
use std::io::Result;

/// Upload in parts that is not complete.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IncompleteUpload {
    /// Name of the object.
    pub name: String,
    /// ID that the store assigned to the upload.
    pub id: String,
}

/// Client for lists of incomplete uploads, an operation that the S3 client lacks.
#[derive(Clone)]
pub(super) struct IncompleteUploadLister {
    connector: BucketHttpClient,
    /// URL of the bucket.
    url: String,
    region: String,
}

impl IncompleteUploadLister {
    /// Creates a lister for the bucket of these options.
    pub(super) fn new(options: &BucketOptions, connector: BucketHttpClient) -> Self {
        let base = options.base_url();
        let url = match options.style {
            AddressingStyle::Path => format!("{base}/{}", options.bucket),
            AddressingStyle::VirtualHost => format!("{base}/"),
        };
        Self { connector, url, region: options.region.clone() }
    }

    /// Returns the XML of the first page of the list of a folder's incomplete uploads.
    async fn list(&self, store: &AmazonS3, folder: &str) -> std::result::Result<String, BucketError> {
        let failed = |what: &str| BucketError::Unreachable(what.to_owned());
        let credential = store.credentials().get_credential().await.map_err(BucketError::from)?;
        let url = format!("{}?prefix={}%2F&uploads=", self.url, folder.replace('/', "%2F"));
        let mut request = Request::builder()
            .method(Method::GET)
            .uri(url)
            .body(HttpRequestBody::empty())
            .map_err(|_| failed("its address cannot be used"))?;
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .try_authorize(&mut request, None)
            .map_err(BucketError::from)?;
        let (parts, body) =
            self.connector.call(request).await.map_err(|_| failed("the connection failed"))?.into_parts();
        match parts.status.as_u16() {
            200 => {}
            status if is_temporary_status(status) => return Err(failed(&format!("status {status}"))),
            status => return Err(BucketError::Refused(format!("status {status}"))),
        }
        let bytes = body.bytes().await.map_err(|_| failed("the answer broke off"))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Bucket {
    /// Returns the incomplete uploads of objects below a folder, at most a page.
    ///
    /// # Errors
    /// Returns any I/O error; one of `PermissionDenied` if the store does not list uploads.
    pub fn list_incomplete_uploads(&self, folder: &str) -> Result<Vec<IncompleteUpload>> {
        let (path, lister) = (self.path(folder)?, self.0.uploads.clone());
        let listed = self.call_with(move |store| async move { lister.list(&store, path.as_ref()).await })?;
        let uploads = parse(&listed);
        let named = uploads.filter_map(|(key, id)| {
            let name = object_name_from_key(&self.0.prefix, key)?;
            Some(IncompleteUpload { name: name.to_owned(), id: id.to_owned() })
        });
        Ok(named.collect())
    }

    /// Aborts an incomplete upload, and deletes its parts; a missing upload is no error.
    ///
    /// # Errors
    /// Returns any I/O error.
    pub fn abort_upload(&self, upload: &IncompleteUpload) -> Result<()> {
        let (path, id) = (self.path(&upload.name)?, upload.id.clone());
        match self.call(move |store| async move { store.abort_multipart(&path, &id).await }) {
            Ok(()) | Err(BucketError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the keys and IDs of a list. Names of objects contain no characters that are escaped in XML or in a URL, so
/// nothing is unescaped.
fn parse(xml: &str) -> impl Iterator<Item = (&str, &str)> {
    let uploads = xml.split("<Upload>").skip(1);
    uploads.filter_map(|upload| {
        let text = |start: &str, end: &str| Some(upload.split_once(start)?.1.split_once(end)?.0);
        Some((text("<Key>", "</Key>")?, text("<UploadId>", "</UploadId>")?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_upload_of_a_list_is_found() {
        let upload = |key: &str, id: &str| {
            format!(
                "<Upload><Initiator><ID>x</ID></Initiator><Key>{key}</Key><UploadId>{id}</UploadId></Upload>"
            )
        };
        let head = "<ListMultipartUploadsResult><Bucket>b</Bucket><NextKeyMarker>a/z</NextKeyMarker>";
        let xml = format!("{head}{}{}<Upload><Key>c", upload("a/1", "u-1"), upload("a/2", "u.2=="));
        assert_eq!(parse(&xml).collect::<Vec<_>>(), [("a/1", "u-1"), ("a/2", "u.2==")]);
        assert_eq!(parse("").count() + parse(head).count(), 0);
    }
}
