//! Replaces the images in requests to models that cannot read them.
//!
//! A provider rejects a whole request because of one image, which would end a task because a tool
//! returned an image. A text takes the place of each image, so that the model can say that it
//! cannot see it.

use sabir_call::{ClientBody, MessagePart, Request};

/// Returns the request with a text in place of each image; `None` if there are no images.
pub(crate) fn strip_images(request: &Request) -> Option<Request> {
    let shows = |part: &MessagePart| match part {
        MessagePart::Image(_) | MessagePart::ImageUrl { .. } => true,
        MessagePart::Result(result) => !result.images.is_empty(),
        _ => false,
    };
    if !request
        .messages
        .iter()
        .flat_map(|message| &message.parts)
        .any(shows)
    {
        // Most requests have no image, and the copy below is as large as the history.
        return None;
    }
    let mut request = request.clone();
    // A client's body would bring the images back.
    request.client_body = request.client_body.map(|body| ClientBody {
        keeps_history: false,
        ..body
    });
    for part in request
        .messages
        .iter_mut()
        .flat_map(|message| &mut message.parts)
    {
        match part {
            MessagePart::Image(image) => {
                *part = MessagePart::text(image_placeholder(&image.media_type))
            }
            MessagePart::ImageUrl { url } => *part = MessagePart::text(image_placeholder(url)),
            MessagePart::Result(result) => {
                for image in result.images.drain(..) {
                    if !result.content.is_empty() {
                        result.content.push('\n');
                    }
                    result
                        .content
                        .push_str(&image_placeholder(&image.media_type));
                }
            }
            _ => {}
        }
    }
    Some(request)
}

/// Returns the text in place of an image; `which` is its type or address.
fn image_placeholder(which: &str) -> String {
    format!("[A picture ({which}) was left out: you cannot read pictures.]")
}

#[cfg(test)]
mod tests {
    use sabir_call::{CallId, CallResult, Image, Message, Role, ToolResultStatus};

    use super::*;

    #[test]
    fn pictures_become_placeholders() {
        let image = || Image {
            media_type: "image/png".into(),
            data: "aGk=".into(),
        };
        let result = |content: &str, images: Vec<Image>| {
            let (id, name, content) = (CallId::new("c"), "look".to_owned(), content.to_owned());
            MessagePart::Result(CallResult {
                id,
                name,
                ending: ToolResultStatus::Done,
                content,
                images,
            })
        };
        let request = |parts: Vec<MessagePart>| Request {
            messages: vec![
                Message {
                    role: Role::User,
                    parts,
                },
                Message::assistant("yes"),
            ]
            .into(),
            ..Request::default()
        };
        let told = "[A picture (image/png) was left out: you cannot read pictures.]";
        let blind = strip_images(&request(vec![
            result("seen", vec![image(), image()]),
            result("", vec![image()]),
            MessagePart::Image(image()),
            MessagePart::text("what is it?"),
        ]));
        let expected = request(vec![
            result(&format!("seen\n{told}\n{told}"), Vec::new()),
            result(told, Vec::new()),
            MessagePart::text(told),
            MessagePart::text("what is it?"),
        ]);
        assert_eq!(blind.map(|blind| blind.messages), Some(expected.messages));
        assert!(
            strip_images(&request(vec![
                result("x", Vec::new()),
                MessagePart::text("y")
            ]))
            .is_none()
        );
    }
}
