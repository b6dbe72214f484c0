//! Converts the content of a prompt to a message of the user.

use agent_client_protocol::v1::schema::{
    ContentBlock, EmbeddedResource, EmbeddedResourceResource, ResourceLink,
};
use sabir_session::UserMessage;
use sabir_session::call::Image;
use sabir_session::images::{ImageError, ImageInput};
use url::Url;

/// The reason why a prompt cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PromptError {
    /// It has neither text nor images.
    #[error("the prompt is empty")]
    Empty,
    /// It has content that was not announced as supported.
    #[error("this kind of content is not supported: send text, images or resources")]
    Unsupported,
    /// An image cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Converts the blocks of a prompt. Text is not changed; embedded content follows it, and its name
/// is left at the original place.
pub(crate) fn read_prompt(blocks: Vec<ContentBlock>) -> Result<UserMessage, PromptError> {
    let mut message = UserMessage::default();
    let mut attached = String::new();
    for block in blocks {
        match block {
            ContentBlock::Text(text) => message.text.push_str(&text.text),
            ContentBlock::Image(image) => {
                message
                    .images
                    .push(decode_image(image.mime_type, image.data)?);
            }
            ContentBlock::ResourceLink(link) => message.text.push_str(&link_text(&link)),
            ContentBlock::Resource(resource) => {
                read_resource(resource, &mut message, &mut attached)?;
            }
            _ => return Err(PromptError::Unsupported),
        }
    }
    if !attached.is_empty() {
        if !message.text.is_empty() {
            message.text.push('\n');
        }
        message.text.push_str(&attached);
    }
    if message.text.trim().is_empty() && message.images.is_empty() {
        return Err(PromptError::Empty);
    }
    Ok(message)
}

fn decode_image(media_type: String, data: String) -> Result<Image, ImageError> {
    ImageInput::Data { media_type, data }.decode_image()
}

/// Adds an embedded resource: its name in place, and its content after the whole message.
fn read_resource(
    resource: EmbeddedResource,
    message: &mut UserMessage,
    attached: &mut String,
) -> Result<(), PromptError> {
    match resource.resource {
        EmbeddedResourceResource::TextResourceContents(text) => {
            let name = resource_name(&text.uri);
            // The model reads where it was named, and the content in full behind the message.
            message.text.push_str(&format!("`{name}`"));
            let line_end = if text.text.ends_with('\n') { "" } else { "\n" };
            attached.push_str(&format!(
                "\n<attached name=\"{name}\">\n{}{line_end}</attached>\n",
                text.text
            ));
        }
        EmbeddedResourceResource::BlobResourceContents(blob) => {
            let name = resource_name(&blob.uri);
            message.text.push_str(&format!("`{name}`"));
            match blob
                .mime_type
                .filter(|media_type| media_type.starts_with("image/"))
            {
                Some(media_type) => message.images.push(decode_image(media_type, blob.blob)?),
                None => attached.push_str(&format!(
                    "\n<attached name=\"{name}\">\n(binary data that cannot be shown)\n</attached>\n"
                )),
            }
        }
        _ => return Err(PromptError::Unsupported),
    }
    Ok(())
}

/// Names a linked resource as a model can use it: a file by its path.
fn link_text(link: &ResourceLink) -> String {
    format!("`{}`", resource_name(&link.uri))
}

/// Returns the path of a file with the lines that are meant, or the address as it is.
fn resource_name(uri: &str) -> String {
    let Ok(url) = Url::parse(uri) else {
        return uri.to_owned();
    };
    let Ok(path) = url.to_file_path() else {
        return uri.to_owned();
    };
    let fragment = url.fragment().map(|lines| format!("#{lines}"));
    format!("{}{}", path.display(), fragment.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::{
        AudioContent, BlobResourceContents, ImageContent, TextContent, TextResourceContents,
    };

    use super::*;

    fn text(text: &str) -> ContentBlock {
        ContentBlock::Text(TextContent::new(text))
    }

    #[test]
    fn links_are_named_in_place_and_contents_follow() {
        let embedded = TextResourceContents::new("fn a() {}", "file:///w/my%20src/a.rs#L1:2");
        let message = read_prompt(vec![
            text("Compare "),
            ContentBlock::ResourceLink(ResourceLink::new("b.rs", "file:///w/b.rs")),
            text(" with "),
            ContentBlock::Resource(EmbeddedResource::new(
                EmbeddedResourceResource::TextResourceContents(embedded),
            )),
            text(", please.  "),
        ])
        .unwrap();
        assert_eq!(
            message.text,
            "Compare `/w/b.rs` with `/w/my src/a.rs#L1:2`, please.  \n\n\
             <attached name=\"/w/my src/a.rs#L1:2\">\nfn a() {}\n</attached>\n"
        );
    }

    #[test]
    fn text_stays_as_it_is() {
        let message = read_prompt(vec![text("  a\r\n<b>\t\u{202e}")]).unwrap();
        assert_eq!(message.text, "  a\r\n<b>\t\u{202e}");
    }

    #[test]
    fn images_are_decoded_and_checked() {
        // The smallest GIF there is.
        let gif = "R0lGODlhAQABAAAAACw=";
        let image = |media_type: &str| {
            read_prompt(vec![ContentBlock::Image(ImageContent::new(
                gif, media_type,
            ))])
        };
        assert_eq!(
            image("image/gif").unwrap().images[0].media_type,
            "image/gif"
        );
        assert!(matches!(image("image/png"), Err(PromptError::Image(_))));
    }

    #[test]
    fn other_content_is_refused_or_named() {
        assert!(matches!(read_prompt(Vec::new()), Err(PromptError::Empty)));
        assert!(matches!(
            read_prompt(vec![ContentBlock::Audio(AudioContent::new(
                "",
                "audio/wav"
            ))]),
            Err(PromptError::Unsupported)
        ));
        let blob = BlobResourceContents::new("AAAA", "file:///w/a.bin");
        let resource = EmbeddedResourceResource::BlobResourceContents(blob);
        let message = read_prompt(vec![ContentBlock::Resource(EmbeddedResource::new(
            resource,
        ))])
        .unwrap();
        assert!(message.text.contains("(binary data that cannot be shown)"));
    }
}
