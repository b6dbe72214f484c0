//! Turns the content that a server sends into the output of a tool, within bounds.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use sabir_agent::ToolOutput;
use sabir_call::Image;

use crate::limits::{MAX_IMAGE_BYTES, MAX_IMAGES, MAX_RESULT_BYTES};

/// The media types of images that models can be sent.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Collects text and images of one result.
#[derive(Debug, Default)]
pub(crate) struct ResultContent {
    text: String,
    images: Vec<Image>,
}

impl ResultContent {
    /// Adds a text, apart from the one before it.
    pub(crate) fn push_text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    /// Adds an image, or says why it is left out: a request with a broken one would fail as a whole.
    pub(crate) fn push_image(&mut self, media_type: &str, data: &str) {
        let media_type = media_type.to_ascii_lowercase();
        match check_image(&media_type, data) {
            Err(problem) => self.push_text(&format!("[image left out: {problem}]")),
            Ok(()) if self.images.len() >= MAX_IMAGES => {
                self.push_text("[image left out: there are too many]");
            }
            Ok(()) => self.images.push(Image {
                media_type,
                data: data.to_owned(),
            }),
        }
    }

    /// Adds the contents of a resource.
    pub(crate) fn push_resource(&mut self, contents: &ResourceContents) {
        match contents {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                self.push_text(&format!("[resource {}]", one_line(uri)));
                self.push_text(text);
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => {
                let media_type = mime_type.as_deref().unwrap_or("unknown type");
                let uri = one_line(uri);
                if media_type.starts_with("image/") {
                    self.push_text(&format!("[resource {uri}]"));
                    self.push_image(media_type, blob);
                } else {
                    let media_type = one_line(media_type);
                    let bytes = blob.len() / 4 * 3;
                    self.push_text(&format!(
                        "[resource {uri}: {bytes} bytes of {media_type}, not shown]"
                    ));
                }
            }
            _ => self.push_text("[a resource of an unknown kind]"),
        }
    }

    /// Adds a block of content.
    pub(crate) fn push_block(&mut self, block: &ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.push_text(&text.text),
            ContentBlock::Image(image) => self.push_image(&image.mime_type, &image.data),
            ContentBlock::Audio(audio) => self.push_text(&format!(
                "[audio of the type {}, not shown]",
                one_line(&audio.mime_type)
            )),
            ContentBlock::Resource(resource) => self.push_resource(&resource.resource),
            ContentBlock::ResourceLink(link) => {
                let name = one_line(&link.name);
                self.push_text(&format!("[resource {}: {name}]", one_line(&link.uri)));
            }
            _ => self.push_text("[content of an unknown kind]"),
        }
    }

    /// Returns the content as the output of a tool.
    pub(crate) fn into_output(self, failed: bool) -> ToolOutput {
        let text = match (self.text.is_empty(), self.images.is_empty(), failed) {
            (true, true, false) => "(no content)".to_owned(),
            (true, _, true) => "the tool failed without saying why".to_owned(),
            _ => cut_text(&self.text, MAX_RESULT_BYTES),
        };
        let output = match failed {
            true => ToolOutput::failed(text),
            false => ToolOutput::done(text),
        };
        ToolOutput {
            images: self.images,
            ..output
        }
    }
}

/// Converts the result of a call.
pub(crate) fn convert_result(result: &CallToolResult) -> ToolOutput {
    let mut content = ResultContent::default();
    for block in &result.content {
        content.push_block(block);
    }
    // Servers repeat structured content as text for older clients. Without such text, the
    // structured content is the result.
    if result.content.is_empty()
        && let Some(value) = &result.structured_content
    {
        content.push_text(&value.to_string());
    }
    content.into_output(result.is_error.unwrap_or(false))
}

/// The reason why an image is left out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum ImageProblem {
    #[error("models cannot read the type {0}")]
    Type(String),
    #[error("it has {0} MiB, and at most {limit} MiB are allowed", limit = MAX_IMAGE_BYTES >> 20)]
    Size(usize),
    #[error("its data is not base64")]
    Encoding,
    #[error("its data is not an image")]
    Content,
}

/// Checks that an image can be sent to a model.
fn check_image(media_type: &str, data: &str) -> Result<(), ImageProblem> {
    if !IMAGE_TYPES.contains(&media_type) {
        return Err(ImageProblem::Type(one_line(media_type)));
    }
    // Compared before anything is decoded.
    let bytes = data.len() / 4 * 3;
    if bytes > MAX_IMAGE_BYTES {
        return Err(ImageProblem::Size(bytes >> 20));
    }
    let bytes = STANDARD.decode(data).map_err(|_| ImageProblem::Encoding)?;
    match imagesize::blob_size(&bytes) {
        Ok(size) if size.width > 0 && size.height > 0 => Ok(()),
        _ => Err(ImageProblem::Content),
    }
}

/// Shortens a text to a number of bytes, with a note of how many were left out.
pub(crate) fn cut_text(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit);
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}\n[cut: {} bytes more]", text.len() - end)
}

/// Returns a short foreign text without line ends and control characters.
pub(crate) fn one_line(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .filter(|&c| !sabir_policy::is_deceptive_char(c))
        .take(300)
        .collect();
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PNG of one pixel.
    const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    #[test]
    fn text_and_images_become_an_output() {
        let result = CallToolResult::success(vec![
            ContentBlock::text("one"),
            ContentBlock::image(PIXEL, "image/png"),
            ContentBlock::text("two"),
        ]);
        let output = convert_result(&result);
        assert_eq!(output.content, "one\ntwo");
        assert_eq!(output.images.len(), 1);
        assert!(!output.failed);
    }

    #[test]
    fn broken_images_become_text() {
        for (data, problem) in [
            ("", "not an image"),
            ("!", "not base64"),
            ("aGVsbG8=", "not an image"),
        ] {
            let result = CallToolResult::success(vec![ContentBlock::image(data, "image/png")]);
            let output = convert_result(&result);
            assert!(output.content.contains(problem), "{}", output.content);
            assert!(output.images.is_empty());
        }
        let huge = "A".repeat(50 << 20);
        let result = CallToolResult::success(vec![ContentBlock::image(huge, "image/png")]);
        let content = convert_result(&result).content;
        assert!(content.contains("it has 37 MiB"), "{content}");
    }

    #[test]
    fn errors_and_empty_results_say_so() {
        let failed = convert_result(&CallToolResult::error(vec![ContentBlock::text("no")]));
        assert!(failed.failed && failed.content == "no");
        let empty = convert_result(&CallToolResult::success(Vec::new()));
        assert_eq!(empty.content, "(no content)");
        let structured = CallToolResult::structured(serde_json::json!({"a": 1}));
        assert!(convert_result(&structured).content.contains("\"a\":1"));
    }

    #[test]
    fn long_results_are_cut_at_a_character() {
        let text = "ä".repeat(MAX_RESULT_BYTES);
        let output = convert_result(&CallToolResult::success(vec![ContentBlock::text(text)]));
        assert!(output.content.ends_with("bytes more]"));
        assert!(output.content.len() < MAX_RESULT_BYTES + 50);
    }
}
